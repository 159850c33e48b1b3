"""Archives that were written after the backup from which the metadata comes back."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db import Database
from app.keeping.backup import back_up
from app.keeping.restore import restore
from app.retention import remove_expired_archives
from app.settings import Settings
from tests.journeys.crashes import build_large
from tests.journeys.ground import (
    CUTOFF,
    add_store,
    assert_restored,
    expect,
    instant,
    purge_request,
)
from tests.journeys.service import serving, succeeded, until
from tests.oracles.symmetricds import Place, snapshot

pytestmark = pytest.mark.journey


def test_recover_takes_in_archives_that_come_back_and_end_in_time(tmp_path: Path) -> None:
    place, archives = Place(f"sqlite:///{tmp_path}/shop.db"), tmp_path / "archives"
    spare = Place(f"sqlite:///{tmp_path}/spare.db")
    for each in (place, spare):
        build_large(each, 12, rows=150)
    settings = {"LETHE_ARCHIVE_ROOT": str(archives), "LETHE_ALLOWED_ROOTS": str(tmp_path)}
    with serving(tmp_path / "first", settings) as service:
        add_store(service.client, "shop", place)
        add_store(service.client, "spare", spare)  # else every store is ahead, and the service ends
        earlier = purge_request(place, cutoff=instant(place, local=CUTOFF - timedelta(hours=2)), archive=True)
        known = service.client.purges.create("shop", earlier).id
        succeeded(service.client, known)
        back_up(Settings(data_dir=tmp_path / "first"), tmp_path / "backup", print)
        expected = expect(place, snapshot(place))
        lost = service.client.purges.create("shop", purge_request(place, archive=True)).id
        succeeded(service.client, lost)
        [told] = [each.raw for each in service.client.archives.list() if each.job_id == lost]
    restore(Settings(data_dir=tmp_path / "second"), tmp_path / "backup", print)
    with serving(tmp_path / "second", settings | {"LETHE_STORE_CHECK_S": "0"}) as service:
        client = service.client
        assert [each.job_id for each in client.archives.list()] == [known]
        client.stores.recover("shop")
        found = {each.job_id: each.raw for each in client.archives.list()}
        assert set(found) == {known, lost}
        same = ("store", "directory", "files", "rows", "bytes", "counts", "resource")
        assert {name: found[lost].get(name) for name in same} == {name: told.get(name) for name in same}
        ends = [datetime.fromisoformat(each["expires_at"]) for each in (found[lost], told)]
        assert timedelta() <= ends[1] - ends[0] < timedelta(minutes=5)
        file = tmp_path / "back.sqlite"
        succeeded(client, client.archives.restore_into_file(lost, str(file)).id)
        assert_restored(file, place, expected)


def test_archives_follow_their_data_directory(tmp_path: Path) -> None:
    """Also that of a job that has not ended, and goes on where the archive lies now."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    build_large(place, 13, rows=150)
    expected = expect(place, snapshot(place))
    request = purge_request(place, archive=True, max_rows_in_tx=10, rows_per_s=20)
    with serving(tmp_path / "first") as service:
        add_store(service.client, "shop", place)
        job_id = service.client.purges.create("shop", request).id
        until(lambda: service.client.jobs.get(job_id).progress.done > 0)
        service.kill9()
    (tmp_path / "first").rename(tmp_path / "second")
    with serving(tmp_path / "second") as service:
        client = service.client
        client.jobs.throttle(job_id, lift=True)
        succeeded(client, job_id)
        assert not (tmp_path / "first").exists()
        [archive] = client.archives.list()
        assert archive.directory == str(tmp_path / "second" / "archive" / "shop" / job_id)
        succeeded(client, client.archives.verify(job_id).id)
    shutil.copytree(tmp_path / "second", tmp_path / "third")  # all of it but one file, at first
    [late, *_] = (tmp_path / "third" / "archive" / "shop" / job_id).glob("*.parquet")
    late.rename(tmp_path / late.name)
    with serving(tmp_path / "third") as service:
        assert [each.directory for each in service.client.archives.list()] == [archive.directory]
        service.stop()
    shutil.move(tmp_path / late.name, late)
    settings = Settings(data_dir=tmp_path / "third")
    with serving(tmp_path / "third") as service:
        file = tmp_path / "back.sqlite"
        succeeded(service.client, service.client.archives.restore_into_file(job_id, str(file)).id)
        assert_restored(file, place, expected)
        instance = service.instance
        service.stop()
    database = Database(settings.effective_metadata_url)
    with database.transaction() as db:
        db.execute(sa.text("update archives set expires_at = created_at"))
    assert remove_expired_archives(database, settings, instance_id=instance) == [job_id]
    database.close()
    assert not (tmp_path / "third" / "archive" / "shop" / job_id).exists()
