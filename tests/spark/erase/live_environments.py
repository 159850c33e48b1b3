"""Small environments for the rules of LIVE, and what stands for a JE process that has one open."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lethe_samples.je_writer.environment import Environment
from spark.erase.calls.calls import LiveTerms
from spark.erase.calls.request import PlanRequest
from spark.erase.live.live import plan_live
from spark.erase.plan.plan import Plan
from spark.formats.je.log import lsn_of
from spark.targets.files import ofd_lock

CREATED_MS = 1_790_000_000_000
MINUTE_MS = 60_000
# Nothing is too young: nodes go by the checkpoint before the newest one, markers refuse nothing.
NO_GRACE = LiveTerms(now_ms=CREATED_MS + 1_000 * MINUTE_MS, backup_grace_ms=0, node_grace_ms=0)


def begin(directory: Path, *, file_bytes: int = 3_000) -> Environment:
    directory.mkdir(exist_ok=True)
    environment = Environment(directory, file_bytes_max=file_bytes, created_ms=CREATED_MS)
    environment.create("records")
    return environment


def write_versions(environment: Environment, keys: range, *, name: str = "records") -> list[int]:
    """A version of each record, each too long to be embedded; their LSNs."""
    return [environment.put(None, name, b"key-%03d" % key, b"value %030d" % key) for key in keys]


def write_environment(directory: Path, *, checkpoints: int = 4) -> Environment:
    """Each checkpoint ends a minute after the one before, and has superseded every record."""
    environment = begin(directory)
    for _ in range(checkpoints):
        write_versions(environment, range(25))
        environment.log.now_ms += MINUTE_MS
        environment.checkpoint()
    return environment


def plan(directory: Path, terms: LiveTerms = NO_GRACE) -> Plan:
    return plan_live(directory, PlanRequest(), terms)[0]


def planned(plan: Plan, *types: int) -> set[int]:
    """LSNs of the entries that are erased, of all types or of some."""
    return {
        lsn_of(file.columns.number, row["offset"])
        for file in plan.files
        for row in file.erase.to_pylist()
        if not types or row["type"] in types
    }


@contextmanager
def held(directory: Path, byte: int, *, exclusive: bool) -> Iterator[None]:
    """Hold a byte of je.lck. For whoever asks, our lock is like that of another process."""
    descriptor = os.open(directory / "je.lck", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        lock = ofd_lock.try_exclusive if exclusive else ofd_lock.try_shared
        assert lock(descriptor, byte)
        yield
    finally:
        os.close(descriptor)
