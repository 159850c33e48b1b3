"""A SQL target that remembers more than our metadata: `lethe recover STORE` after that was restored.

The target's fence tells the greatest token that anybody had there, its ledger the jobs that wrote.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Protocol

from sqlmodel import Session

from app.clock import SystemClock
from app.db import Database
from app.errors import ServiceError
from app.jobs.errors import EpochAhead
from app.jobs.rows import Job
from app.jobs.running.abandonment import shut_out_abandoned
from app.jobs.running.claims import current_epoch, next_token, raise_epoch
from app.jobs.states import JobState
from app.jobs.writing import add_job, state_event
from app.kit.ids import is_id
from app.outbox.facts import Fact
from app.outbox.writing import forget_name, is_to_be_told, tell
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, RecoveryRead
from app.stores.rows import Store
from app.stores.targets import opened
from spark.targets.connection import Connection, identity
from spark.targets.errors import TargetError
from spark.targets.fence import greatest_fence
from spark.targets.ledger import JobTotals, archive_manifest, list_jobs, shows_ledger
from spark.targets.manifest import ManifestEntry

RECOVERED_FOREIGN: Final = "RECOVERED_FOREIGN"
RECOVER_OWNER: Final = "recover"
"""Who stands at the fence of an abandoned job that a recover has shut out."""


@dataclass(frozen=True, slots=True)
class FenceAhead:
    """A fence that is above every token that we have ever given."""

    token: int
    owner: str
    epoch: int
    """Ours."""


class Archives(Protocol):
    """Archives that lie here, and the rows of them."""

    def has(self, db: Session, job_id: str) -> bool:
        """Whether the metadata knows of that of a job."""

    def take_in(
        self,
        db: Session,
        settings: Settings,
        totals: JobTotals,
        entries: Sequence[ManifestEntry],
        *,
        store: str,
    ) -> None:
        """Make a row of that of a job, where it lies here; `entries` as the target has them."""


def recover_target(
    database: Database,
    settings: Settings,
    store: Store,
    actor: str,
    *,
    kind: str,
    kinds: Mapping[str, str] = MappingProxyType({}),
    resources: Sequence[str],
    archives: Archives | None = None,
) -> RecoveryRead:
    """Raise our epoch above the target's fence and mark the jobs that only the target remembers.

    Abandoned jobs are shut out there first. Archives that lie here and have no row are taken in.

    Args:
        kind: of the jobs that are marked.
        kinds: of those whose steps tell another kind.
        resources: whose fences are looked at.
        archives: takes in those of jobs that have ended; None: nothing does.
    Raises: ServiceError: the target cannot be asked.
    """
    with opened(store, settings, database, purpose="recover", read_only=False) as conn:
        shut_out_abandoned(
            database,
            conn,
            identity=identity(conn),
            owner=RECOVER_OWNER,
            token=next_token,
            clock=SystemClock(),
        )
        ledger = shows_ledger(conn)
        fence = _greatest_fence(conn, resources) if ledger else None
        known = [each for each in list_jobs(conn) if is_id("job", each.job_id)] if ledger else []
        archived = _archived(database, conn, known, archives)
    with database.transaction() as db:
        before = current_epoch(db)
        after = raise_epoch(db, fence[0]) if fence is not None and fence[0] > before else before
        now = database.now(db)
        forget_ahead(db, store.id)
        foreign = [totals for totals in known if db.get(Job, totals.job_id) is None]
        for totals in foreign:
            _mark(db, store, totals, kind=kinds.get(totals.step, kind), actor=actor, now=now)
        for totals, entries in archived:
            assert archives is not None, "nothing is found without it"
            archives.take_in(db, settings, totals, entries, store=store.id)
    return RecoveryRead(
        epoch_before=before, epoch_after=after, foreign_jobs=[totals.job_id for totals in foreign]
    )


def _archived(
    database: Database, conn: Connection, known: Sequence[JobTotals], archives: Archives | None
) -> list[tuple[JobTotals, list[ManifestEntry]]]:
    """What jobs have archived that have ended, as far as we know of them, and that have no archive here."""
    if archives is None:
        return []
    with database.reading() as db:
        jobs = [(totals, db.get(Job, totals.job_id)) for totals in known]
        found = [
            totals
            for totals, job in jobs
            if (job is None or job.finished_at is not None) and not archives.has(db, totals.job_id)
        ]
    return [(totals, archive_manifest(conn, totals.job_id)) for totals in found]


def is_target_ahead(
    database: Database, settings: Settings, store: Store, resources: Sequence[str]
) -> bool | None:
    """Whether a target has seen a greater epoch than ours; None: it cannot be asked."""
    try:
        with opened(store, settings, database, purpose="epoch") as conn:
            fence = _greatest_fence(conn, resources) if shows_ledger(conn) else None
    except ServiceError:
        return None
    return _above_us(database, fence) is not None


def tell_ahead(database: Database, store: str) -> None:
    """Tell webhooks that a store is ahead of this metadata, once until somebody recovers it.

    For whoever finds it without a job that fails by it; in a transaction of its own, as a refusal has none.
    Where nobody is to be told, it writes nothing.
    """
    once = _name_of_ahead(store)
    with database.reading() as db:
        if not is_to_be_told(db, Fact.EPOCH_AHEAD, store=store, once=once):
            return
    with database.transaction(is_news=False) as db:
        data = {"store": store, "job_id": None, "kind": None}
        subject = f"stores/{store}"
        now = database.now(db)
        tell(db, Fact.EPOCH_AHEAD, store=store, subject=subject, data=data, now=now, once=once)


def forget_ahead(db: Session, store: str) -> None:
    """A store was recovered: that it is ahead again would be told again."""
    forget_name(db, _name_of_ahead(store))


def _name_of_ahead(store: str) -> str:
    return f"epoch_ahead:{store}"


def refuse_ahead(database: Database, store: str, conn: Connection, resource: str) -> None:
    """Raise EpochAhead where the target's fence is above every token that we have given; it is told then."""
    ahead = fence_ahead(database, conn, resource)
    if ahead is not None:
        tell_ahead(database, store)
        raise _refusal(resource, ahead)


