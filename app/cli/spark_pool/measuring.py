"""Fleets of sample databases, purged inline and on Spark by a service of their own."""

import json
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from lethe_client import Job, Lethe, PurgeRequest

from app.cli.demo import data as demo_data
from app.cli.demo.commands import count_rows
from app.kit.spark.calibration import MeasuredSpeeds
from app.settings import Settings

Engine = Literal["INLINE", "SPARK"]
ENGINES: Final[tuple[Engine, ...]] = ("INLINE", "SPARK")
SMALL_JOBS: Final = 5
JOB_MAX_S: Final = 3_600.0
LOOK_S: Final = 0.1
UPPER_FLOOR_S: Final = 3_600.0
OF_THE_RUNNER: Final = ("runner_jobs_max", "runner_spark_jobs_max", "purge_workers")
THRESHOLDS: Final = ("min_rows", "erase_min_bytes", "window_min_changes", "verify_min_bytes")


class NotMeasured(Exception):
    """Spark does not come up, a job failed, or the engines left different rows."""


@dataclass(frozen=True, slots=True)
class Round:
    """One fleet on one engine; seconds from the request to the parent's end."""

    engine: Engine
    seconds: float
    rows: int


@dataclass(slots=True)
class Found:
    """What was seen.

    Args:
        start_s: from the first request for Spark to its end, a small job's own time taken off.
        small_s: small jobs of each engine.
    """

    start_s: float = 0.0
    small_s: dict[Engine, list[float]] = field(default_factory=lambda: {"INLINE": [], "SPARK": []})
    rounds: list[Round] = field(default_factory=list)

    @property
    def floor_s(self) -> float:
        """What a small job takes longer on Spark."""
        spark, inline = (statistics.median(self.small_s[engine]) for engine in ("SPARK", "INLINE"))
        return max(0.0, spark - inline)

    def seconds(self, engine: Engine) -> float:
        """The median of an engine's rounds."""
        return statistics.median(each.seconds for each in self.rounds if each.engine == engine)

    def speeds(self, case: str) -> MeasuredSpeeds:
        """What a calibration keeps."""
        rows = statistics.median(each.rows for each in self.rounds)
        on_spark_s = max(self.seconds("SPARK") - self.floor_s, 1e-3)
        return MeasuredSpeeds(
            inline_per_s=rows / self.seconds("INLINE"),
            spark_per_s=rows / on_spark_s,
            spark_floor_s=min(self.floor_s, UPPER_FLOOR_S),
            start_s=min(self.start_s, UPPER_FLOOR_S),
            case=case,
        )


def variables_of(settings: Settings) -> dict[str, str]:
    """What a service must be told to have the Spark of these settings, and none of their thresholds."""
    spark = settings.spark
    named = {name: getattr(spark, name) for name in spark.model_fields_set - set(THRESHOLDS)}
    found = {f"LETHE_SPARK__{name.upper()}": _text(value) for name, value in named.items()}
    found |= {
        f"LETHE_{name.upper()}": _text(getattr(settings, name))
        for name in OF_THE_RUNNER
        if name in settings.model_fields_set
    }
    # Its start is measured.
    return {name: value for name, value in found.items() if value} | {"LETHE_SPARK__START": "LAZY"}


def _text(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


class Measuring:
    """Measures at one service.

    Args:
        note: told what is being done.
    """

    def __init__(
        self, client: Lethe, folder: Path, *, stores: int, rows: int, note: Callable[[str], None]
    ) -> None:
        self._client = client
        self._folder = folder
        self._stores = stores
        self._note = note
        self._sample = folder / "sample.db"
        now = datetime.now(UTC)
        # One for all: by the retention, a later fleet would have more to remove.
        self._cutoff = now - timedelta(days=demo_data.DAYS / 2)
        demo_data.build(self._sample, now=now.replace(tzinfo=None), rows=rows)

    def measure(self, rounds: int) -> Found:
        """Measure the start of Spark, small jobs, and fleets of both engines in turn.

        Raises: NotMeasured; LetheError.
        """
        found = Found()
        small = self._register("small", 1)[0]
        self._purge(small.stem, "INLINE")  # from now on there is nothing left to remove
        self._note("Starting Spark ...")
        first_s = self._purge(small.stem, "SPARK")
        for _ in range(SMALL_JOBS):
            for engine in ENGINES:
                found.small_s[engine].append(self._purge(small.stem, engine))
        found.start_s = max(0.0, first_s - statistics.median(found.small_s["SPARK"]))
        for number in range(rounds):
            # In turn, and the other one first the next time: whatever else the machine does meets both.
            order = ENGINES if number % 2 == 0 else ENGINES[::-1]
            left = [self._fleet(engine, number, found) for engine in order]
            if left[0] != left[1]:
                raise NotMeasured("the two engines left different rows: nothing was written")
        return found

    def _fleet(self, engine: Engine, number: int, found: Found) -> list[dict[str, int]]:
        name = f"{engine.lower()}-{number}"
        paths = self._register(name, self._stores)
        request = self._request(engine).document()
        began = time.monotonic()
        parent = self._ended(
            self._client.jobs.batch(kind="PURGE", params=request, stores=[path.stem for path in paths])
        )
        seconds = time.monotonic() - began
        rows = self._estimated(parent)
        found.rounds.append(Round(engine, seconds, rows))
        self._note(f"{engine.ljust(6)} {self._stores} databases, about {rows:,} rows: {seconds:.2f} s")
        left = [count_rows(path) for path in paths]
        for path in paths:
            path.unlink()
        return left

    def _estimated(self, parent: Job) -> int:
        """Rows of all children, as the choice of an engine counts them."""
        total = 0
        for child in self._client.jobs.list(parent=parent.id):
            told = [each.data for each in self._client.jobs.events(child.id) if each.type == "engine"]
            total += int(told[-1]["estimated_rows"] or 0)
        if not total:
            raise NotMeasured("no job has said how many rows it has estimated")
        return total

    def _register(self, name: str, count: int) -> Sequence[Path]:
        paths = [self._folder / f"{name}-{number}.db" for number in range(count)]
        for path in paths:
            shutil.copy(self._sample, path)
            self._client.stores.create(path.stem, f"sqlite:///{path}")
        return paths

    def _purge(self, store: str, engine: Engine) -> float:
        began = time.monotonic()
        self._ended(self._client.purges.create(store, self._request(engine)))
        return time.monotonic() - began

    def _request(self, engine: Engine) -> PurgeRequest:
        return PurgeRequest(engine=engine, cutoff=self._cutoff, reason="calibration")

    def _ended(self, job: Job) -> Job:
        """Wait for the job, and look whether Spark comes up meanwhile."""
        deadline = time.monotonic() + JOB_MAX_S
        while not job.ended:
            pool = self._client.spark_pool.get()
            if pool.state == "FAILED":
                raise NotMeasured(f"Spark does not come up: {pool.last_error}")
            if time.monotonic() > deadline:
                raise NotMeasured(f"job {job.id} has not ended within {JOB_MAX_S:g} s")
            time.sleep(LOOK_S)
            job = self._client.jobs.get(job.id)
        if job.state != "SUCCEEDED":
            raise NotMeasured(f"job {job.id} ended {job.state}: {job.error}")
        return job
