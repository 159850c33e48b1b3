"""Archives below the data directory after LETHE_ARCHIVE_ROOT was set, and copies that were cut short."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db import Database
from app.retention import remove_expired_archives
from app.settings import Settings
from tests.journeys.crashes import build_large
from tests.journeys.ground import Expected, add_store, assert_restored, expect, purge_request
from tests.journeys.service import Service, serving, succeeded
from tests.oracles.symmetricds import Place, snapshot

pytestmark = pytest.mark.journey


def _purged(service: Service, place: Place) -> tuple[str, Expected]:
    build_large(place, 14, rows=150)
    expected = expect(place, snapshot(place))
    add_store(service.client, "shop", place)
    job_id = service.client.purges.create("shop", purge_request(place, archive=True)).id
    succeeded(service.client, job_id)
    return job_id, expected


def test_archives_of_before_a_root_was_set_are_read_restored_and_end_in_time(tmp_path: Path) -> None:
    """They were never removed, whatever the retention said, and nothing was said of it."""
    place, data = Place(f"sqlite:///{tmp_path}/shop.db"), tmp_path / "data"
    with serving(data) as service:
        job_id, expected = _purged(service, place)
        service.stop()
    root = tmp_path / "root"
    root.mkdir()
    with serving(data, {"LETHE_ARCHIVE_ROOT": str(root)}) as service:
        client, instance = service.client, service.instance
        [archive] = client.archives.list()
        assert archive.directory == str(data / "archive" / "shop" / job_id)
        succeeded(client, client.archives.verify(job_id).id)
        file = tmp_path / "back.sqlite"
        succeeded(client, client.archives.restore_into_file(job_id, str(file)).id)
        assert_restored(file, place, expected)
        [verification] = [job for job in client.jobs.list() if job.kind == "ARCHIVE_VERIFY"]
        assert verification.raw["runs_on"] == [f"instance/{instance}"]
        service.stop()
    settings = Settings(data_dir=data, archive_root=root)
    database = Database(settings.effective_metadata_url)
    with database.transaction() as db:
        db.execute(sa.text("update archives set expires_at = created_at"))
    assert remove_expired_archives(database, settings, instance_id="ins_other") == [], "another machine's"
    assert remove_expired_archives(database, settings, instance_id=instance) == [job_id]
    database.close()
    assert not Path(archive.directory).exists()


def test_a_copy_that_was_cut_short_is_not_taken_for_the_archive(tmp_path: Path) -> None:
    """All names were there, one file only in part: the copy was followed, and what is whole forgotten."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    with serving(tmp_path / "first") as service:
        job_id, _ = _purged(service, place)
        [archive] = service.client.archives.list()
        service.stop()
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    copy = tmp_path / "second" / "archive" / "shop" / job_id
    short = max(copy.glob("*.parquet"), key=lambda path: path.stat().st_size)
    whole = short.read_bytes()
    short.write_bytes(whole[: len(whole) // 2])
    with serving(tmp_path / "second") as service:
        client = service.client
        assert [each.directory for each in client.archives.list()] == [archive.directory]
        succeeded(client, client.archives.verify(job_id).id)
        service.stop()
    short.write_bytes(whole)
    with serving(tmp_path / "second") as service:
        client = service.client
        assert [each.directory for each in client.archives.list()] == [str(copy)]
        succeeded(client, client.archives.verify(job_id).id)


def test_archives_below_a_root_of_before_are_told_of(tmp_path: Path) -> None:
    """They are read where they lie, and never removed: nobody but the operator can see to that."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    first, second = tmp_path / "one", tmp_path / "two"
    for root in (first, second):
        root.mkdir()
    with serving(tmp_path / "data", {"LETHE_ARCHIVE_ROOT": str(first)}) as service:
        job_id, _ = _purged(service, place)
        service.stop()
    with serving(tmp_path / "data", {"LETHE_ARCHIVE_ROOT": str(second)}) as service:
        succeeded(service.client, service.client.archives.verify(job_id).id)
        [told] = [line for line in service.log.read_text().splitlines() if "below no root of now" in line]
    assert str(first / "shop" / job_id) in told
