"""Events are written here, in the transaction of their fact and without a number: nobody waits for it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.db import NEWS
from app.feed.rows import FeedEvent
from app.kit.ids import new_id

BACKUP: Final = "BACKUP"
REPLICATION_SESSION: Final = "REPLICATION_SESSION"
STORE: Final = "STORE"
PROTECTION: Final = "PROTECTION"
SCHEDULE: Final = "SCHEDULE"
WINDOW: Final = "WINDOW"

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def seq_at(now: datetime) -> int:
    """The sequence of an event whose subject counts no changes of its own: microseconds since 1970."""
    return (now - EPOCH) // timedelta(microseconds=1)


def announce(
    db: Session,
    what: str,
    *,
    kind: str,
    store: str | None,
    subject: str,
    seq: int,
    data: Mapping[str, Any],
    now: datetime,
    token_id: str | None = None,
) -> None:
    """Write an event of the feed; it is told once the transaction is committed, and never if it is not.

    Args:
        what: `job.state`, ...; `backup`, `session`, `store`, `protection`, `schedule`, `window`.
        kind: of the job; BACKUP, REPLICATION_SESSION, STORE, ...
        seq: grows with each event of the subject, under the lock of its row.
        token_id: of whoever asked for it, where it is of no store.
    """
    db.info[NEWS] = True
    db.add(
        FeedEvent(
            id=new_id("fev"),
            at=now,
            type=what,
            kind=kind,
            store=store,
            subject=subject,
            seq=seq,
            token_id=token_id if store is None else None,
            data=dict(data),
        )
    )
