"""Why a position is not served: whoever stands there would lose changes, or has some that are not ours.

CursorRefused        CURSOR_REFUSED      never raised itself
├── CursorTrimmed    CURSOR_TRIMMED      changes behind it have left the changelog
├── CursorParted     CURSOR_PARTED       it is of a history that this replica has parted from
├── CursorGeneration CURSOR_GENERATION   it is of another generation
├── CursorAhead      CURSOR_AHEAD        this replica has not got so far, or was put back
└── FeedTooWide      FEED_TOO_WIDE       the replica knows more replica ids than a cursor holds
"""

from collections.abc import Sequence
from typing import ClassVar

from spark.replication.errors import ReplicationRefused


class CursorRefused(ReplicationRefused):
    """A reader cannot go on from where it stands.

    Attributes:
        rids: of which replica ids.
    """

    code: ClassVar[str] = "CURSOR_REFUSED"

    def __init__(self, detail: str, rids: Sequence[int] = ()) -> None:
        super().__init__(detail)
        self.rids = tuple(rids)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.detail, self.rids))


class CursorTrimmed(CursorRefused):
    code = "CURSOR_TRIMMED"


class CursorParted(CursorRefused):
    code = "CURSOR_PARTED"


class CursorGeneration(CursorRefused):
    code = "CURSOR_GENERATION"


class CursorAhead(CursorRefused):
    code = "CURSOR_AHEAD"


class FeedTooWide(CursorRefused):
    code = "FEED_TOO_WIDE"
