"""Exit codes (sysexits.h where it has one), and an error as the command shows it."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    """What the command's end means to a script."""

    OK = 0
    FAILED = 1
    USAGE = 64
    BUG = 70
    TRY_AGAIN = 75
    NOT_ALLOWED = 77
    CONFIGURATION = 78
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Complaint:
    """One error as the command shows it: a code, what happened, what to do, and the exit code."""

    code: str
    detail: str
    exit_code: ExitCode
    advice: str = ""
    document: dict[str, Any] | None = None

    def problem(self) -> dict[str, Any]:
        """The problem document for `--json`: the service's own, else one of ours in the same form."""
        if self.document is not None:
            return self.document
        return {
            "type": "urn:lethe:problem:" + self.code.lower().replace("_", "-"),
            "title": self.code.replace("_", " ").capitalize(),
            "detail": self.detail,
            "code": self.code,
            "retryable": self.exit_code is ExitCode.TRY_AGAIN,
        }
