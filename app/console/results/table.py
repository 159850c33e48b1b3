"""Which sentences a job's result is told in: one row for each model of a result, by its name.

Rules:
- a verb whose result has no row is a fault of this version: a test names it;
- what an earlier version has written, and no sentence fits, is shown as it is.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.console.results import archives, logs, nodes, purges, replicas
from app.jobs.batches.results import BatchResult
from app.jobs.batches.service import JOB_BATCH
from app.jobs.errors import JobKindUnknown
from app.verbs.table import verb_of

ODD: Final = (JobKindUnknown, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What is raised by parameters or a result of a version whose forms are others."""
Tell = Callable[[Mapping[str, Any]], Iterable[str]]
TELLS: Final[Mapping[str, Tell]] = {
    "PurgeResult": purges.purge,
    "RowsPurgeResult": purges.rows,
    "ChangelogPurgeResult": purges.changelog,
    "TombstonePurgeResult": purges.tombstones,
    "EventCleanupResult": purges.cleanup,
    "LogSwitchResult": nodes.switch,
    "SyncResult": nodes.sync,
    "WaitResult": nodes.wait,
    "SlonyFeedResult": nodes.feed,
    "ErasureResult": logs.erasure,
    "ErasureVerifyResult": logs.verification,
    "ExtinctionResult": logs.extinction,
    "ReplicationSessionResult": replicas.session,
    "AuditResult": replicas.audit,
    "ReplicaExportResult": replicas.exported,
    "ReplicaImportResult": replicas.imported,
    "ArchiveVerifyResult": archives.verification,
    "ArchiveRestoreResult": archives.restore,
    "BatchResult": archives.batch,
}


def tell(job: Mapping[str, Any]) -> list[str]:
    """The sentences of a job's result; none: it has none yet, or is of a kind that is not known here."""
    result = job["result"]
    if not result:
        return []
    try:
        model = BatchResult if job["kind"] == JOB_BATCH else verb_of(job["kind"], job["params"]).result
        return list(TELLS[model.__name__](result))
    except ODD:
        return []
