"""`lethe spark-pool`: the pooled Spark session of the instance that answers."""

from typing import Annotated

import typer
from lethe_client import SparkPoolState

from app.cli.service.process import DataDir, Json, run_process
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import Output
from app.cli.shell.session import Session, on_service
from app.settings import Settings

app = typer.Typer(
    name="spark-pool", no_args_is_help=True, add_completion=False, help="The pooled Spark session."
)
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept with the audit.")]


@app.command("status")
@on_service
def status(session: Session) -> int:
    """Show state, slots, what runs, and counters.

    Example: lethe spark-pool status
    """
    return _show(session, session.client.spark_pool.get())


@app.command("recycle")
@on_service
def recycle(
    session: Session,
    *,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for what runs.")] = False,
    reason: Reason = None,
) -> int:
    """Replace the JVM; also the way out of FAILED. Jobs go on by themselves.

    Example: lethe spark-pool recycle --reason "memory grows"
    """
    return _show(session, session.client.spark_pool.recycle(force=force, reason=reason))


@app.command("drain")
@on_service
def drain(session: Session, *, reason: Reason = None) -> int:
    """Give no more slots until `resume`; what runs goes on.

    Example: lethe spark-pool drain
    """
    return _show(session, session.client.spark_pool.drain(reason=reason))


@app.command("resume")
@on_service
def resume(session: Session, *, reason: Reason = None) -> int:
    """Take back `drain`.

    Example: lethe spark-pool resume
    """
    return _show(session, session.client.spark_pool.resume(reason=reason))


@app.command("calibrate")
def calibrate(
    *,
    stores: Annotated[int, typer.Option(min=1, max=64, help="Databases of a fleet.")] = 6,
    rows: Annotated[int, typer.Option(min=2_000, max=5_000_000, help="Captured rows of each.")] = 60_000,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Fleets of each engine.")] = 3,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Measure on this machine from how many rows on Spark pays, and keep it in the data directory.

    It starts a service of its own with the settings of this shell, on a sample: take a quiet moment, and
    about two minutes. Erasures and windows of replication keep their thresholds.

    Example: lethe spark-pool calibrate --data-dir /var/lib/lethe
    """
    # What it needs beside the others is the service's.
    from app.cli.spark_pool.calibrate import calibrate as measure

    def process(settings: Settings) -> int:
        return measure(settings, Output(json=json), stores=stores, rows=rows, rounds=rounds)

    given = {"data_dir": data_dir}
    return run_process("calibrate", process, given, json=json, has_document=True)


def _show(session: Session, pool: SparkPoolState) -> int:
    out = session.out
    out.document(pool.raw)
    out.facts(
        {
            "instance": pool.instance,
            "state": pool.state,
            "since": pool.since,
            "draining": pool.draining,
            "master": pool.master,
            "Spark": pool.spark_version,
            "executors": pool.executors,
            "cores": pool.cores,
            "memory of executors": pool.memory_bytes,
            "last start": pool.start_took,
            "rebuilds": pool.rebuilds,
            "failed rebuilds in a row": pool.failed_rebuilds,
            "last error": pool.last_error,
            "jobs on it": pool.exchange.get("jobs"),
            "of these waiting": pool.exchange.get("jobs_waiting"),
            "units waiting": pool.exchange.get("units_waiting"),
            "units under way": pool.exchange.get("units_under_way"),
            "Spark jobs run": pool.exchange.get("spark_jobs"),
            "units done": pool.exchange.get("units_done"),
            "units run again": pool.exchange.get("units_again"),
            "calibration": pool.calibration.get("state"),
            "calibrated": pool.calibration.get("made_at"),
            "calibration is refused": pool.calibration.get("why"),
        }
    )
    out.table(
        ["slot", "state", "class", "for", "Spark jobs run"],
        [[slot.number, slot.state, slot.job_class, slot.leased_for, slot.jobs_run] for slot in pool.slots],
    )
    out.table(
        ["AUTO takes Spark for", "from", "with a start", "unit", "by", "because"],
        [
            [each.kind, _least(each.least), _least(each.least_cold), each.unit, each.source, each.basis]
            for each in pool.thresholds
        ],
    )
    return ExitCode.OK


def _least(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"
