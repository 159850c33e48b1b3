"""Slony-I: cleanups of a node's catalog, log switches, SYNCs, waits for confirmations."""

from functools import partial

from app.auth.scopes import Scope
from app.events.batch import submit_cleanup_child, submit_switch_child, submit_sync_child
from app.events.cleanup.models import JOB_CLEANUP, CleanupParams, CleanupPlanRead, CleanupRequest
from app.events.cleanup.results import EventCleanupResult, LogSwitchResult
from app.events.cleanup.switch.models import JOB_SWITCH, SwitchParams, SwitchRequest
from app.events.cleanup.switch.task import run_switch
from app.events.cleanup.task import prove_cleanup_silent, run_cleanup, run_cleanup_plan
from app.events.cleanup.tick import tick_once
from app.events.syncs.models import JOB_SYNC, SyncParams, SyncRequest, SyncResult
from app.events.syncs.task import run_sync
from app.events.waits.models import JOB_WAIT, WaitParams, WaitRequest, WaitResult
from app.events.waits.task import prove_wait_silent, run_wait
from app.jobs.running.sql_target import prove_silence
from app.stores.models import StoreKind
from app.verbs.verb import NOWHERE, Limits, Loop, Plan, Recurrence, Verb

CLEANUP = Verb(
    kind=JOB_CLEANUP,
    stores=frozenset({StoreKind.SLONY}),
    scope=Scope.EVENTS_WRITE,
    request=CleanupRequest,
    params=CleanupParams,
    result=EventCleanupResult,
    task=lambda tools: partial(run_cleanup, engines=tools.engines),
    proof=prove_cleanup_silent,
    limits=Limits.BEFORE_THE_FIRST_DELETE,
    throttled_at=frozenset({StoreKind.SLONY}),
    plan=Plan(params=CleanupParams, result=CleanupPlanRead, task=lambda _tools: run_cleanup_plan),
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
    task=lambda _tools: run_switch,
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
    task=lambda _tools: run_sync,
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
    task=lambda _tools: run_wait,
    proof=prove_wait_silent,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    wait_max=None,
)
VERBS = (CLEANUP, SWITCH, SYNC, WAIT)
"""All of the domain."""
