"""The service's own look at agreements, every second or so: which sessions begin, what targets must know.

Rules:
- a session begins by itself only where its agreement has an `interval`, something is unsent (or the consumer
  has less than it had, see silent.py), none is active, and neither the interval nor the pause after a failure
  runs still;
- what a look decides is decided again under the lock of the store's row, in the transaction that acts: of
  several instances one acts;
- targets are asked side by side, and one that does not answer ever less often: it costs its own agreements a
  look, and others at most one wait for a connection in half a minute.

Source: facts/replication-session, section 5; app/erase/cycle/tick.py is its model.
"""

from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from sqlalchemy import and_, or_
from sqlmodel import col, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import ServiceError
from app.kit.rests import Rest, forget_others, is_resting
from app.replication.agreements.api import register_in_target
from app.replication.agreements.service import active_job
from app.replication.agreements.sessions.models import SessionRequest
from app.replication.agreements.sessions.service import submit_session
from app.replication.agreements.silent import SilentConsumers, ask_consumer
from app.replication.replica.replicas import opened_replica
from app.replication.rows import Agreement, AgreementState
from app.settings import Settings
from app.stores.rows import Store, is_suspended
from app.stores.service import get_store
from spark.replication.agreements import read_agreements
from spark.replication.records import ReplicaStatus
from spark.replication.replica.replica import snapshot

ACTOR: Final = "replication"
REASON: Final = "its interval"
ASKED_AT_ONCE_MAX: Final = 8
REST: Final = timedelta(seconds=5)
"""So long, or for its interval where that is shorter, nobody asks again whether an agreement has anything to
send that had nothing; one whose target could not be read rests so long at first."""
REST_AWAY_MAX: Final = timedelta(seconds=30)
logger = structlog.get_logger("lethe.replication")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A store, its agreements that the target does not know yet, and those whose time has come."""

    store: Store
    unknown: list[Agreement] = field(default_factory=list)
    due: list[Agreement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all agreements.

    Args:
        changed: told of each job that was made.
        rests: until when an agreement is not looked at; kept from look to look.
        silent: the same of consumers that had nothing to be sent; None: they are not asked.
    """

    database: Database
    settings: Settings
    now: datetime
    changed: Callable[[str], None] = lambda _: None
    rests: MutableMapping[str, Rest] = field(default_factory=dict)
    silent: SilentConsumers | None = None

    def run(self) -> list[str]:
        """Begin what is due; returns the jobs."""
        found = self._found()
        if not found:
            return []
        with ThreadPoolExecutor(min(len(found), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-look") as pool:
            begun = list(pool.map(self._serve, found))
        return [job_id for jobs in begun for job_id in jobs]

    def _found(self) -> list[_Wanted]:
        """The stores that runners here can reach, with what their agreements want now."""
        has_time_come = or_(col(Agreement.next_at).is_(None), col(Agreement.next_at) <= self.now)
        with self.database.reading() as db:
            rows = db.exec(
                select(Agreement, Store)
                .join(Store, col(Store.id) == col(Agreement.store))
                .where(
                    col(Agreement.state) != AgreementState.REMOVED,
                    or_(
                        col(Agreement.state) == AgreementState.REGISTERING,
                        and_(col(Agreement.interval_s).is_not(None), has_time_come),
                    ),
                )
                .order_by(col(Agreement.id))
            ).all()
            ids = {agreement.id for agreement, _ in rows}
            forget_others(self.rests, ids)
            if self.silent is not None:
                self.silent.forget_others(ids)
            found: dict[str, _Wanted] = {}
            for row, store in rows:
                if is_resting(self.rests, row.id, now=self.now) or not self._is_open(store):
                    continue
                if row.state == AgreementState.REGISTERING:
                    found.setdefault(store.id, _Wanted(store)).unknown.append(row)
                if self._is_due(row) and active_job(db, row.id) is None:
                    found.setdefault(store.id, _Wanted(store)).due.append(row)
        return list(found.values())

    def _is_open(self, store: Store) -> bool:
        """Whether the store works, and this service is one that its jobs may run on."""
        return not is_suspended(store, now=self.now) and set(store.runs_on) <= set(self.settings.labels)

    def _is_due(self, row: Agreement) -> bool:
        if row.interval_s is None or (row.next_at is not None and self.now < row.next_at):
            return False
        last = row.last_started_at
        return last is None or self.now >= last + timedelta(seconds=row.interval_s)

    def _serve(self, wanted: _Wanted) -> list[str]:
        """What one store's agreements want; the jobs that were begun."""
        store = wanted.store
        for each in wanted.unknown:
            if not register_in_target(self.database, self.settings, store, each.id):
                self._rest_away([*wanted.unknown, *wanted.due])
                return []
        try:
            unsent = self._unsent(store, wanted.due) if wanted.due else []
        except ServiceError as error:
            logger.warning("an agreement's target cannot be read", store=store.id, error=error.code)
            self._rest_away(wanted.due)
            return []
        for each in wanted.due:
            self.rests.pop(each.id, None)
            if each not in unsent:
                length = min(timedelta(seconds=each.interval_s or 0.0), REST)
                self.rests[each.id] = Rest(self.now + length, length)
        return [job_id for each in unsent if (job_id := self._begin(store.id, each)) is not None]

    def _rest_away(self, agreements: Sequence[Agreement]) -> None:
        for each in agreements:
            before = self.rests.get(each.id)
            self.rests[each.id] = Rest.after(before, now=self.now, first=REST, longest=REST_AWAY_MAX)

    def _unsent(self, store: Store, due: list[Agreement]) -> list[Agreement]:
        """The agreements whose consumers have not acknowledged all that is here."""
        opened = opened_replica(self.database, self.settings, store, purpose="agreements")
        with opened as conn, conn.transaction(read_only=True):
            seen = snapshot(conn)
            known = {each.agreement_id: each.acknowledged for each in read_agreements(conn)}
        if seen.replica.status is not ReplicaStatus.ONLINE:
            return []
        ruv = seen.vectors.ruv
        unsent = [
            each for each in due if any(csn > known.get(each.id, {}).get(rid, "") for rid, csn in ruv.items())
        ]
        if self.silent is None:
            return unsent
        silent = (each for each in due if each not in unsent)
        ask = partial(ask_consumer, self.database, self.settings)
        return unsent + [each for each in silent if self.silent.take_behind(each, seen, ask, now=self.now)]

    def _begin(self, store_id: str, agreement: Agreement) -> str | None:
        caller = Caller("", ACTOR, frozenset({Scope.REPLICATION_WRITE}), frozenset({store_id}))
        request = SessionRequest(agreement_id=agreement.id, reason=REASON)
        try:
            with self.database.transaction() as db:
                store = get_store(db, store_id, lock=True)
                row = db.get(Agreement, agreement.id)
                if row is None or not self._is_due(row) or active_job(db, row.id) is not None:
                    return None
                job, session = submit_session(
                    db, store, request, caller=caller, settings=self.settings, now=self.now
                )
                db.add(_audit(store_id, session.id, agreement.id, now=self.now))
        except ServiceError as error:
            logger.warning("no session was begun", agreement=agreement.id, error=error.code)
            return None
        self.changed(job.id)
        return job.id


def _audit(store_id: str, session_id: str, agreement_id: str, *, now: datetime) -> AuditEvent:
    subject, detail = ("replication_session", session_id), {"agreement_id": agreement_id, "reason": REASON}
    return audited(
        Action.REPLICATION_SESSION_CREATE, subject, at=now, actor=ACTOR, store=store_id, detail=detail
    )
