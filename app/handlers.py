"""Which function does what: job kinds, checks of stores, children of batches. Values, passed on."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from sqlmodel import Session

from app.archives.api import JOB_RESTORE, JOB_VERIFY
from app.archives.models import RestoreInto
from app.archives.task import run_restore, run_verify
from app.auth.scopes import Scope
from app.db import Database
from app.erase.attempt import Workshop
from app.erase.check import check_environment
from app.erase.plan_task import run_erasure_plan
from app.erase.recover import is_environment_ahead, recover_environment
from app.erase.service import JOB_ERASURE
from app.erase.silence import prove_erasure_silent
from app.erase.task import run_erasure
from app.erase.verify_service import JOB_ERASURE_VERIFY
from app.erase.verify_task import run_erasure_verify
from app.jobs.batch import JOB_BATCH, prove_children_silent, run_batch
from app.jobs.batch_api import ChildSubmitter
from app.jobs.context import JobContext
from app.jobs.engine_choice import Engines
from app.jobs.queries import count_active_jobs
from app.jobs.service import wake
from app.jobs.sql_target import prove_silence
from app.jobs.suspension import store_key
from app.jobs.tasks import TaskKind, TaskKinds
from app.protection.queries import count_active
from app.purge.batch import submit_child
from app.purge.check import check_store
from app.purge.recover import recover_store
from app.purge.service import JOB_PLAN, JOB_PURGE, is_epoch_ahead
from app.purge.task import prove_purge_silent, run_plan, run_purge
from app.settings import Settings
from app.stores.findings import RecoveryRead
from app.stores.hooks import StoreHooks
from app.stores.models import Store, StoreKind


def task_kinds(engines: Engines, workshop: Workshop) -> TaskKinds:
    """Job kind to its task."""

    def plan(context: JobContext) -> Mapping[str, Any]:
        if _plans_erasure(context.job.params):
            return run_erasure_plan(context, workshop=workshop)
        return run_plan(context)

    return {
        JOB_PURGE: TaskKind(run=partial(run_purge, engines=engines), prove_silence=prove_purge_silent),
        JOB_PLAN: TaskKind(run=plan, prove_silence=prove_silence),
        JOB_ERASURE: TaskKind(
            run=partial(run_erasure, workshop=workshop), prove_silence=prove_erasure_silent
        ),
        JOB_ERASURE_VERIFY: TaskKind(
            run=partial(run_erasure_verify, workshop=workshop), prove_silence=prove_silence
        ),
        JOB_BATCH: TaskKind(run=run_batch, prove_silence=prove_children_silent),
        JOB_VERIFY: TaskKind(run=run_verify, prove_silence=prove_silence),
        JOB_RESTORE: TaskKind(run=run_restore, prove_silence=prove_silence),
    }


def _plans_erasure(params: Mapping[str, Any]) -> bool:
    return params.get("plan") == JOB_ERASURE


BATCH_SUBMITTERS: Mapping[str, tuple[Scope, ChildSubmitter]] = {JOB_PURGE: (Scope.PURGES_WRITE, submit_child)}


def scopes_of(kind: str, params: Mapping[str, Any]) -> frozenset[Scope]:
    """What a token needs to start a job again: what the request that made it needed."""
    if kind == JOB_BATCH:
        return frozenset({BATCH_SUBMITTERS[params["kind"]][0]})
    if kind == JOB_RESTORE:
        into = RestoreInto.model_validate(params["into"])
        more = {Scope.ADMIN} if into.live else {Scope.STORES_WRITE} if into.file is not None else set()
        return frozenset({Scope.PURGES_WRITE} | more)
    if kind == JOB_ERASURE or (kind == JOB_PLAN and _plans_erasure(params)):
        return frozenset({Scope.ERASURE_WRITE})
    return frozenset({Scope.JOBS_READ if kind in (JOB_VERIFY, JOB_ERASURE_VERIFY) else Scope.PURGES_WRITE})


def _count_users(db: Session, store_id: str) -> int:
    """Jobs and protections of a store that have not ended: its target cannot change under them."""
    return count_active_jobs(db, store_id) + count_active(db, store_id)


def recover(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above a store's target.

    Raises: ServiceError: the target cannot be asked.
    """
    by_kind = recover_environment if store.kind == StoreKind.JE else recover_store
    return by_kind(database, settings, store, actor)


def is_ahead(database: Database, store: Store, settings: Settings) -> bool:
    """Whether a store's target can be asked and has seen a greater epoch than ours."""
    by_kind = is_environment_ahead if store.kind == StoreKind.JE else is_epoch_ahead
    return by_kind(database, store, settings)


STORE_HOOKS = StoreHooks(
    count_active_jobs=_count_users,
    resumed=lambda db, store, now: wake(db, store_key(store), now=now),
    checks={StoreKind.SYMMETRICDS: check_store, StoreKind.JE: check_environment},
    recover=recover,
)
