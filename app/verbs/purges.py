"""Purges: of a SymmetricDS store's tables, of a replica's changelog and tombstones, of rows of any table."""

from functools import partial

from app.auth.scopes import Scope
from app.jobs.running.context import JobContext
from app.purge import purging
from app.purge.batch import submit_child
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeParams, PurgePlanRead, PurgeRequest
from app.purge.results import PurgeResult
from app.purge.tick import tick_once
from app.replication.tombstones import service as tombstone_service
from app.replication.tombstones.models import TombstoneParams
from app.replication.tombstones.results import TombstonePurgeResult
from app.replication.tombstones.tick import tombstone_tick_once
from app.replication.trimming import service as trim_service
from app.replication.trimming.models import TrimParams
from app.replication.trimming.results import ChangelogPurgeResult
from app.replication.trimming.tick import trim_tick_once
from app.rows import service as rows_service
from app.rows.models import ROWS as ROWS_KIND
from app.rows.models import RowsParams, RowsPlanRead
from app.rows.results import RowsPurgeResult
from app.stores.models import StoreKind
from app.sweeps.models import ChangelogPlanRead, TombstonePlanRead
from app.sweeps.purging import CHANGELOG, JOB_PURGE, TOMBSTONES, Purgings
from app.verbs.verb import Limits, Loop, Plan, Recurrence, Task, Tools, Verb

PURGINGS: Purgings = {
    **purging.PURGINGS,
    CHANGELOG: trim_service.PURGING,
    TOMBSTONES: tombstone_service.PURGING,
    ROWS_KIND: rows_service.PURGING,
}
"""What the route of all purges knows of each kind."""
SUBMIT_CHILD = partial(submit_child, purgings=PURGINGS)

# -- what runs: its modules are loaded with the first job of the kind


def _purge(tools: Tools) -> Task:
    from app.purge.task import run_purge

    return partial(run_purge, engines=tools.engines)


def _prove_purge(context: JobContext) -> None:
    from app.purge.task import prove_purge_silent

    prove_purge_silent(context)


def _purge_plan(_tools: Tools) -> Task:
    from app.purge.task import run_plan

    return run_plan


def _trimming(_tools: Tools) -> Task:
    from app.replication.trimming.task import run_trimming

    return run_trimming


def _prove_trimming(context: JobContext) -> None:
    from app.replication.trimming.task import prove_trimming_silent

    prove_trimming_silent(context)


def _trim_plan(_tools: Tools) -> Task:
    from app.replication.trimming.task import run_trim_plan

    return run_trim_plan


def _tombstone_purge(_tools: Tools) -> Task:
    from app.replication.tombstones.task import run_tombstone_purge

    return run_tombstone_purge


def _prove_tombstones(context: JobContext) -> None:
    from app.replication.tombstones.task import prove_tombstones_silent

    prove_tombstones_silent(context)


def _tombstone_plan(_tools: Tools) -> Task:
    from app.replication.tombstones.task import run_tombstone_plan

    return run_tombstone_plan


def _rows_purge(tools: Tools) -> Task:
    from app.rows.task import run_rows_purge

    return partial(run_rows_purge, engines=tools.engines)


def _prove_rows(context: JobContext) -> None:
    from app.rows.task import prove_rows_silent

    prove_rows_silent(context)


def _rows_plan(_tools: Tools) -> Task:
    from app.rows.task import run_rows_plan

    return run_rows_plan


# -- the rows

TABLES = Verb(
    kind=JOB_PURGE,
    acts=frozenset(kind.value for kind in KINDS),
    stores=frozenset({StoreKind.SYMMETRICDS}),
    scope=Scope.PURGES_WRITE,
    request=PurgeRequest,
    prepare=purging.look,
    params=PurgeParams,
    result=PurgeResult,
    task=_purge,
    proof=_prove_purge,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SYMMETRICDS}),
    plan=Plan(params=PurgeParams, result=PurgePlanRead, task=_purge_plan),
    recurrence=Recurrence(Loop.BEAT, lambda: tick_once),
    batch=SUBMIT_CHILD,
)
CHANGELOGS = Verb(
    kind=JOB_PURGE,
    acts=frozenset({CHANGELOG}),
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.PURGES_WRITE,
    request=PurgeRequest,
    prepare=trim_service.look,
    params=TrimParams,
    result=ChangelogPurgeResult,
    task=_trimming,
    proof=_prove_trimming,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.REPLICA}),
    plan=Plan(params=TrimParams, result=ChangelogPlanRead, task=_trim_plan),
    recurrence=Recurrence(Loop.BEAT, lambda: trim_tick_once),
    batch=SUBMIT_CHILD,
)
BURIALS = Verb(
    kind=JOB_PURGE,
    acts=frozenset({TOMBSTONES}),
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.PURGES_WRITE,
    request=PurgeRequest,
    prepare=tombstone_service.look,
    params=TombstoneParams,
    result=TombstonePurgeResult,
    task=_tombstone_purge,
    proof=_prove_tombstones,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.REPLICA}),
    plan=Plan(params=TombstoneParams, result=TombstonePlanRead, task=_tombstone_plan),
    recurrence=Recurrence(Loop.BEAT, lambda: tombstone_tick_once),
    batch=SUBMIT_CHILD,
)
ROWS = Verb(
    kind=JOB_PURGE,
    acts=frozenset({ROWS_KIND}),
    stores=frozenset({StoreKind.SQL}),
    scope=Scope.PURGES_WRITE,
    request=PurgeRequest,
    prepare=rows_service.look,
    params=RowsParams,
    result=RowsPurgeResult,
    task=_rows_purge,
    proof=_prove_rows,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SQL}),
    plan=Plan(params=RowsParams, result=RowsPlanRead, task=_rows_plan),
    batch=SUBMIT_CHILD,
)
VERBS = (TABLES, CHANGELOGS, BURIALS, ROWS)
"""All of the domain."""
