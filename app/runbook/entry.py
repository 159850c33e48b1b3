"""One entry of the runbook."""

from dataclasses import dataclass
from enum import StrEnum


class Seen(StrEnum):
    """Where a code comes about. Errors of targets are passed on: as a problem, a job's error, or a wait."""

    HTTP = "HTTP"
    JOB = "JOB"
    TARGET = "TARGET"
    WAIT = "WAIT"
    ATTENTION = "ATTENTION"
    STATE = "STATE"
    COMMAND = "COMMAND"
    READY = "READY"
    FINDING = "FINDING"
    ANSWER = "ANSWER"


class Passes(StrEnum):
    """Whether it passes without anybody's doing; FINE: nothing is wrong."""

    YES = "YES"
    NO = "NO"
    MAYBE = "MAYBE"
    FINE = "FINE"


@dataclass(frozen=True, slots=True)
class Entry:
    """A code, for somebody who has never met it.

    Attributes:
        seen: where it comes about.
        meaning: what has happened, in one or two sentences.
        next: what to do.
    """

    code: str
    seen: tuple[Seen, ...]
    meaning: str
    next: str
    passes: Passes
