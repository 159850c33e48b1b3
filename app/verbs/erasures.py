"""Erasure of obsolete data in JE environments, and its verification."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from app.auth.scopes import Scope
from app.db import Database
from app.erase.certificates.models import VerifyRequest
from app.erase.certificates.results import ErasureVerifyParams, ErasureVerifyResult
from app.erase.certificates.scheduled import submit_newest_verify
from app.erase.certificates.verify_service import JOB_ERASURE_VERIFY
from app.erase.cycle.batch import submit_cycle_child
from app.erase.cycle.tick import Look
from app.erase.models import CycleParams, CycleRequest, ErasurePlanRead
from app.erase.results import ErasureResult
from app.erase.service import JOB_ERASURE, params_of
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import AN_HOUR
from app.jobs.running.sql_target import prove_silence
from app.settings import Settings
from app.stores.models import StoreKind
from app.verbs.verb import BOUNDS, NOWHERE, Limits, Loop, Plan, Recurrence, Task, Tools, Verb


def _look(
    database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None]
) -> Sequence[str]:
    return Look(database, settings, now, changed).run()


# -- what runs: its modules are loaded with the first job of the kind


def _erasure(tools: Tools) -> Task:
    from app.erase.cycle.task import run_erasure

    return partial(run_erasure, workshop=tools.workshop)


def _erasure_plan(tools: Tools) -> Task:
    from app.erase.cycle.plan_task import run_erasure_plan

    return partial(run_erasure_plan, workshop=tools.workshop)


def _prove_erasure(context: JobContext) -> None:
    from app.erase.cycle.silence import prove_erasure_silent

    prove_erasure_silent(context)


def _verify(tools: Tools) -> Task:
    from app.erase.certificates.verify_task import run_erasure_verify

    return partial(run_erasure_verify, workshop=tools.workshop)


# -- the rows

ERASURE = Verb(
    kind=JOB_ERASURE,
    stores=frozenset({StoreKind.JE}),
    scope=Scope.ERASURE_WRITE,
    request=CycleRequest,
    prepare=params_of,
    params=CycleParams,
    result=ErasureResult,
    task=_erasure,
    proof=_prove_erasure,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.JE}),
    bounds=BOUNDS - {"rows_per_s"},
    plan=Plan(
        params=CycleParams,
        result=ErasurePlanRead,
        task=_erasure_plan,
    ),
    recurrence=Recurrence(Loop.ERASER, lambda: _look),
    batch=submit_cycle_child,
)
VERIFY = Verb(
    kind=JOB_ERASURE_VERIFY,
    stores=NOWHERE,
    scope=Scope.EVIDENCE_VERIFY,
    request=VerifyRequest,
    params=ErasureVerifyParams,
    result=ErasureVerifyResult,
    task=_verify,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    scheduled=submit_newest_verify,
    wait_max=AN_HOUR,
)
VERBS = (ERASURE, VERIFY)
"""All of the domain."""
