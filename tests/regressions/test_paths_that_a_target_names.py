"""The table of archive files at a target is its owner's: the paths there were believed. A target could have
Lethe write a manifest into the archive of another store, or any folder, and read another's files: a restore
brought their rows into its own database, and a verification told their size and hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.archives.housekeeping import trim_old_ledgers
from app.archives.service import describe_archive
from app.errors import Conflict
from spark.targets.archive.archive import verify
from spark.targets.connection import Target, connect
from spark.targets.ledger import archive_manifest, list_jobs
from spark.targets.manifest import MANIFEST_NAME, read_manifest_json
from tests.oracles.symmetricds import Place, session
from tests.regressions.purges import OLD_CUTOFF, Purges

STRANGER = "job_00000000000000000000000009"


class Tenants:
    """A store whose archive is whole, and one whose database says what its owner wants."""

    def __init__(self, purges: Purges, root: Path) -> None:
        self.purges = purges
        self.places = {name: Place(f"sqlite:///{root}/{name}.db") for name in ("mine", "theirs")}
        self.jobs = {}
        for seed, (name, place) in enumerate(self.places.items()):
            purges.store(purges.fill(place, rows=60, seed=11 + seed), name)
            job_id = purges.submit(name, cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
            assert purges.run(job_id).state == "SUCCEEDED"
            self.jobs[name] = job_id

    def folder(self, name: str) -> Path:
        row = self.purges.archive(self.jobs[name])
        assert row is not None
        return Path(row.directory)

    def lie(self, *statements: str) -> None:
        with session(self.places["theirs"]) as target:
            for statement in statements:
                target.run(statement)

    def trim(self) -> set[str]:
        """The next purge of the lying target begins; the jobs that it still remembers."""
        self.lie("update lethe_unit_ledger set committed_at = '2001-01-01T00:00:00.000Z'")
        self.purges.submit("theirs", cutoff=OLD_CUTOFF)
        with connect(Target(self.places["theirs"].url), application_name="t") as conn:
            trim_old_ledgers(self.purges.attempt(), conn)
            return {job.job_id for job in list_jobs(conn)}

    def ask(self, kind: str, **params: Any) -> Mapping[str, Any]:
        job_id = self.purges.bench.submit(
            kind, store="theirs", params={"archive": self.jobs["theirs"]} | params
        )
        job = self.purges.run(job_id)
        return {"state": job.state, "result": job.result or {}, "error": job.error}


@pytest.fixture
def tenants(purges: Purges, tmp_path: Path) -> Tenants:
    return Tenants(purges, tmp_path)


def test_manifest_of_another_store_stays_as_it_is(tenants: Tenants) -> None:
    folder = tenants.folder("mine")
    before = read_manifest_json(folder)
    assert before
    tenants.lie(
        f"update lethe_unit_ledger set job_id = '{tenants.jobs['mine']}'",
        f"update lethe_archive_manifest set job_id = '{tenants.jobs['mine']}'",
    )
    tenants.trim()
    assert read_manifest_json(folder) == before
    (folder / MANIFEST_NAME).unlink()
    tenants.trim()
    assert read_manifest_json(folder) is None


@pytest.mark.parametrize("job_id", [STRANGER, "../mine"])
def test_job_that_nobody_knows_names_no_folder_of_another(
    tenants: Tenants, tmp_path: Path, job_id: str
) -> None:
    folder = tenants.folder("mine")
    before = read_manifest_json(folder)
    aside = tmp_path / "aside"
    aside.mkdir()
    for place in (folder, aside):
        tenants.lie(
            f"update lethe_unit_ledger set job_id = '{job_id}'",
            f"update lethe_archive_manifest set job_id = '{job_id}', path = '{place}/x-1.parquet'",
        )
        assert job_id in tenants.trim()
    assert read_manifest_json(folder) == before
    assert list(aside.iterdir()) == []


def test_files_of_another_store_are_not_read(tenants: Tenants, tmp_path: Path) -> None:
    [mine, *_] = read_manifest_json(tenants.folder("mine")) or []
    with connect(Target(tenants.places["theirs"].url), application_name="t") as conn:
        [theirs, *_] = archive_manifest(conn, tenants.jobs["theirs"])
    tenants.lie(
        f"delete from lethe_archive_manifest where unit_id <> '{theirs.unit_id}'",
        f"update lethe_archive_manifest set path = '{mine.path}', rows = {mine.rows}, bytes = {mine.bytes},"
        f" sha256 = '{mine.sha256}'",
    )
    into = {"file": str(tmp_path / "out.db"), "schema": None, "live": False}
    told = [tenants.ask("ARCHIVE_VERIFY"), tenants.ask("ARCHIVE_RESTORE", into=into)]
    assert [each["state"] for each in told] == ["FAILED", "FAILED"]
    assert told[1]["result"].get("rows", 0) == 0
    tenants.lie("update lethe_archive_manifest set bytes = 1")
    assert str(mine.bytes) not in str(tenants.ask("ARCHIVE_VERIFY"))


def test_archive_that_was_moved_with_its_root_is_whole(tenants: Tenants, tmp_path: Path) -> None:
    folder = tenants.folder("theirs")
    moved = tmp_path / "moved" / "theirs" / folder.name
    moved.parent.mkdir(parents=True)
    folder.rename(moved)
    archive = tenants.purges.archive(tenants.jobs["theirs"])
    assert archive is not None
    with tenants.purges.bench.database.transaction() as db:
        archive.directory = str(moved)
        db.add(db.merge(archive))
    told = tenants.ask("ARCHIVE_VERIFY")
    assert (told["state"], told["result"]["manifest"]) == ("SUCCEEDED", "LEDGER"), told
    entries = read_manifest_json(moved)
    assert entries
    assert {check.state for check in verify(entries)} == {"OK"}


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 1, "entries": [{"rows": 1}]}', '{"format": 1e400}'])
def test_manifest_that_cannot_be_read_is_named(tenants: Tenants, text: str) -> None:
    """The archive was answered by 500, and its verification ended INTERNAL."""
    folder = tenants.folder("theirs")
    (folder / MANIFEST_NAME).write_text(text)
    tenants.lie("delete from lethe_archive_manifest")
    row = tenants.purges.archive(tenants.jobs["theirs"])
    assert row is not None
    with pytest.raises(Conflict) as refused:
        describe_archive(row, is_decided=True)
    assert refused.value.code == "ARCHIVE_CORRUPT"
    for kind, params in (("ARCHIVE_VERIFY", {}), ("ARCHIVE_RESTORE", {"into": {"live": True}})):
        told = tenants.ask(kind, **params)
        assert told["state"] == "FAILED"
        assert told["error"]["code"] == "ARCHIVE_CORRUPT"
        assert MANIFEST_NAME in told["error"]["detail"]
