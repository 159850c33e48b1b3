"""What is still stranded behind a purge that captured anew, and why."""

from collections.abc import Callable

from spark.targets.connection import Connection
from spark.upkeep.parts import Part
from spark.upkeep.recapture.judging import NOT_CAPTURED, Kept, kept_of

__all__ = ["Kept", "remaining"]


def remaining(conn: Connection, part: Part, should_stop: Callable[[], bool]) -> tuple[Kept, ...]:
    """The stranded rows of a table that are there now, by why they stay."""
    return kept_of(conn, part, part.at.removable, should_stop, otherwise=NOT_CAPTURED)
