"""A verification reads several files at once: the same checks in the same order, and a stop is minded."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.archives import verifying
from app.jobs.errors import JobStopped, StopCause
from spark.targets.archive.archive import verify_file
from spark.targets.manifest import ManifestEntry

FILES = 3 * verifying.FILES_AT_ONCE + 1


def archive(folder: Path) -> list[ManifestEntry]:
    """Files as a manifest names them, a third of which were damaged since."""
    chance, entries = random.Random(7), []
    for number in range(FILES):
        path = folder / f"data-{number}.1.parquet"
        rows = chance.randint(1, 300)
        pq.write_table(pa.table({"id": [chance.random() for _ in range(rows)]}), path)
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries.append(
            ManifestEntry("job_1", f"data-{number}", "t", 1, str(path), rows, len(content), digest)
        )
        if number % 3 == 1:
            path.write_bytes(content[:-1])
        elif number % 9 == 2:
            path.unlink()
    return entries


def context(*, stops_at: int | None = None) -> Any:
    """A running job that must stop at its so manieth look; `shown`: what clients saw of it."""
    looks: list[int] = []
    shown: list[int] = []

    def check() -> None:
        looks.append(len(looks))
        if len(looks) == stops_at:
            raise JobStopped(StopCause.ABORT)

    return cast(
        Any,
        SimpleNamespace(check=check, shown=shown, progress=lambda *, unit, done, total: shown.append(done)),
    )


def test_the_checks_are_those_of_one_file_after_another(tmp_path: Path) -> None:
    entries, job = archive(tmp_path), context()
    found = list(verifying.checks_here(job, entries))
    assert found == [verify_file(entry) for entry in entries]
    assert {check.state for check in found} == {"OK", "CORRUPT", "MISSING"}
    assert job.shown == sorted(job.shown)
    assert len(job.shown) >= 4


def test_a_stop_is_minded_between_the_files(tmp_path: Path) -> None:
    job = context(stops_at=2)
    with pytest.raises(JobStopped):
        list(verifying.checks_here(job, archive(tmp_path)))
    assert job.shown == [0]


def test_no_file_is_no_check() -> None:
    assert list(verifying.checks_here(context(), [])) == []
