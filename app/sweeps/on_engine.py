"""Units of windows on the workers of an engine: the sweep of every kind that notes its windows."""

from collections.abc import Callable
from typing import Any, Final

from app.jobs.engines.choice import Engines, Work
from app.stores.targets import place_of, session_limits, target_of
from app.sweeps.archive import folder_of
from app.sweeps.frame import Attempt
from app.sweeps.loop import sweep_on
from app.sweeps.windows import LoopState, WindowPlan, Windows
from spark.targets.connection import Connection
from spark.targets.silence import application_name
from spark.targets.target import is_on_this_machine
from spark.targets.transaction import AnyUnit, UnitResult
from spark.targets.work import UnitWork

UNITS_NAME: Final = "units"


def sweep_windows(
    attempt: Attempt[Any],
    engines: Engines,
    plan: WindowPlan,
    *,
    run: Callable[[Connection, Any], UnitResult],
    rows: int | None,
    keep: Callable[[], None] = lambda: None,
) -> LoopState:
    """Sweep window by window, and tell where the loop stands at its end.

    Args:
        run: one unit in one transaction; picklable.
        rows: of all tables, for the choice of an engine; None: nobody knows.
        keep: called between units.
    Raises: JobSignal; TargetError.
    """
    context, claimed, archive = attempt.context, attempt.claim, attempt.archive
    settings, place = context.settings, place_of(attempt.store)
    wanted = Work(
        attempt.params.engine or settings.engine,
        rows,
        claimed.has_ledger,
        archives=archive is not None,
        is_here=is_on_this_machine(place),
    )
    engine = engines.choose(context, wanted)
    work: UnitWork[AnyUnit, UnitResult] = UnitWork(
        target=target_of(attempt.store, settings, context.database),
        limits=session_limits(settings),
        application_name=application_name(context.job.id, UNITS_NAME, context.job.token),
        run=run,
        # The lock lives in the database: that is in its key already, under whatever name it was reached.
        advisory_key=None if claimed.has_ledger else claimed.resource,
        place=claimed.identity,
        folder=folder_of(archive) if archive is not None and engine.name == "SPARK" else None,
    )
    is_alone = attempt.conn.dialect.name == "sqlite" or not claimed.has_ledger
    windows = Windows(context, attempt.conn, plan)
    workers = 1 if is_alone else settings.purge_workers
    sweep_on(engine, work, windows, context, workers=workers, keep=keep)
    attempt.tally.longest_s = windows.state.longest_s
    return windows.state
