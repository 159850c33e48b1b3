"""Webhooks of dead letters that a consumer's target holds."""

from collections.abc import Iterable

from app.db import Database
from app.outbox.facts import Fact
from app.outbox.writing import tell
from spark.formats.csn import Csn


def tell_refused(database: Database, store_id: str, session_id: str | None, refused: Iterable[Csn]) -> None:
    """Tell webhooks of dead letters that the target holds, of each once while its event is kept.

    It is called whenever such are met: at their batch, at its repetition, as a session begins, and by each
    check, for after a crash no session may ever follow.

    Args:
        session_id: in which they were met; None: a check met them.
    """
    with database.transaction() as db:
        now = database.now(db)
        for csn in sorted(refused):
            data = {
                "store": store_id,
                "agreement_id": None,
                "replication_session_id": session_id,
                "job_id": None,
                "direction": "RECEIVED",
                "rids": [csn.rid],
                "reason": None,
            }
            tell(
                db,
                Fact.DEAD_LETTER,
                store=store_id,
                subject=f"stores/{store_id}",
                data=data,
                now=now,
                once=f"dead-letter:{store_id}:{csn}",
            )
