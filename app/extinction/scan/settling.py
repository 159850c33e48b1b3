"""What a crash or a peer has left: extinctions whose commit nobody has seen, and those of other replicas.

Every few seconds, from the start of the service on; a replica where nothing is open, and which no supplier
has reached through this process, is asked more seldom, and so is one that does not answer. Rules:
- every replica has its turn: those that are asked for a reason first, of the others who has waited longest;
- a row that is RESERVED becomes LOGGED when the target has it, and DROPPED only when the target was read, has
  it not, and nobody can be at work on it any more;
- whatever the target knows has a row and a job here;
- a target that does not answer leaves its rows as they are: their keys stay MAYBE_EXTINCT.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from sqlmodel import Session, col, select

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.db import Database
from app.errors import ServiceError
from app.extinction.records import note_dropped, note_known, rows_of, submit_job
from app.extinction.rows import ENDED, HOLDING, ExtinctionRow, ExtinctionState
from app.extinction.scan.replica_reopening import is_left_undone, reopen, write_again
from app.extinction.target import ask_target
from app.kit.rests import Rest, forget_others
from app.replication.replica.replicas import take_supplied
from app.settings import Settings
from app.stores.errors import StoreNotFound
from app.stores.models import StoreKind
from app.stores.rows import Store, is_suspended
from app.stores.service import get_store
from spark.replication.consumer.extinctions import KnownExtinction, ScanState

ACTOR: Final = "extinction"
RESERVED_MAX: Final = timedelta(minutes=1)
"""Longer than a request works on its commit: the target's time limits end it long before."""
ASKED_PER_LOOK_MAX: Final = 100
ASKED_AT_ONCE_MAX: Final = 8
STORES_PER_QUERY: Final = 200
REST: Final = timedelta(seconds=30)
"""So long a replica with nothing to settle is not asked again; twice as long each time, up to REST_MAX."""
REST_MAX: Final = timedelta(minutes=10)
AWAY_FIRST: Final = timedelta(seconds=5)
"""So long one with something open that did not answer is not asked; twice as long each time, up to REST."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
logger = structlog.get_logger("lethe.extinction")


@dataclass(frozen=True, slots=True)
class Settling:
    """One look at all replicas.

    Args:
        changed: told of each job that was made.
        rests: of stores; kept from look to look.
    """

    database: Database
    settings: Settings
    now: datetime
    changed: Callable[[str], None] = lambda _: None
    rests: MutableMapping[str, Rest] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Settle what can be settled now; returns the jobs that were made."""
        awake, stores = self._found()
        if not stores:
            return []
        with ThreadPoolExecutor(
            min(len(stores), ASKED_AT_ONCE_MAX), thread_name_prefix="lethe-settle"
        ) as pool:
            found = list(pool.map(self._settle, stores))
        made: list[str] = []
        for store, jobs in zip(stores, found, strict=True):
            self.rests[store.id] = self._rest(store.id, jobs, is_awake=store.id in awake)
            made += jobs or ()
        for job_id in made:
            self.changed(job_id)
        return made

    def _found(self) -> tuple[set[str], list[Store]]:
        """The replicas that there is a reason to ask, and those that are asked now."""
        with self.database.reading() as db:
            is_open = col(ExtinctionRow.state).in_(sorted(set(ExtinctionState) - ENDED))
            unsettled = set(db.exec(select(ExtinctionRow.store).where(is_open).distinct()).all())
            supplied = take_supplied()
            names = set(db.exec(select(Store.id).where(Store.kind == StoreKind.REPLICA)).all())
            forget_others(self.rests, names)
            resting = {name: rest for name, rest in self.rests.items() if self.now < rest.until}
            away = {name for name, rest in resting.items() if rest.is_away}
            awake = supplied | (unsettled - away)
            rested = {name: self.rests[name].until for name in names & self.rests.keys()}
            due = sorted(
                (names - resting.keys()) | (names & awake),
                key=lambda name: (name not in awake, rested.get(name, _NEVER), name),
            )
            stores = self._reachable(db, due)
        for name in awake - {store.id for store in stores}:  # its reason is not to be forgotten
            self.rests.pop(name, None)
        return awake | unsettled, stores

    def _reachable(self, db: Session, names: Sequence[str]) -> list[Store]:
        """The first of these that work, and that jobs can reach from this service."""
        stores: list[Store] = []
        for first in range(0, len(names), STORES_PER_QUERY):
            part = names[first : first + STORES_PER_QUERY]
            rows = {each.id: each for each in db.exec(select(Store).where(col(Store.id).in_(part))).all()}
            here = (rows[name] for name in part if name in rows)
            labels = set(self.settings.labels)
            stores += [
                each for each in here if set(each.runs_on) <= labels and not is_suspended(each, now=self.now)
            ]
            if len(stores) >= ASKED_PER_LOOK_MAX:
                break
        return stores[:ASKED_PER_LOOK_MAX]

    def _rest(self, name: str, made: Sequence[str] | None, *, is_awake: bool) -> Rest:
        """When a replica that was asked is asked again.

        Args:
            made: its jobs; None: it did not answer.
        """
        before = self.rests.get(name)
        if made is None and is_awake:
            before = before if before is not None and before.is_away else None
            return Rest.after(before, now=self.now, first=AWAY_FIRST, longest=REST, is_away=True)
        is_news = is_awake or bool(made)
        return Rest.after(None if is_news else before, now=self.now, first=REST, longest=REST_MAX)

    def _settle(self, store: Store) -> list[str] | None:
        """The jobs that a replica needs; None: it does not answer."""
        try:
            says = ask_target(self.database, self.settings, store)
        except ServiceError as error:
            logger.debug("a replica cannot be asked for extinctions", store=store.id, error=error.code)
            return None
        known = says.known or ()
        undone = {each.extinction.id: each for each in known if each.state is not ScanState.DONE}
        with self.database.reading() as db:
            rows = {row.id: row for row in rows_of(db, store.id)}
            is_open = any(self._is_open(db, row, known=undone.get(row.id)) for row in rows.values())
        write_again(self.database, self.settings, store, rows, known=known, status=says.status, now=self.now)
        fresh = [each for each in known if _is_news(rows.get(each.extinction.id), each)]
        if not fresh and not is_open:
            return []
        try:
            with self.database.transaction() as db:
                store = get_store(db, store.id, lock=True)
                note_known(db, store, fresh, now=self.now)
                return self._decide(db, store, {each.extinction.id for each in known}, undone)
        except (ServiceError, StoreNotFound) as error:
            logger.warning("extinctions were not settled", store=store.id, error=error.code)
            return []

    def _decide(
        self, db: Session, store: Store, known: set[str], undone: Mapping[str, KnownExtinction]
    ) -> list[str]:
        made = []
        for row in rows_of(db, store.id):
            if self._is_lost(row) and row.id not in known:
                note_dropped(db, row)
                db.add(_audit(row, now=self.now))
            elif _lacks_job(row) or is_left_undone(db, row, undone.get(row.id), now=self.now):
                reopen(row)
                job = submit_job(
                    db,
                    store,
                    row,
                    settings=self.settings,
                    now=self.now,
                    requested_by=row.requested_by or ACTOR,
                    token_id=None,
                )
                made.append(job.id)
        return made

    def _is_open(self, db: Session, row: ExtinctionRow, *, known: KnownExtinction | None) -> bool:
        return self._is_lost(row) or _lacks_job(row) or is_left_undone(db, row, known, now=self.now)

    def _is_lost(self, row: ExtinctionRow) -> bool:
        return row.state == ExtinctionState.RESERVED and row.created_at + RESERVED_MAX < self.now


def _is_news(row: ExtinctionRow | None, known: KnownExtinction) -> bool:
    """Whether the metadata does not know yet that it is committed, or committed again."""
    return row is None or row.state not in HOLDING or row.csn != str(known.csn)


def _lacks_job(row: ExtinctionRow) -> bool:
    return row.state in HOLDING - ENDED and row.job_id is None


def _audit(row: ExtinctionRow, *, now: datetime) -> AuditEvent:
    subject, detail = ("extinction", row.id), {"reason": "it was never committed"}
    return audited(Action.EXTINCTION_DROP, subject, at=now, actor=ACTOR, store=row.store, detail=detail)
