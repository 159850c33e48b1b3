"""`lethe spark-pool calibrate`: measure on this machine from how much work on Spark pays."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lethe_client import Lethe, LetheError

from app.cli.backup.files import write_whole
from app.cli.demo.service import DemoService, ServiceDidNotStart
from app.cli.shell.complaints import complaint
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.cli.spark_pool.measuring import Found, Measuring, NotMeasured, variables_of
from app.kit.spark.calibration import Calibration, ground_of, place_of
from app.kit.spark.thresholds import Speeds
from app.settings import Settings
from spark import extras

NOT_HERE: Final = Complaint(
    "CALIBRATION_FAILED",
    "the workers of this Spark are on other machines, where the sample databases are not",
    ExitCode.CONFIGURATION,
    "Name the threshold yourself: LETHE_SPARK__MIN_ROWS.",
)


def calibrate(settings: Settings, out: Output, *, stores: int, rows: int, rounds: int) -> int:
    """Measure with a service of its own, write the file, and show it; returns the exit code.

    Args:
        stores, rows: databases of a fleet, and captured rows of each.
    """
    if not settings.spark.enabled:
        return out.complain(_none_here("LETHE_SPARK__ENABLED is false", "Leave it out, and calibrate again."))
    if not extras.SPARK.is_installed:
        return out.complain(_none_here("pyspark is not installed", extras.SPARK.command))
    if not settings.executors_are_here:
        return out.complain(NOT_HERE)
    try:
        found = _measure(settings, out, stores=stores, rows=rows, rounds=rounds)
        return _show_kept(settings, out, found, case=f"{stores} SQLite databases of {rows:,} captured rows")
    except NotMeasured as error:
        return _failed(out, str(error))
    except ServiceDidNotStart as error:
        return out.complain(Complaint("SERVICE_DID_NOT_START", str(error), ExitCode.FAILED))
    except LetheError as error:
        return out.complain(complaint(error))
    except OSError as error:
        return _failed(out, f"{error.filename or 'the folder'}: {error.strerror}")


def _measure(settings: Settings, out: Output, *, stores: int, rows: int, rounds: int) -> Found:
    with tempfile.TemporaryDirectory(prefix="lethe-calibration-") as name:
        folder = Path(name)
        with DemoService(folder / "data", settings=variables_of(settings)) as service:
            token = service.token_file.read_text().strip()
            with Lethe(service.url, token) as client:
                out.note(f"Writing a sample of {rows:,} captured rows ...")
                return Measuring(client, folder, stores=stores, rows=rows, note=out.note).measure(rounds)


def _show_kept(settings: Settings, out: Output, found: Found, *, case: str) -> int:
    measured = found.speeds(case)
    calibration = Calibration(
        made_at=datetime.now(UTC), ground=ground_of(settings), kinds={"PURGE": measured}
    )
    place = keep(settings, calibration)
    threshold = Speeds(
        measured.inline_per_s, measured.spark_per_s, measured.spark_floor_s, measured.start_s
    ).threshold(source="CALIBRATED", basis=case)
    out.document(
        {
            "file": str(place),
            "calibration": calibration.model_dump(mode="json"),
            "least": {"PURGE": {"warm": threshold.least, "cold": threshold.least_cold}},
        }
    )
    out.facts(
        {
            "file": place,
            "inline, rows/s": round(measured.inline_per_s),
            "Spark, rows/s": round(measured.spark_per_s),
            "a small job longer on Spark, s": round(measured.spark_floor_s, 3),
            "a start of Spark, s": round(measured.start_s, 1),
            "AUTO takes Spark for a purge from, rows": _least(threshold.least),
            "with a start": _least(threshold.least_cold),
        }
    )
    out.note("Services with this data directory go by it from now on. A setting that names a threshold wins.")
    return ExitCode.OK


def keep(settings: Settings, calibration: Calibration) -> Path:
    """Put the file in place, durably and in one step; returns where it is.

    Raises: ConfigurationInvalid: it cannot be written; OSError: its folder cannot be made.
    """
    place = place_of(settings)
    place.parent.mkdir(parents=True, exist_ok=True)
    write_whole(place, (calibration.model_dump_json(indent=2) + "\n").encode())
    return place


def _none_here(why: str, advice: str) -> Complaint:
    return Complaint("CALIBRATION_FAILED", f"there is no Spark here: {why}", ExitCode.CONFIGURATION, advice)


def _least(value: int | None) -> str:
    return "never" if value is None else f"{value:,}"


def _failed(out: Output, detail: str) -> int:
    advice = "Nothing was written. Remove the cause, and calibrate again."
    return out.complain(Complaint("CALIBRATION_FAILED", detail, ExitCode.FAILED, advice))
