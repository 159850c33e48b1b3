"""Replication: sessions with consumers, audits of both sides, exports and imports of replicas."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from app.auth.scopes import Scope
from app.db import Database
from app.jobs.running.context import JobContext
from app.jobs.running.deadlines import AN_HOUR
from app.jobs.running.sql_target import prove_silence
from app.kit.rests import Rest
from app.replication.agreements.sessions.models import SessionParams, SessionRequest
from app.replication.agreements.sessions.scheduled import submit_scheduled_session
from app.replication.agreements.sessions.service import JOB_SESSION, params_of
from app.replication.agreements.silent import SilentConsumers
from app.replication.agreements.tick import Look
from app.replication.audits.models import JOB_AUDIT, AuditParams, AuditRequest, AuditResult
from app.replication.audits.submitting import submit_scheduled_audit
from app.replication.snapshots.models import (
    JOB_EXPORT,
    JOB_IMPORT,
    ReplicaExportParams,
    ReplicaExportRequest,
    ReplicaExportResult,
    ReplicaImportParams,
    ReplicaImportRequest,
    ReplicaImportResult,
)
from app.replication.snapshots.scheduled import submit_scheduled_export
from app.replication.supplier.results import ReplicationSessionResult
from app.settings import Settings
from app.stores.models import StoreKind
from app.verbs.verb import NOWHERE, Limits, Loop, Params, Recurrence, Scopes, Submit, Task, Tools, Verb


def _of_a_discard(params: Params) -> Scopes:
    """To give up changes that only the consumer has is an admin's word."""
    return frozenset({Scope.ADMIN} if params.get("discard_consumer_changes") else ())


def _look_at_agreements() -> Submit:
    rests: dict[str, Rest] = {}
    silent = SilentConsumers()

    def look(
        database: Database, settings: Settings, *, now: datetime, changed: Callable[[str], None]
    ) -> Sequence[str]:
        return Look(database, settings, now, changed, rests, silent).run()

    return look


# -- what runs: its modules are loaded with the first job of the kind


def _session(tools: Tools) -> Task:
    from app.replication.supplier.task import run_session

    return partial(run_session, engines=tools.engines)


def _prove_session(context: JobContext) -> None:
    from app.replication.supplier.silence import prove_session_silent

    prove_session_silent(context)


def _export(_tools: Tools) -> Task:
    from app.replication.snapshots.task import run_export

    return run_export


def _prove_export(context: JobContext) -> None:
    from app.replication.snapshots.task import prove_export_silent

    prove_export_silent(context)


def _import(_tools: Tools) -> Task:
    from app.replication.snapshots.task import run_import

    return run_import


def _audit(tools: Tools) -> Task:
    from app.replication.audits.task import run_audit

    return partial(run_audit, engines=tools.engines)


# -- the rows

SESSION = Verb(
    kind=JOB_SESSION,
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.REPLICATION_WRITE,
    more_scopes=_of_a_discard,
    request=SessionRequest,
    prepare=params_of,
    params=SessionParams,
    result=ReplicationSessionResult,
    task=_session,
    proof=_prove_session,
    limits=Limits.OF_THE_CONSUMER,
    throttled_at=frozenset({StoreKind.REPLICA}),
    recurrence=Recurrence(Loop.SUPPLIER, _look_at_agreements),
    scheduled=submit_scheduled_session,
)
EXPORT = Verb(
    kind=JOB_EXPORT,
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.ADMIN,
    request=ReplicaExportRequest,
    params=ReplicaExportParams,
    result=ReplicaExportResult,
    task=_export,
    proof=_prove_export,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    scheduled=submit_scheduled_export,
    wait_max=AN_HOUR,
)
IMPORT = Verb(
    kind=JOB_IMPORT,
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.ADMIN,
    request=ReplicaImportRequest,
    params=ReplicaImportParams,
    result=ReplicaImportResult,
    task=_import,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    wait_max=AN_HOUR,
)
AUDIT = Verb(
    kind=JOB_AUDIT,
    stores=frozenset({StoreKind.REPLICA}),
    scope=Scope.REPLICATION_WRITE,
    request=AuditRequest,
    params=AuditParams,
    result=AuditResult,
    task=_audit,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    scheduled=submit_scheduled_audit,
    wait_max=AN_HOUR,
)
