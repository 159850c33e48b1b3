"""Which function does what: job kinds, checks of stores, children of batches. Values, passed on."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sqlmodel import Session

from app.archives.api import JOB_RESTORE, JOB_VERIFY
from app.archives.models import RestoreInto
from app.archives.task import run_restore, run_verify
from app.auth.scopes import Scope
from app.db import Database
from app.erase.certificates.verify_service import JOB_ERASURE_VERIFY
from app.erase.certificates.verify_task import run_erasure_verify
from app.erase.check import check_environment
from app.erase.cycle.attempt import Workshop
from app.erase.cycle.plan_task import run_erasure_plan
from app.erase.cycle.silence import prove_erasure_silent
from app.erase.cycle.task import run_erasure
from app.erase.recover import is_environment_ahead, recover_environment
from app.erase.service import JOB_ERASURE
from app.events.batch import submit_cleanup_child, submit_switch_child
from app.events.check import check_node
from app.events.cleanup.models import JOB_CLEANUP
from app.events.cleanup.switch.models import JOB_SWITCH
from app.events.cleanup.switch.task import run_switch
from app.events.cleanup.task import prove_cleanup_silent, run_cleanup, run_cleanup_plan
from app.events.recover import is_node_ahead, recover_node
from app.events.waits.models import JOB_WAIT
from app.events.waits.task import prove_wait_silent, run_wait
from app.extinction.records import JOB_EXTINCTION
from app.extinction.scan.je_task import run_environment_extinction
from app.extinction.scan.plan_task import PLAN_EXTINCTION, run_extinction_plan
from app.extinction.scan.replica_scan import run_replica_scan
from app.extinction.status import known_extinctions
from app.jobs.batches.service import JOB_BATCH, Submitters, prove_children_silent, run_batch
from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobKindUnknown
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.queries import count_active_jobs
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import prove_silence, read_store_of
from app.jobs.running.suspension import store_key
from app.jobs.running.tasks import TaskKind, TaskKinds
from app.jobs.service import wake
from app.jobs.trimming import CHANGELOG, JOB_PURGE, Trimming
from app.protection.queries import count_active
from app.purge.batch import submit_child
from app.purge.check import check_store
from app.purge.recover import is_epoch_ahead, recover_store
from app.purge.task import prove_purge_silent, run_plan, run_purge
from app.replication.agreements.service import agreements_naming
from app.replication.agreements.sessions.service import JOB_SESSION
from app.replication.audits.models import JOB_AUDIT
from app.replication.audits.task import run_audit
from app.replication.check import check_replica, recover_replica
from app.replication.supplier.silence import prove_session_silent
from app.replication.supplier.task import run_session
from app.replication.trimming import service as trim_service
from app.replication.trimming.task import prove_trimming_silent, run_trim_plan, run_trimming
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.hooks import StoreHooks
from app.stores.rows import Store, StoreKind
from app.stores.service import stores_naming
from spark.erase.hands.hands import Hands


def task_kinds(engines: Engines, workshop: Workshop) -> TaskKinds:
    """Job kind to its task."""

    def take_hands(context: JobContext, directory: Path) -> Hands:
        return workshop.take_hands(context, "INLINE", directory=directory)[0]

    def plan(context: JobContext) -> Mapping[str, Any]:
        _require_known_plan(context)
        if _plans_extinction(context.job.params):
            return run_extinction_plan(context, take_hands=take_hands)
        if _plans_erasure(context.job.params):
            return run_erasure_plan(context, workshop=workshop)
        if _is_trimming(context.job.params):
            return run_trim_plan(context)
        if _plans_cleanup(context.job.params):
            return run_cleanup_plan(context)
        return run_plan(context)

    def purge(context: JobContext) -> Mapping[str, Any]:
        if _is_trimming(context.job.params):
            return run_trimming(context)
        return run_purge(context, engines=engines)

    def extinction(context: JobContext) -> Mapping[str, Any]:
        store = read_store_of(context)
        if store.kind == StoreKind.REPLICA:
            return run_replica_scan(context, store, engines=engines)
        return run_environment_extinction(context, store, take_hands=take_hands)

    return {
        JOB_EXTINCTION: TaskKind(run=extinction, prove_silence=prove_silence),
        JOB_PURGE: TaskKind(run=purge, prove_silence=_prove_purge_silent),
        JOB_PLAN: TaskKind(run=plan, prove_silence=prove_silence),
        JOB_ERASURE: TaskKind(
            run=partial(run_erasure, workshop=workshop), prove_silence=prove_erasure_silent
        ),
        JOB_ERASURE_VERIFY: TaskKind(
            run=partial(run_erasure_verify, workshop=workshop), prove_silence=prove_silence
        ),
        JOB_BATCH: TaskKind(
            run=partial(run_batch, submitters=BATCH_SUBMITTERS), prove_silence=prove_children_silent
        ),
        JOB_VERIFY: TaskKind(run=run_verify, prove_silence=prove_silence),
        JOB_RESTORE: TaskKind(run=run_restore, prove_silence=prove_silence),
        JOB_AUDIT: TaskKind(run=run_audit, prove_silence=prove_silence),
        JOB_WAIT: TaskKind(run=run_wait, prove_silence=prove_wait_silent),
        JOB_SESSION: TaskKind(run=partial(run_session, engines=engines), prove_silence=prove_session_silent),
        JOB_CLEANUP: TaskKind(run=partial(run_cleanup, engines=engines), prove_silence=prove_cleanup_silent),
        JOB_SWITCH: TaskKind(run=run_switch, prove_silence=prove_silence),
    }


def _require_known_plan(context: JobContext) -> None:
    if context.job.params.get("plan") not in _SCOPE_OF_PLAN:
        raise JobFailed("JOB_KIND_UNKNOWN", "this version does not know what the job is to plan")


def _plans_extinction(params: Mapping[str, Any]) -> bool:
    return params.get("plan") == PLAN_EXTINCTION


def _plans_erasure(params: Mapping[str, Any]) -> bool:
    return params.get("plan") == JOB_ERASURE


def _plans_cleanup(params: Mapping[str, Any]) -> bool:
    return params.get("plan") == JOB_CLEANUP


def _is_trimming(params: Mapping[str, Any]) -> bool:
    return params.get("kind") == CHANGELOG


def _prove_purge_silent(context: JobContext) -> None:
    prove = prove_trimming_silent if _is_trimming(context.job.params) else prove_purge_silent
    prove(context)


TRIMMING: Trimming = trim_service
"""What the route of purges hands a purge CHANGELOG to."""
BATCH_SUBMITTERS: Submitters = {
    JOB_PURGE: (Scope.PURGES_WRITE, partial(submit_child, trimming=TRIMMING)),
    JOB_CLEANUP: (Scope.EVENTS_WRITE, submit_cleanup_child),
    JOB_SWITCH: (Scope.EVENTS_WRITE, submit_switch_child),
}


_SCOPE_OF_KIND: Mapping[str, Scope] = {
    JOB_PURGE: Scope.PURGES_WRITE,
    JOB_RESTORE: Scope.PURGES_WRITE,
    JOB_ERASURE: Scope.ERASURE_WRITE,
    JOB_EXTINCTION: Scope.EXTINCTIONS_WRITE,
    JOB_SESSION: Scope.REPLICATION_WRITE,
    JOB_AUDIT: Scope.REPLICATION_WRITE,
    JOB_CLEANUP: Scope.EVENTS_WRITE,
    JOB_SWITCH: Scope.EVENTS_WRITE,
    JOB_WAIT: Scope.EVENTS_WAIT,
    JOB_VERIFY: Scope.EVIDENCE_VERIFY,
    JOB_ERASURE_VERIFY: Scope.EVIDENCE_VERIFY,
}
_SCOPE_OF_PLAN: Mapping[str | None, Scope] = {
    None: Scope.PURGES_WRITE,
    PLAN_EXTINCTION: Scope.EXTINCTIONS_WRITE,
    JOB_ERASURE: Scope.ERASURE_WRITE,
    JOB_CLEANUP: Scope.EVENTS_WRITE,
}
"""By what a PLAN job plans; a purge's parameters do not say."""


