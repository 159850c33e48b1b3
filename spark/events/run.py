"""Units of a cleanup as the work of an engine's workers: threads of the service or tasks of Spark."""

from spark.events.unit import CleanupUnit, UnitResult, run_unit
from spark.targets.connection import SessionLimits, Target
from spark.targets.work import UnitWork


def cleanup_work(
    target: Target,
    *,
    limits: SessionLimits,
    application_name: str,
    advisory_key: str | None = None,
    folder: str | None = None,
) -> UnitWork[CleanupUnit, UnitResult]:
    """What a worker does with units; picklable.

    Which units may be under way at once is told by `CleanupWalk`; all others wait for the cluster's lock.

    Args:
        advisory_key: where the target has no ledger.
        folder: of the archive; None: nothing is kept.
    """
    return UnitWork(
        target=target,
        limits=limits,
        application_name=application_name,
        run=run_unit,
        advisory_key=advisory_key,
        folder=folder,
    )
