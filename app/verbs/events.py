"""Slony-I: cleanups of a node's catalog, log switches, SYNCs, waits for confirmations."""

from functools import partial

from app.auth.scopes import Scope
from app.events.batch import submit_cleanup_child, submit_switch_child, submit_sync_child
from app.events.cleanup.models import JOB_CLEANUP, CleanupParams, CleanupPlanRead, CleanupRequest
from app.events.cleanup.results import EventCleanupResult, LogSwitchResult
from app.events.cleanup.switch.models import JOB_SWITCH, SwitchParams, SwitchRequest
from app.events.cleanup.tick import tick_once
from app.events.syncs.models import JOB_SYNC, SyncParams, SyncRequest, SyncResult
from app.events.waits.models import JOB_WAIT, WaitParams, WaitRequest, WaitResult
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import prove_silence
from app.stores.models import StoreKind
from app.verbs.verb import NOWHERE, Limits, Loop, Plan, Recurrence, Task, Tools, Verb

# -- what runs: its modules are loaded with the first job of the kind


def _cleanup(tools: Tools) -> Task:
    from app.events.cleanup.task import run_cleanup

    return partial(run_cleanup, engines=tools.engines)


def _prove_cleanup(context: JobContext) -> None:
    from app.events.cleanup.task import prove_cleanup_silent

    prove_cleanup_silent(context)


def _cleanup_plan(_tools: Tools) -> Task:
    from app.events.cleanup.task import run_cleanup_plan

    return run_cleanup_plan


def _switch(_tools: Tools) -> Task:
    from app.events.cleanup.switch.task import run_switch

    return run_switch


def _sync(_tools: Tools) -> Task:
    from app.events.syncs.task import run_sync

    return run_sync


def _wait(_tools: Tools) -> Task:
    from app.events.waits.task import run_wait

    return run_wait


def _prove_wait(context: JobContext) -> None:
    from app.events.waits.task import prove_wait_silent

    prove_wait_silent(context)


# -- the rows

CLEANUP = Verb(
    kind=JOB_CLEANUP,
    stores=frozenset({StoreKind.SLONY}),
    scope=Scope.EVENTS_WRITE,
    request=CleanupRequest,
    params=CleanupParams,
    result=EventCleanupResult,
    task=_cleanup,
    proof=_prove_cleanup,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SLONY}),
    plan=Plan(params=CleanupParams, result=CleanupPlanRead, task=_cleanup_plan),
    recurrence=Recurrence(Loop.BEAT, lambda: tick_once),
    batch=submit_cleanup_child,
)
SWITCH = Verb(
    kind=JOB_SWITCH,
    stores=frozenset({StoreKind.SLONY}),
    scope=Scope.EVENTS_WRITE,
    request=SwitchRequest,
    params=SwitchParams,
    result=LogSwitchResult,
    task=_switch,
    proof=prove_silence,
    limits=Limits.CONFIRMED_BY_ALL,
    throttled_at=NOWHERE,
    batch=submit_switch_child,
)
SYNC = Verb(
    kind=JOB_SYNC,
    stores=frozenset({StoreKind.SLONY}),
    scope=Scope.EVENTS_WRITE,
    request=SyncRequest,
    params=SyncParams,
    result=SyncResult,
    task=_sync,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    batch=submit_sync_child,
)
WAIT = Verb(
    kind=JOB_WAIT,
    stores=frozenset({StoreKind.SLONY}),
    scope=Scope.EVENTS_WAIT,
    request=WaitRequest,
    params=WaitParams,
    result=WaitResult,
    task=_wait,
    proof=_prove_wait,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    wait_max=None,
)
VERBS = (CLEANUP, SWITCH, SYNC, WAIT)
"""All of the domain."""
