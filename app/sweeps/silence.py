"""The proof of silence of a sweep; then what was done so far is shown, and its archive gets its manifest."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import prove_silence
from app.sweeps.archive import archive_so_far
from app.sweeps.counts import Counts, counts_so_far
from app.sweeps.settling import settle
from spark.targets.connection import Connection


def prove_sweep_silent(
    context: JobContext,
    *,
    tell: Callable[[Counts], Mapping[str, Any]],
    heal: Callable[[Connection], object] = lambda _conn: None,
    steps: Collection[str] | None = None,
) -> None:
    """Prove that nothing of the job runs, and show the result as far as it is.

    Args:
        tell: what the result says besides counts, archive and units.
        heal: what an attempt that was cut off has left at the target is put right.
        steps: of the ledger, that are units; None: all are.
    Raises: JobWaiting.
    """

    def note(conn: Connection) -> None:
        heal(conn)
        done = counts_so_far(context, conn, steps=steps)
        result = {
            "counts": done.word,
            **tell(done),
            "archive": archive_so_far(context, conn, is_exact=done.is_exact),
            "units": done.units,
        }
        context.write(lambda db: settle(context, db, result, {"result": result}))

    prove_silence(context, then=note)
