"""Ledger rows of ended jobs are trimmed by the next purge of the store, whichever instance runs it. Where
the archive lay on another instance's disk its manifest could not be written, and the rows that tell valid
files from abandoned ones went all the same. Where the folder could not be written, each later purge of the
store failed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.archives.housekeeping import trim_old_ledgers
from spark.targets.connection import Target, connect
from spark.targets.ledger import archive_manifest, list_jobs
from spark.targets.manifest import MANIFEST_NAME, read_manifest_json
from tests.oracles.symmetricds import Place, session
from tests.regressions.purges import OLD_CUTOFF, Purges


@pytest.fixture
def old_job(purges: Purges, tmp_path: Path) -> str:
    place = purges.fill(Place(f"sqlite:///{tmp_path}/sym.db"))
    purges.store(place)
    job_id = purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
    assert purges.run(job_id).state == "SUCCEEDED"
    with session(place) as target:
        target.run("update lethe_unit_ledger set committed_at = '2001-01-01T00:00:00.000Z'")
    return job_id


def _trim(purges: Purges, tmp_path: Path) -> list[str]:
    purges.submit(cutoff=OLD_CUTOFF)
    context = purges.attempt()
    with connect(Target(f"sqlite:///{tmp_path}/sym.db"), application_name="t") as conn:
        trim_old_ledgers(context, conn)
        return [job.job_id for job in list_jobs(conn)]


def test_rows_of_an_archive_elsewhere_stay(purges: Purges, old_job: str, tmp_path: Path) -> None:
    archive = purges.archive(old_job)
    assert archive is not None
    Path(archive.directory).rename(tmp_path / "other-disk")
    assert _trim(purges, tmp_path) == [old_job]


def test_rows_whose_manifest_cannot_be_written_stay(purges: Purges, old_job: str, tmp_path: Path) -> None:
    archive = purges.archive(old_job)
    assert archive is not None
    (Path(archive.directory) / MANIFEST_NAME).unlink()
    (Path(archive.directory) / MANIFEST_NAME).mkdir()
    assert _trim(purges, tmp_path) == [old_job]


def test_job_that_only_the_target_remembers_keeps_its_manifest(
    purges: Purges, old_job: str, tmp_path: Path
) -> None:
    archive = purges.archive(old_job)
    assert archive is not None
    directory = Path(archive.directory)
    (directory / MANIFEST_NAME).unlink()
    with purges.bench.database.transaction() as db:
        db.delete(archive)
    with connect(Target(f"sqlite:///{tmp_path}/sym.db"), application_name="t") as conn:
        entries = archive_manifest(conn, old_job)
    assert _trim(purges, tmp_path) == []
    assert read_manifest_json(directory) == entries


def test_rows_of_an_archive_with_its_manifest_go(purges: Purges, old_job: str, tmp_path: Path) -> None:
    assert _trim(purges, tmp_path) == []
