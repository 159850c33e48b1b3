"""Which classes a kind of job has: what it was told (`params_of`), what it tells at its end (`result_of`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lethe_client import job_params as told
from lethe_client import job_results as tells
from lethe_client import rows
from lethe_client.decoding import decode
from lethe_client.erasure_results import ErasurePlan
from lethe_client.extinctions import ExtinctionPlan
from lethe_client.purge_results import Plan
from lethe_client.results import Job, Result
from lethe_client.slony_results import CleanupPlan


@dataclass(frozen=True, slots=True)
class JobClasses:
    """The classes of a kind of job: of its parameters, and of its result."""

    params: type[Result]
    result: type[Result]


KINDS: Final[Mapping[str, JobClasses]] = {
    "PURGE": JobClasses(told.PurgeParams, tells.PurgeResult),
    "PURGE CHANGELOG": JobClasses(told.ChangelogPurgeParams, tells.ChangelogPurgeResult),
    "PURGE TOMBSTONES": JobClasses(told.TombstonePurgeParams, tells.TombstonePurgeResult),
    "PURGE ROWS": JobClasses(rows.RowsPurgeParams, rows.RowsPurgeResult),
    "ERASURE": JobClasses(told.ErasureParams, tells.ErasureResult),
    "ERASURE_VERIFY": JobClasses(told.ErasureVerifyParams, tells.ErasureVerifyResult),
    "EXTINCTION": JobClasses(told.ExtinctionParams, tells.ExtinctionResult),
    "REPLICATION_SESSION": JobClasses(told.ReplicationSessionParams, tells.ReplicationSessionResult),
    "AUDIT": JobClasses(told.AuditParams, tells.AuditResult),
    "REPLICA_EXPORT": JobClasses(told.ReplicaExportParams, tells.ReplicaExportResult),
    "REPLICA_IMPORT": JobClasses(told.ReplicaImportParams, tells.ReplicaImportResult),
    "SLONY_FEED": JobClasses(told.SlonyFeedParams, tells.SlonyFeedResult),
    "EVENT_CLEANUP": JobClasses(told.EventCleanupParams, tells.EventCleanupResult),
    "LOG_SWITCH": JobClasses(told.LogSwitchParams, tells.LogSwitchResult),
    "EVENT_SYNC": JobClasses(told.EventSyncParams, tells.EventSyncResult),
    "EVENT_WAIT": JobClasses(told.EventWaitParams, tells.EventWaitResult),
    "ARCHIVE_VERIFY": JobClasses(told.ArchiveVerifyParams, tells.ArchiveVerifyResult),
    "ARCHIVE_RESTORE": JobClasses(told.ArchiveRestoreParams, tells.ArchiveRestoreResult),
    "BATCH": JobClasses(told.BatchParams, tells.BatchResult),
    "PLAN": JobClasses(told.PurgeParams, Plan),
    "PLAN ERASURE": JobClasses(told.ErasureParams, ErasurePlan),
    "PLAN EXTINCTION": JobClasses(told.ExtinctionPlanParams, ExtinctionPlan),
    "PLAN EVENT_CLEANUP": JobClasses(told.EventCleanupParams, CleanupPlan),
}
"""By kind, and by act where a kind has several."""


def act_of(job: Job) -> str:
    """The kind of a job, with the act where a kind has several: `PURGE CHANGELOG`, `PLAN ERASURE`."""
    says = {"PURGE": "kind", "PLAN": "plan"}.get(job.kind)
    return f"{job.kind} {job.params.get(says)}" if says else job.kind


def _classes(act: str, job: Job) -> JobClasses | None:
    return KINDS.get(act, KINDS.get(job.kind))


def params_of(job: Job) -> Result | None:
    """The parameters of a job as a value of its kind; None: its kind is not known here.

    `job.params` is the JSON object itself, of any kind and version.

    Raises: UnexpectedAnswer: a version of the service that is too old has written them.
    """
    act = act_of(job)
    if act == "PLAN None":  # a purge's parameters do not say what is planned
        act = f"PURGE {job.params.get('kind')}"
    kind = _classes(act, job)
    return None if kind is None else decode(kind.params, job.params)


def result_of(job: Job) -> Result | None:
    """The result of a job as a value of its kind; None: it has none, or its kind is not known here.

    `job.result` is the JSON object itself, of any kind and version.

    Raises: UnexpectedAnswer: a version of the service that is too old has written it.
    """
    kind = _classes(act_of(job), job)
    return None if job.result is None or kind is None else decode(kind.result, job.result)
