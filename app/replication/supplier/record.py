"""A session as the metadata keeps it while it runs: its row, its counters, and what its agreement shows.

Invariants:
- the row is written under the job's fencing token: an attempt that has lost its lease changes nothing here;
- counters never go back. What a batch did whose answer was lost is found by the consumer's RUV at the next
  acquire, if nobody else held its lease in between (its epochs follow each other);
- the end of a session, with what its agreement shows of it, is one transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlmodel import Session

from app.jobs.running.context import JobContext
from app.kit.ids import new_id
from app.outbox.facts import Fact
from app.outbox.writing import tell
from app.replication.agreements.sessions.models import SessionCounters, SessionParams
from app.replication.agreements.sessions.service import (
    add_row,
    announce_session,
    session_of_job,
    subject_of,
)
from app.replication.peer.answers import Acquired, shown_position, shown_ruv
from app.replication.rows import Agreement, ReplicationSession, SessionOutcome, SessionState
from app.replication.supplier.batches import count_upto
from app.replication.supplier.pipeline import Sent
from app.tracing import TRACING
from spark.formats.csn import Csn
from spark.replication.records import Snapshot
from spark.replication.supplier.decide import Decision

SAVE_EVERY_S: Final = 1.0
ANCHORS_KEPT: Final = 200
_COUNTED: Final = ("batches_sent", "bytes_sent", "rows_read", "windows_done", "cursor", "anchors", "engine")
"""What is changed in memory first, and written with the next save."""
BACKOFF_FIRST_S: Final = 3.0
BACKOFF_MAX_S: Final = 300.0
FAILED_OUTCOMES: Final = frozenset(
    {SessionOutcome.FAILED, SessionOutcome.NEEDS_TOTAL, SessionOutcome.DIVERGED}
)

FACTS: Final = {
    SessionOutcome.UNPROVEN: Fact.SESSION_UNPROVEN,
    SessionOutcome.NEEDS_TOTAL: Fact.SESSION_NEEDS_TOTAL,
    SessionOutcome.HALTED: Fact.SESSION_HALTED,
}


@dataclass(frozen=True, slots=True)
class SessionProblem:
    """What ended a session, or holds it up."""

    code: str
    detail: str
    rids: Sequence[int] = ()
    reason: str | None = None

    def document(self) -> dict[str, Any]:
        """As the row keeps it."""
        return {"code": self.code, "detail": self.detail, "rids": list(self.rids), "reason": self.reason}


class Record:
    """The row of one session, and what is counted; used by the job's thread alone.

    Attributes:
        ruv: the consumer's, as it was last acknowledged.
    """

    def __init__(self, context: JobContext, row: ReplicationSession) -> None:
        self.context = context
        self.row = row
        self.ruv: dict[int, Csn] = _vector((row.consumer or {}).get("ruv"))
        self.counters = {
            int(rid): SessionCounters.model_validate(counted) for rid, counted in row.counters.items()
        }
        self._saved_at_s = context.clock.boottime_s()

    @classmethod
    def of(cls, context: JobContext, store_id: str, params: SessionParams) -> "Record":
        """The session of a job; a job that was made by `:retry` gets a fresh one."""

        def find(db: Session) -> ReplicationSession:
            known = session_of_job(db, context.job.id)
            if known is not None:
                return known
            session_id, now = new_id("rps"), context.database.now(db)
            context.change(db, {"subject": subject_of(store_id, session_id).model_dump()})
            return add_row(db, store_id, session_id, context.job.id, params, now=now)

        return cls(context, context.write(find))

    @property
    def is_ended(self) -> bool:
        """Whether its end was written, by this attempt or by one before."""
        return self.row.state == SessionState.ENDED

    # -- what happens

    def count(self, rid: int) -> SessionCounters:
        """The counters of a replica id."""
        return self.counters.setdefault(rid, SessionCounters())

    @property
    def acknowledged(self) -> int:
        """Changes that the consumer has acknowledged, over all replica ids."""
        return sum(each.acknowledged for each in self.counters.values())

    def begin(self) -> None:
        """An attempt begins: the session is seen at work, by the clock that the next one is due by."""

        def edit(db: Session, row: ReplicationSession) -> None:
            row.state = SessionState.ACQUIRING
            if row.started_at is None:
                now = self.context.database.now(db)
                row.started_at = now
                agreement = db.get(Agreement, row.agreement_id)
                if agreement is not None:
                    agreement.last_started_at, agreement.last_session_id = now, row.id
                    db.add(agreement)

        self.change(edit)

    def acquired(self, acquired: Acquired, *, lease_until: datetime) -> None:
        """The consumer has granted its lease: noted before anything is sent in this epoch."""
        consumer = acquired.consumer
        self.ruv = dict(consumer.ruv or {})

        def edit(db: Session, row: ReplicationSession) -> None:
            row.state, row.epoch, row.problem = SessionState.SENDING, acquired.epoch, None
            row.consumer = {
                "rid": consumer.rid,
                "status": consumer.status,
                "generation": consumer.generation,
                "ruv": None if consumer.ruv is None else shown_ruv(consumer.ruv),
                "purged": shown_ruv(consumer.purged),
            }
            row.cursor = (row.cursor or {}) | {"lease": lease_until.isoformat()}
            agreement = db.get(Agreement, row.agreement_id)
            if agreement is not None and agreement.consumer_rid != consumer.rid:
                agreement.consumer_rid = consumer.rid
                db.add(agreement)

        self.change(edit)

    def found_applied(self, counted: Mapping[int, int]) -> None:
        """Changes of ours that the consumer has, though nobody heard the answer."""
        for rid, rows in counted.items():
            own = self.count(rid)
            own.acknowledged += rows
            own.sent = max(own.sent, own.acknowledged + own.rejected)

    def decided(self, decision: Decision, snapshot: Snapshot) -> None:
        """What the session does next, and by which vectors."""

        def edit(_db: Session, row: ReplicationSession) -> None:
            vectors = snapshot.vectors
            row.supplier = {
                "rid": snapshot.replica.rid,
                "generation": snapshot.replica.generation,
                "ruv": shown_ruv(vectors.ruv),
                "purged": shown_ruv(vectors.purged),
            }
            row.decision = {
                "outcome": decision.outcome.value,
                "need": list(decision.need),
                "blocked_rids": list(decision.blocked_rids),
                "reason": None if decision.reason is None else decision.reason.value,
            }
            if decision.windows:
                row.windows = {
                    str(rid): [window.after, window.upto] for rid, window in decision.windows.items()
                }

        self.change(edit)

    def told(self, sent: Sent) -> None:
        """A batch of changes was acknowledged."""
        self._trace("CHANGES", sent)
        answer, ranges = sent.acknowledged, sent.batch.ranges
        for rid, csn in answer.ruv.items():
            if csn > self.ruv.get(rid, ""):
                self.ruv[rid] = csn
        for rid, part in ranges.items():
            counted = self.count(rid)
            counted.sent += part.rows
            counted.acknowledged += _rows_upto(sent, rid, self.ruv.get(rid))
        for refused in answer.rejected:
            self.count(refused.rid).rejected += 1
        for rid, count in answer.extinct.items():
            self.count(rid).extinct += count
        if answer.covered and not answer.replayed:
            # Nobody else may bring the consumer changes now: only its own writers move its own replica id.
            own = int((self.row.consumer or {}).get("rid", 0))
            self.count(own if own in ranges else next(iter(ranges))).duplicates += answer.covered
        self.row.batches_sent += 1
        self.row.bytes_sent += sent.body_bytes

    def told_entries(self, sent: Sent) -> None:
        """A batch of entries was acknowledged."""
        self._trace("ENTRIES", sent)
        self.row.batches_sent += 1
        self.row.bytes_sent += sent.body_bytes
        total = self.total
        assert total is not None, "entries travel in a total initialisation"
        page = sent.batch.records()
        last = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())
        more = {"entries_sent": total["entries_sent"] + sent.batch.rows, "after": shown_position(last)}
        self.set_total(total | more)

    def told_extinctions(self, sent: Sent) -> None:
        """A batch of a copy's extinctions was acknowledged."""
        self._trace("EXTINCTIONS", sent)
        self.row.batches_sent += 1
        self.row.bytes_sent += sent.body_bytes

    def _trace(self, step: str, sent: Sent) -> None:
        now = self.context.clock.now()
        unit_id = f"{self.row.id}-{sent.batch_seq}"
        TRACING.unit(step, unit_id=unit_id, took_s=sent.worked_s, now=now, error=None)

    @property
    def total(self) -> dict[str, Any] | None:
        """The total initialisation under way: its snapshot, and how far it is."""
        return (self.row.cursor or {}).get("total")

    @property
    def is_copied(self) -> bool:
        """Whether the consumer has said that its copy is complete: it has the vector of that copy then."""
        return bool(self.total and self.total.get("is_copied"))

    def set_total(self, total: Mapping[str, Any]) -> None:
        """Remember it; written with the next save."""
        self.row.cursor = (self.row.cursor or {}) | {"total": dict(total)}

    def keep_anchors(self, anchors: Sequence[Mapping[str, Any]]) -> None:
        """CLASSIC: from where buffers were loaded; the last ones are kept."""
        loads = [*self.row.anchors.get("loads", []), *map(dict, anchors)]
        self.row.anchors = {"loads": loads[-ANCHORS_KEPT:]}

    # -- writing

    @property
    def is_due(self) -> bool:
        """Whether it is time to write down what was told."""
        return self.context.clock.boottime_s() - self._saved_at_s >= SAVE_EVERY_S

    def save(self, *, lease_until: datetime | None = None) -> None:
        """Write the counters, the consumer's RUV and how long its lease may be ours."""

        def edit(_db: Session, row: ReplicationSession) -> None:
            if lease_until is not None:
                row.cursor = (row.cursor or {}) | {"lease": lease_until.isoformat()}

        self.change(edit)

    def released(self) -> None:
        """The lease is given back, or proved to be over: nothing of this session can write any more."""

        def edit(_db: Session, row: ReplicationSession) -> None:
            row.cursor = {name: value for name, value in (row.cursor or {}).items() if name != "lease"}
            row.state = SessionState.PENDING if row.state != SessionState.ENDED else row.state

        self.change(edit)

    def held_up(self, problem: SessionProblem) -> None:
        """Note why the session does not go on now."""
        self.change(lambda _db, row: setattr(row, "problem", problem.document()))

    def end(self, outcome: SessionOutcome, problem: SessionProblem | None = None) -> dict[str, Any]:
        """End the session, and show it in its agreement.

        Returns: the result of its job.
        """

        def edit(db: Session, row: ReplicationSession) -> None:
            now = self.context.database.now(db)
            row.state, row.outcome, row.ended_at = SessionState.ENDED, outcome, now
            row.problem = None if problem is None else problem.document()
            agreement = db.get(Agreement, row.agreement_id)
            if agreement is not None:
                show_end(agreement, row, now=now)
                db.add(agreement)
            if outcome in FACTS:
                _tell(db, FACTS[outcome], row, problem, now=now)

        self.change(edit)
        return self.result()

    def result(self) -> dict[str, Any]:
        """What the job of an ended session answers."""
        row = self.row
        return {
            "replication_session_id": row.id,
            "outcome": row.outcome,
            "counters": row.counters,
            "acknowledged": self.acknowledged,
            "windows": row.windows_done,
            "rows_read": row.rows_read,
            "batches": row.batches_sent,
            "bytes": row.bytes_sent,
            "problem": row.problem,
        }

    def change(self, edit: Any) -> None:
        """Write the row with an edit, under the job's token."""
        mine = self.row

        def effect(db: Session) -> ReplicationSession:
            self.context.change(db, {})
            row = db.get(ReplicationSession, mine.id, populate_existing=True)
            assert row is not None, "the session goes with its job, and the job is held"
            before, now = _refused(row.counters), self.context.clock.now()
            row.counters = {str(rid): self.counters[rid].model_dump() for rid in sorted(self.counters)}
            more = {rid: count for rid, count in _refused(row.counters).items() if count > before.get(rid, 0)}
            if more:
                problem = SessionProblem("DEAD_LETTER", "", rids=sorted(map(int, more)))
                _tell(db, Fact.DEAD_LETTER, row, problem, now=now)
            for name in _COUNTED:
                setattr(row, name, getattr(mine, name))
            edit(db, row)
            if row.consumer is not None and (row.consumer.get("ruv") is not None or self.is_copied):
                row.consumer = row.consumer | {"ruv": shown_ruv(self.ruv)}
            row.version += 1
            row.updated_at = now
            announce_session(db, row, now=now)
            return row

        self.row = self.context.write(effect)
        self._saved_at_s = self.context.clock.boottime_s()


