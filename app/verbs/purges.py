"""Purges: of a SymmetricDS store's tables, of a replica's changelog and tombstones, of rows of any table."""

from functools import partial

from app.auth.scopes import Scope
from app.purge import purging
from app.purge.batch import submit_child
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeParams, PurgePlanRead, PurgeRequest
from app.purge.results import PurgeResult
from app.purge.task import prove_purge_silent, run_plan, run_purge
from app.purge.tick import tick_once
from app.replication.tombstones import service as tombstone_service
from app.replication.tombstones.models import TombstoneParams
from app.replication.tombstones.results import TombstonePurgeResult
from app.replication.tombstones.task import (
    prove_tombstones_silent,
    run_tombstone_plan,
    run_tombstone_purge,
)
from app.replication.tombstones.tick import tombstone_tick_once
from app.replication.trimming import service as trim_service
from app.replication.trimming.models import TrimParams
from app.replication.trimming.results import ChangelogPurgeResult
from app.replication.trimming.task import prove_trimming_silent, run_trim_plan, run_trimming
from app.replication.trimming.tick import trim_tick_once
from app.rows import service as rows_service
from app.rows.models import ROWS as ROWS_KIND
from app.rows.models import RowsParams, RowsPlanRead
from app.rows.results import RowsPurgeResult
from app.rows.task import prove_rows_silent, run_rows_plan, run_rows_purge
from app.stores.models import StoreKind
from app.sweeps.models import ChangelogPlanRead, TombstonePlanRead
from app.sweeps.purging import CHANGELOG, JOB_PURGE, TOMBSTONES, Purgings
from app.verbs.verb import Limits, Loop, Plan, Recurrence, Verb

PURGINGS: Purgings = {
    **purging.PURGINGS,
    CHANGELOG: trim_service.PURGING,
    TOMBSTONES: tombstone_service.PURGING,
    ROWS_KIND: rows_service.PURGING,
}
"""What the route of all purges knows of each kind."""
SUBMIT_CHILD = partial(submit_child, purgings=PURGINGS)

TABLES = Verb(
    kind=JOB_PURGE,
    acts=frozenset(kind.value for kind in KINDS),
    stores=frozenset({StoreKind.SYMMETRICDS}),
    scope=Scope.PURGES_WRITE,
    request=PurgeRequest,
    prepare=purging.look,
    params=PurgeParams,
    result=PurgeResult,
    task=lambda tools: partial(run_purge, engines=tools.engines),
    proof=prove_purge_silent,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SYMMETRICDS}),
    plan=Plan(params=PurgeParams, result=PurgePlanRead, task=lambda _tools: run_plan),
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
    task=lambda _tools: run_trimming,
    proof=prove_trimming_silent,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.REPLICA}),
    plan=Plan(params=TrimParams, result=ChangelogPlanRead, task=lambda _tools: run_trim_plan),
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
    task=lambda _tools: run_tombstone_purge,
    proof=prove_tombstones_silent,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.REPLICA}),
    plan=Plan(params=TombstoneParams, result=TombstonePlanRead, task=lambda _tools: run_tombstone_plan),
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
    task=lambda tools: partial(run_rows_purge, engines=tools.engines),
    proof=prove_rows_silent,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SQL}),
    plan=Plan(params=RowsParams, result=RowsPlanRead, task=lambda _tools: run_rows_plan),
    batch=SUBMIT_CHILD,
)
VERBS = (TABLES, CHANGELOGS, BURIALS, ROWS)
"""All of the domain."""