def scopes_of(kind: str, params: Mapping[str, Any]) -> frozenset[Scope]:
    """What a token needs to start a job again: what the request that made it needed.

    Raises: JobKindUnknown: a kind that this version does not start.
    """
    if kind == JOB_BATCH:
        known = {name: scope for name, (scope, _) in BATCH_SUBMITTERS.items()}
        scope = known.get(params.get("kind", ""))
    elif kind == JOB_PLAN:
        scope = _SCOPE_OF_PLAN.get(params.get("plan"))
    else:
        scope = _SCOPE_OF_KIND.get(kind)
    if scope is None:
        raise JobKindUnknown(f"this version does not know what a job of kind {kind} needs to be started")
    return frozenset({scope} | _more_scopes(kind, params))


def _more_scopes(kind: str, params: Mapping[str, Any]) -> set[Scope]:
    """What the request needed besides, by what it said."""
    if kind == JOB_RESTORE:
        into = RestoreInto.model_validate(params["into"])
        return {Scope.ADMIN} if into.live else {Scope.STORES_WRITE} if into.file is not None else set()
    if kind == JOB_SESSION and params["discard_consumer_changes"]:
        return {Scope.ADMIN}
    return set()


def _count_users(db: Session, store_id: str) -> int:
    """Jobs and protections of a store that have not ended: its target cannot change under them."""
    return count_active_jobs(db, store_id) + count_active(db, store_id)


def _count_extinctions(db: Session, store: Store) -> int:
    """Of an environment; a replica's lie in its target."""
    if store.kind != StoreKind.JE:
        return 0
    known = known_extinctions(db, store.id)
    return len({each.id for each in (*known.holding, *known.secondary)})


def recover(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above a store's target; accept what a restored replica has lost.

    Raises: ServiceError: the target cannot be asked.
    """
    by_kind = {
        StoreKind.JE: recover_environment,
        StoreKind.REPLICA: recover_replica,
        StoreKind.SLONY: recover_node,
    }
    return by_kind.get(StoreKind(store.kind), recover_store)(database, settings, store, actor)


def secret_users(db: Session, reference: str) -> list[str]:
    """The stores and agreements that name a secret."""
    return [*stores_naming(db, reference), *agreements_naming(db, reference)]


def is_ahead(database: Database, store: Store, settings: Settings) -> bool:
    """Whether a store's target can be asked and has seen a greater epoch than ours."""
    by_kind = {StoreKind.JE: is_environment_ahead, StoreKind.SLONY: is_node_ahead}
    return by_kind.get(StoreKind(store.kind), is_epoch_ahead)(database, store, settings)


STORE_HOOKS = StoreHooks(
    count_active_jobs=_count_users,
    count_extinctions=_count_extinctions,
    resumed=lambda db, store, now: wake(db, store_key(store), now=now),
    checks={
        StoreKind.SYMMETRICDS: check_store,
        StoreKind.JE: lambda _, store, settings, now: check_environment(store, settings, now),
        StoreKind.REPLICA: check_replica,
        StoreKind.SLONY: check_node,
    },
    recover=recover,
)
