"""How a total initialisation goes on with what an earlier attempt, or an earlier session, has copied.

Rules:
- a copy is gone on with only where all of it is still part of this replica's history: its RUV, and of each
  replica id the newest entry that the consumer has of it;
- a consumer that has less of it than it has acknowledged was put back: it begins anew (it looks itself);
- what was changed since the copy began must still be in the changelog, also where no entry is there yet;
- a consumer that has become a replica meanwhile is not measured by what this one had then;
- until the changes of all entries have followed, the supplier stays who it was, and never has less than it
  has shown (`Standing`): else an entry would stay that no later change undoes.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlmodel import Session, col, select

from app.jobs.errors import JobFailed
from app.replication.peer.answers import Acquired, read_ruv, shown_ruv
from app.replication.rows import ReplicationSession
from app.replication.supplier.ground import Ground
from spark.formats.csn import Csn
from spark.replication.records import SessionMode, Snapshot
from spark.replication.supplier.resumable import can_resume, is_behind, still_holds

EARLIER_MAX: Final = 10
Total = dict[str, Any]


class Standing:
    """What a supplier has shown of itself since its acquire; one thread at a time.

    Attributes:
        entries: up to where the entries that it has sent may reach, of each replica id.
    """

    def __init__(self, seen: Snapshot) -> None:
        self._who = (seen.replica.generation, seen.replica.incarnation)
        self._ruv = seen.vectors.ruv
        self.entries: Mapping[int, Csn] = {}

    def show(self, seen: Snapshot) -> None:
        """A page is read.

        Raises: JobFailed.
        """
        self.require(seen)
        self.entries = seen.vectors.ruv

    def look(self, seen: Snapshot, *, ruv: Mapping[int, Csn], copied: Mapping[int, Csn]) -> None:
        """A window is read; behind what the entries need a loss here is no fault of the copy.

        The consumer, once it is readable, can bring such a loss back.

        Args:
            ruv: the consumer's.
            copied: of each replica id the newest entry that earlier attempts have sent.
        Raises: JobFailed.
        """
        if is_behind(ruv, copied) or is_behind(ruv, self.entries):
            self.require(seen)
        self._ruv = seen.vectors.ruv

    def require(self, seen: Snapshot) -> None:
        """Look again.

        Raises: JobFailed: it was put back, recovered or made anew since.
        """
        who = (seen.replica.generation, seen.replica.incarnation)
        if who != self._who or is_behind(seen.vectors.ruv, self._ruv):
            detail = (
                "this replica was restored to an earlier state, recovered or made anew while it was copied:"
                " begin the session again with `--total`; nothing of the copy is shown before"
            )
            raise JobFailed("REPLICA_PUT_BACK", detail, retryable=True)
        self._ruv = seen.vectors.ruv


def beginning(seen: Snapshot, *, is_anew: bool = False) -> Total:
    """A copy that begins at this snapshot.

    Args:
        is_anew: the consumer may have another one of this session, which it must not go on with.
    """
    return {
        "ruv": shown_ruv(seen.vectors.ruv),
        "generation": seen.replica.generation,
        "incarnation": seen.replica.incarnation,
        "entries_sent": 0,
        "entries_before": 0,
        "is_counted": False,
        "continued_from": None,
        "continues": [],
        "after": None,
        "buried": None,
        "is_anew": is_anew,
        "is_begun": False,
        "is_copied": False,
        "is_releasing": False,
        "is_complete": False,
    }


def note_beginning(ground: Ground, seen: Snapshot) -> None:
    """The snapshot that a total initialisation stands for: it stays once the consumer has accepted it.

    One whose session ended before it was complete is taken over by the next session of the agreement.
    """
    record = ground.record
    known = record.total
    if known is not None and known["is_complete"]:
        return
    if known is None:
        known = _earlier(ground)
    # A replica that was put back since has no longer what the copy stands for: it begins anew.
    if known is None or not known["is_begun"]:
        record.set_total(beginning(seen))
    elif still_holds(
        seen,
        generation=str(known["generation"]),
        incarnation=known.get("incarnation", seen.replica.incarnation),
        begun=read_ruv(known["ruv"]),
    ):
        record.set_total(known)
    else:
        record.set_total(beginning(seen, is_anew=True))
    record.save()


def begin_anew(ground: Ground, seen: Snapshot) -> None:
    """Let nothing of what is there be gone on with."""
    ground.record.set_total(beginning(seen, is_anew=True))
    ground.record.save()


def leave_copy(ground: Ground, seen: Snapshot) -> None:
    """Let the next acquire begin the copy anew, also where this attempt ends before it."""
    ground.record.set_total(beginning(seen, is_anew=True) | {"is_begun": True})
    ground.record.save()


def resuming_body(total: Total) -> dict[str, Any]:
    """What an acquire says of the copy that it would go on with."""
    return {
        "sessions": list(total.get("continues", ())),
        "after": total.get("after"),
        "is_anew": bool(total.get("is_anew")),
    }


def granted(total: Total, acquired: Acquired) -> Total:
    """The copy as the consumer has accepted it: gone on with, or begun."""
    found = {**total, "is_begun": True, "is_anew": False}
    if acquired.resume_after is None and not acquired.is_copied:
        return (
            found
            | {"entries_before": 0, "is_counted": True}
            | dict.fromkeys(("continued_from", "after", "buried"))
        )
    # What the consumer knows of its own entries counts: this metadata may be older than they.
    buried = max(filter(None, (found.get("buried"), acquired.buried)), default=None)
    found["buried"] = None if buried is None else str(buried)
    return found if acquired.entries is None else found | _counted(found, acquired.entries)


def _counted(total: Total, there: int) -> Total:
    """What was copied before this session, and by it, where the consumer has so many entries.

    Nothing is sent before the first lease, but by a version that did not ask. What no answer came for, this
    session has sent.
    """
    sent = int(total["entries_sent"])
    if not total.get("is_counted"):
        return {"entries_before": max(0, there - sent), "is_counted": True}
    return {"entries_sent": max(sent, there - int(total["entries_before"]))}


def is_of_before(ground: Ground, seen: Snapshot) -> bool:
    """Whether this replica has introduced itself by what it had when an unfinished copy was begun."""
    total = ground.record.total
    return total is not None and not total["is_complete"] and total["ruv"] != shown_ruv(seen.vectors.ruv)


def is_foreign(ground: Ground, seen: Snapshot, acquired: Acquired) -> bool:
    """Whether the consumer has a copy, or has begun one, that this replica cannot go on with.

    Args:
        seen: a snapshot taken before the acquire.
    """
    total = ground.record.total
    assert total is not None, "noted before the acquire"
    if acquired.resume_after is None and not acquired.is_copied:
        return is_behind(read_ruv(total["ruv"]), seen.vectors.purged)
    return not can_resume(
        ground.conn,
        seen,
        begun=read_ruv(total["ruv"]),
        copied=acquired.copied,
        applied=acquired.consumer.ruv if acquired.is_copied else None,
    )


def _earlier(ground: Ground) -> Total | None:
    """The copy that the last sessions of this agreement have left unfinished; None: there is none."""
    own_id, agreement_id = ground.record.row.id, ground.agreement.id

    def find(db: Session) -> list[ReplicationSession]:
        query = (
            select(ReplicationSession)
            .where(
                ReplicationSession.agreement_id == agreement_id,
                ReplicationSession.mode == SessionMode.TOTAL,
                ReplicationSession.id != own_id,
            )
            .order_by(col(ReplicationSession.id).desc())
            .limit(EARLIER_MAX)
        )
        return list(db.exec(query).all())

    for row in ground.context.read(find):
        total = (row.cursor or {}).get("total")
        if total is None:
            continue
        if total["is_complete"]:
            return None
        before = int(total["entries_sent"]) + int(total.get("entries_before", 0))
        sessions = [row.id, *total.get("continues", ())][:EARLIER_MAX]
        return {
            **total,
            "continues": sessions,
            "continued_from": row.id,
            "entries_before": before,
            "entries_sent": 0,
            "is_counted": False,
            # Whoever confirms a release asks by its own session.
            "is_releasing": False,
            "is_begun": bool(total["is_begun"] or total.get("continues")),
        }
    return None