def ahead_findings(database: Database, conn: Connection, resources: Sequence[str]) -> list[Finding]:
    """What a check says of a target where jobs would be refused by the fence of another metadata.

    Raises: TargetError: that passes; a ledger that this role may not read says nothing.
    """
    try:
        fences = {each: greatest_fence(conn, each) for each in resources} if shows_ledger(conn) else {}
    except TargetError as error:
        if error.transient:
            raise
        return []
    for resource, fence in fences.items():
        ahead = _above_us(database, fence)
        if ahead is not None:
            detail = _refusal(resource, ahead).detail
            return [Finding(code="EPOCH_AHEAD", severity=FindingSeverity.ERROR, detail=detail)]
    return []


def _refusal(resource: str, ahead: FenceAhead) -> EpochAhead:
    return EpochAhead(
        f"the target's fence of {resource} is at {ahead.token} ({ahead.owner})", ours=ahead.epoch
    )


def fence_ahead(database: Database, conn: Connection, resource: str) -> FenceAhead | None:
    """The fence of a resource or of its parts where it is above us: another metadata has given its token."""
    return _above_us(database, greatest_fence(conn, resource) if shows_ledger(conn) else None)


def _above_us(database: Database, fence: tuple[int, str] | None) -> FenceAhead | None:
    if fence is None:
        return None
    # Read after the fence: a job of ours that raises it at this moment has its token from before.
    with database.reading() as db:
        epoch = current_epoch(db)
    token, owner = fence
    return FenceAhead(token, owner, epoch) if token > epoch else None


def _greatest_fence(conn: Connection, resources: Sequence[str]) -> tuple[int, str] | None:
    """The greatest token that any job has left at the fences of these resources, and its owner."""
    found = (greatest_fence(conn, resource) for resource in resources)
    return max((fence for fence in found if fence is not None), default=None)


def _mark(db: Session, store: Store, totals: JobTotals, *, kind: str, actor: str, now: datetime) -> None:
    """A row for a job of a lost future: it ended, and the ledger tells what it did."""
    result: dict[str, Any] = {"counts": "EXACT", "units": totals.units, "rows": totals.rows}
    job = Job(
        id=totals.job_id,
        kind=kind,
        store=store.id,
        state=JobState.ABORTED,
        reason=RECOVERED_FOREIGN,
        requested_by=actor,
        params={},
        result=result,
        created_at=totals.first_committed_at,
        started_at=totals.first_committed_at,
        finished_at=totals.last_committed_at,
        updated_at=now,
    )
    add_job(db, job, now=now, event=state_event(JobState.ABORTED, reason=RECOVERED_FOREIGN))
