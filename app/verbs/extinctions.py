"""Extinctions: records that are discarded by key; a replica removes them, JE erases them in its cycles."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from app.auth.scopes import Scope
from app.extinction.models import ExtinctionPlanRead, ExtinctionRequest, PlanParams
from app.extinction.records import JOB_EXTINCTION
from app.extinction.results import ExtinctionParams, ExtinctionResult
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import prove_silence, read_store_of
from app.stores.models import StoreKind
from app.verbs.verb import Limits, Plan, Task, Tools, Verb
from spark.erase.hands.hands import Hands


def _hands(tools: Tools) -> Any:
    def take_hands(context: JobContext, directory: Path) -> Hands:
        return tools.workshop.take_hands(context, "INLINE", directory=directory)[0]

    return take_hands


def _task(tools: Tools) -> Task:
    from app.extinction.scan.je_task import run_environment_extinction
    from app.extinction.scan.replica_scan import run_replica_scan

    by_kind = {
        StoreKind.REPLICA: partial(run_replica_scan, engines=tools.engines),
        StoreKind.JE: partial(run_environment_extinction, take_hands=_hands(tools)),
    }

    def run(context: JobContext) -> Mapping[str, Any]:
        store = read_store_of(context)
        return by_kind[StoreKind(store.kind)](context, store)

    return run


def _plan_task(tools: Tools) -> Task:
    from app.extinction.scan.plan_task import run_extinction_plan

    return partial(run_extinction_plan, take_hands=_hands(tools))


EXTINCTION = Verb(
    kind=JOB_EXTINCTION,
    stores=frozenset({StoreKind.REPLICA, StoreKind.JE}),
    scope=Scope.EXTINCTIONS_WRITE,
    request=ExtinctionRequest,
    params=ExtinctionParams,
    result=ExtinctionResult,
    task=_task,
    proof=prove_silence,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.REPLICA}),
    plan=Plan(
        params=PlanParams,
        result=ExtinctionPlanRead,
        task=_plan_task,
    ),
)
