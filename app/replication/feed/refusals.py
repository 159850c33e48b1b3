"""What a refused cursor means to a client: 410 where it is over for good, 409 where it may pass."""

from typing import Final

from app.errors import Conflict, Gone, ServiceError
from spark.replication.feed.errors import CursorAhead, CursorRefused, FeedTooWide

_ANEW: Final = (
    "; begin anew: take a cursor with `starting=latest`, read all entries, then follow from that cursor"
)
_LATER: Final = (
    "; wait until a replication session has brought these changes (back), or begin anew: take a cursor with"
    " `starting=latest`, read all entries, then follow from that cursor"
)


def cursor_refusal(error: CursorRefused) -> ServiceError:
    """The problem that a reader gets, with the replica ids that are the cause."""
    extra = {"rids": sorted(error.rids)}
    if isinstance(error, CursorAhead):
        return Conflict(error.detail + _LATER, code=error.code, extra=extra)
    if isinstance(error, FeedTooWide):
        return Conflict(error.detail, code=error.code)
    return Gone(error.detail + _ANEW, code=error.code, extra=extra)