def _refused(counters: Mapping[str, Any]) -> dict[str, int]:
    """What the consumer has refused, by RID."""
    return {rid: int(counted["rejected"]) for rid, counted in counters.items()}


def _tell(
    db: Session, fact: Fact, row: ReplicationSession, problem: SessionProblem | None, *, now: datetime
) -> None:
    """Tell webhooks of a session; only codes and replica ids, never what a peer has written."""
    data = {
        "store": row.store,
        "agreement_id": row.agreement_id,
        "replication_session_id": row.id,
        "job_id": row.job_id,
        "direction": "SENT",
        "rids": [] if problem is None else list(problem.rids),
        "reason": None if problem is None else problem.reason,
    }
    subject = f"stores/{row.store}/replication-sessions/{row.id}"
    tell(db, fact, store=row.store, subject=subject, data=data, now=now)


def show_end(agreement: Agreement, row: ReplicationSession, *, now: datetime) -> None:
    """Let an agreement show how its last session ended, and when the next one may begin."""
    problem = row.problem or {}
    agreement.last_session_id, agreement.last_ended_at = row.id, now
    agreement.last_outcome = None if row.outcome is None else str(row.outcome)
    agreement.last_code, agreement.last_detail = problem.get("code"), problem.get("detail")
    agreement.sent = _added(agreement.sent, row.counters)
    if row.consumer is not None and row.consumer.get("ruv") is not None:
        agreement.acknowledged = row.consumer["ruv"]
    has_failed = row.outcome in FAILED_OUTCOMES
    agreement.failures = agreement.failures + 1 if has_failed else 0
    agreement.next_at = now + timedelta(seconds=backoff_s(agreement.failures)) if has_failed else None


def backoff_s(failures: int) -> float:
    """Seconds before the next try, after so many failures in a row."""
    return 0.0 if failures < 1 else min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 1, 20))


def _added(sent: Mapping[str, Any], counters: Mapping[str, Any]) -> dict[str, Any]:
    """What was sent since the agreement was made: [replayed, skipped] by RID."""
    total = {rid: list(pair) for rid, pair in sent.items()}
    for rid, counted in counters.items():
        replayed, skipped = total.get(rid, [0, 0])
        if counted["sent"] or counted["rejected"]:
            total[rid] = [replayed + counted["acknowledged"], skipped + counted["rejected"]]
    return total


def _vector(document: Mapping[str, str] | None) -> dict[int, Csn]:
    return {int(rid): Csn(csn) for rid, csn in (document or {}).items()}


def _rows_upto(sent: Sent, rid: int, upto: str | None) -> int:
    """How many records of a replica id in a batch stand at or below a CSN."""
    part = sent.batch.ranges[rid]
    if upto is None or upto < part.first:
        return 0
    if upto >= part.last:
        return part.rows
    return count_upto(sent.batch.records(), rid, upto)
