"""From how much work on AUTO takes Spark: a table by measurement, this machine's own, or the settings'.

Rules:
- what a setting names holds as it is named, whether the pool is up or not;
- else what `lethe spark-pool calibrate` has measured on this machine for this master;
- else the table here. A threshold of None: Spark is never faster there, and is taken where it is asked for.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from app.settings import Settings

WorkKind = Literal["PURGE", "EXTINCTION", "WINDOW", "ERASURE", "VERIFICATION", "AUDIT"]
SizeUnit = Literal["ROWS", "CHANGES", "BYTES"]
Source = Literal["SETTING", "CALIBRATED", "BUILT_IN"]
START_S: Final = 10.0
"""A start of the pool with its first Python worker, on two quiet cores with the class archive."""
GAIN_LEAST: Final = 1.1
"""Spark must be faster by so much: what is measured spreads, and a pool takes memory."""
UNITS: Final[dict[WorkKind, SizeUnit]] = {
    "PURGE": "ROWS",
    "EXTINCTION": "ROWS",
    "WINDOW": "CHANGES",
    "ERASURE": "BYTES",
    "VERIFICATION": "BYTES",
    "AUDIT": "ROWS",
}


@dataclass(frozen=True, slots=True)
class Threshold:
    """From how much work of one kind on AUTO takes Spark.

    Args:
        least: in the kind's unit, on a pool that is up; None: never by itself.
        least_cold: the same where Spark has to be started first.
        basis: what it follows from, for people.
    """

    least: int | None
    least_cold: int | None
    source: Source
    basis: str

    def at(self, *, is_up: bool) -> int | None:
        """The threshold for a pool that is up, or is not."""
        return self.least if is_up else self.least_cold


Thresholds = Mapping[WorkKind, Threshold]
ThresholdsNow = Callable[[], Thresholds]


@dataclass(frozen=True, slots=True)
class Speeds:
    """What was measured of one kind of work.

    Args:
        inline_per_s, spark_per_s: units of size a second, over many stores at once.
        spark_floor_s: what a small job takes longer on a pool that is up.
        start_s: what a start of the pool takes.
    """

    inline_per_s: float
    spark_per_s: float
    spark_floor_s: float
    start_s: float

    def least(self, *, extra_s: float = 0.0) -> int | None:
        """From how much work on Spark is done first; None: it never is.

        Args:
            extra_s: what Spark needs before it begins.
        """
        if self.spark_per_s < GAIN_LEAST * self.inline_per_s:
            return None
        saved_s = 1 / self.inline_per_s - 1 / self.spark_per_s
        return math.ceil((self.spark_floor_s + extra_s) / saved_s)

    def threshold(self, *, source: Source, basis: str) -> Threshold:
        """The threshold that follows."""
        return Threshold(self.least(), self.least(extra_s=self.start_s), source, basis)


# Fleets by jobs:batch, two quiet cores, a pool that was up, equal rows left:
#   6 SQLite databases of 60,000 rows   INLINE 1.6 to 2.1 s  SPARK 3.6 to 4.2 s (CPU 1.9 to 3.9, 6.2 to 7.8 s)
#   3 SQLite databases of 300,000 rows  INLINE 2.1 s         SPARK 3.6 to 3.7 s
# The statements run in the database or without Python's lock: threads use the cores as well as processes do.
PURGE_INLINE_PER_S: Final = 300_000
# The window of a session, 400,000 changes of a replica in SQLite, by `benchmarks.spark_peers`:
#   two cores   INLINE 1.6 to 1.8 s  SPARK 1.0 to 1.2 s: from 12,607 on, started first from 4,298,722 on
#   one core    INLINE 1.5 to 1.8 s  SPARK 1.2 to 1.5 s: from 28,875 on, started first from 11,213,370 on
# The plan of an erasure: one process reads as fast as two cores on Spark, which pay for the crossing.
#   268 MB  INLINE 0.2 s  SPARK 0.7 s (two cores, `benchmarks.spark_peers`)
#   988 MB  INLINE 0.8 s  SPARK 2.0 to 2.7 s (two cores), 2.5 to 2.9 s (one; `benchmarks.erase`)
# An archive read again, 2,000,000 rows, a pool that was up, two cores that others used too (load 9 to 16):
#   269 MB in 40 files    INLINE 2.4 to 3.1 s  SPARK 3.1 to 4.0 s, processor seconds 1.1 on both
#   269 MB in 400 files   INLINE 2.8 to 3.7 s  SPARK 4.8 to 6.5 s, processor seconds 1.2 on both
#   302 MB in 40 files    INLINE 4.0 to 5.7 s  SPARK 5.0 to 7.3 s (of `benchmarks.spark_peers`)
#   302 MB in 400 files   INLINE 3.9 to 4.5 s  SPARK 5.7 to 8.2 s
# Hash and Parquet let other threads go on: threads use the cores as well as processes do.
VERIFY_INLINE_PER_S: Final = 500_000_000
"""By the processor seconds above, if both cores were free."""
# The supplier's side of an audit, 400,000 changes and as many entries, two cores shared with other programs
# (load 4 to 7), a warm pool; processor time of this process in brackets:
#   SQLite      one connection 3.4 to 10.4 s (3.2)  two threads 4.6 to 6.7 s (3.9)  SPARK 3.2 to 5.4 s (0.2)
#   PostgreSQL  one connection 6.6 to 16.1 s (2.7)  two threads 7.9 to 8.9 s (2.6)  SPARK 7.4 to 9.6 s (0.1)
# A whole audit in SQLite, its consumer a process beside it that reads as much (the calmest of three runs):
#   3.2 s over one connection, 4.1 s by two threads, 5.1 s on SPARK: both sides need the cores at once.
#   under more load 5.3 and 8.8 s, 6.1 and 8.2 s, 7.3 and 7.2 s; as it was before, in lockstep: 4.5 to 9.0 s
# The same in PostgreSQL, two runs: one connection 15.6 and 12.5 s, two threads (taken) 10.1 and 11.4 s,
#   SPARK 9.4 and 10.4 s, which is less than GAIN_LEAST; as it was before: 15.1 and 15.8 s
_NO_GAIN_HERE: Final = "Spark has only the cores of this machine, which threads use as well"
_NOT_MEASURED: Final = "not measured against this machine alone"
HERE: Final[Thresholds] = {
    "PURGE": Threshold(None, None, "BUILT_IN", _NO_GAIN_HERE),
    "EXTINCTION": Threshold(None, None, "BUILT_IN", _NO_GAIN_HERE),
    "WINDOW": Threshold(30_000, 5_000_000, "BUILT_IN", "400,000 changes: 1.7 s inline, 1.0 s on Spark"),
    "ERASURE": Threshold(None, None, "BUILT_IN", "a plan over 988 MB: 0.8 s inline, 2.3 s on Spark"),
    "VERIFICATION": Threshold(None, None, "BUILT_IN", "an archive of 269 MB: 2.5 s inline, 3.6 s on Spark"),
    "AUDIT": Threshold(None, None, "BUILT_IN", "an audit waits for its consumer, which reads as much"),
}
"""Where Spark runs on this machine."""
_COLD_ROWS: Final = 100_000 + round(START_S * PURGE_INLINE_PER_S)
_VERIFY_BYTES: Final = 1_000_000_000
_COLD_BYTES: Final = _VERIFY_BYTES + round(START_S * VERIFY_INLINE_PER_S)
CLUSTER: Final[Thresholds] = {
    "PURGE": Threshold(100_000, _COLD_ROWS, "BUILT_IN", _NOT_MEASURED),
    "EXTINCTION": Threshold(100_000, _COLD_ROWS, "BUILT_IN", _NOT_MEASURED),
    "WINDOW": Threshold(200_000, 1_000_000, "BUILT_IN", _NOT_MEASURED),
    # An erasure never leaves the machine of its log.
    "ERASURE": HERE["ERASURE"],
    "VERIFICATION": Threshold(_VERIFY_BYTES, _COLD_BYTES, "BUILT_IN", _NOT_MEASURED),
    # Wherever Spark runs, the consumer has no more than its own processes.
    "AUDIT": HERE["AUDIT"],
}
"""Where it has other machines."""


def built_in(settings: Settings) -> Thresholds:
    """The table for the master that the settings name."""
    return HERE if settings.executors_are_here else CLUSTER


def ordered(settings: Settings) -> Thresholds:
    """The thresholds that the settings name, and no others."""
    spark = settings.spark
    named = spark.model_fields_set
    found: dict[WorkKind, Threshold] = {}
    if "min_rows" in named:
        found["PURGE"] = found["EXTINCTION"] = _ordered(spark.min_rows, "LETHE_SPARK__MIN_ROWS")
    if "window_min_changes" in named:
        found["WINDOW"] = _ordered(spark.window_min_changes, "LETHE_SPARK__WINDOW_MIN_CHANGES")
    if "erase_min_bytes" in named:
        found["ERASURE"] = _ordered(spark.erase_min_bytes, "LETHE_SPARK__ERASE_MIN_BYTES")
    if "verify_min_bytes" in named:
        found["VERIFICATION"] = _ordered(spark.verify_min_bytes, "LETHE_SPARK__VERIFY_MIN_BYTES")
    return found


def _ordered(least: int, name: str) -> Threshold:
    return Threshold(least, least, "SETTING", name)
