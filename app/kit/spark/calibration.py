"""What `lethe spark-pool calibrate` has measured: a file that is read when an engine is chosen.

Rules:
- it holds for the machine, the versions and the master that it was made with; anything else is refused whole;
- a file that cannot be read, or has a value that cannot be, is refused whole, and the answer says why;
- it is replaced in one step.
"""

import os
import platform
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from app.kit.model import Model
from app.kit.spark.thresholds import (
    Speeds,
    Thresholds,
    ThresholdsNow,
    WorkKind,
    built_in,
    ordered,
)
from app.settings import Settings

FILE_NAME: Final = "spark-calibration.json"
BYTES_MAX: Final = 65_536
Rate = Annotated[float, Field(ge=1e-3, le=1e12, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]
CalibrationState = Literal["NONE", "USED", "REFUSED"]
STRICT: Final = ConfigDict(extra="forbid", frozen=True)


class MeasuredSpeeds(Model):
    """What was measured of one kind of work."""

    model_config = STRICT

    inline_per_s: Rate
    spark_per_s: Rate
    spark_floor_s: Seconds
    start_s: Seconds
    case: str = Field(min_length=1, max_length=200)
    """What it was measured with."""


class Ground(Model):
    """What a measurement depends on."""

    model_config = STRICT

    machine: str
    cores: int
    python: str
    pyspark: str
    master: str
    task_ms: int


class Calibration(Model):
    """The file."""

    model_config = STRICT

    format: Literal[1] = 1
    made_at: datetime
    ground: Ground
    kinds: dict[WorkKind, MeasuredSpeeds] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What is known of the file.

    Args:
        why: it is refused.
    """

    state: CalibrationState
    calibration: Calibration | None = None
    why: str | None = None


def ground_of(settings: Settings) -> Ground:
    """What a measurement made now would depend on."""
    pyspark = ""
    with suppress(PackageNotFoundError):
        pyspark = version("pyspark")
    cores = settings.spark.cores or os.cpu_count() or 1
    return Ground(
        machine=_processor(),
        cores=os.cpu_count() or 1,
        python=platform.python_version(),
        pyspark=pyspark,
        master=settings.spark.master or f"local[{cores}]",
        task_ms=settings.spark.task_ms,
    )


def _processor() -> str:
    """The model, not the host's name: a container has another one at each start."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def place_of(settings: Settings) -> Path:
    """Where the file lies."""
    return settings.data_dir / FILE_NAME


def read_calibration(settings: Settings) -> Calibrated:
    """Read the file, and say whether it is used."""
    place = place_of(settings)
    try:
        # Without O_NONBLOCK a pipe of this name would hold every choice of an engine for ever.
        with open(os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Calibrated("REFUSED", why=f"{place} is no regular file")
            content = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return Calibrated("NONE")
    except OSError as error:
        return Calibrated("REFUSED", why=f"{place} cannot be read: {error.strerror}")
    if len(content) > BYTES_MAX:
        return Calibrated("REFUSED", why=f"{place} is longer than {BYTES_MAX} bytes")
    try:
        found = Calibration.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        return Calibrated("REFUSED", why=f"{where}: {first['msg']}")
    return _judged(found, ground_of(settings))


def _judged(found: Calibration, now: Ground) -> Calibrated:
    for name in Ground.model_fields:
        then, today = getattr(found.ground, name), getattr(now, name)
        if then != today:
            return Calibrated("REFUSED", found, f"{name} was {then}, and is {today}")
    return Calibrated("USED", found)


def thresholds_of(settings: Settings) -> Thresholds:
    """What holds now: settings before this machine's measurement before the table."""
    found = dict(built_in(settings))
    calibrated = read_calibration(settings)
    if calibrated.state == "USED" and calibrated.calibration is not None:
        for kind, measured in calibrated.calibration.kinds.items():
            speeds = Speeds(
                measured.inline_per_s, measured.spark_per_s, measured.spark_floor_s, measured.start_s
            )
            found[kind] = speeds.threshold(source="CALIBRATED", basis=measured.case)
    return found | dict(ordered(settings))


def thresholds_now(settings: Settings) -> ThresholdsNow:
    """Reads what holds at each call: a calibration takes effect without a restart."""
    return partial(thresholds_of, settings)
