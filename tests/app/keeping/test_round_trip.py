"""What was backed up comes back, row for row, from beside those who write; on both engines."""

from __future__ import annotations

import stat
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from app.db import Database
from app.erase.certificates.signing import signer_of
from app.jobs.running.instances import InstanceLock
from app.keeping.backup import back_up
from app.keeping.check import check_backup, check_live
from app.keeping.errors import NotKept
from app.keeping.folder import MANIFEST, read_manifest
from app.keeping.restore import restore
from app.settings import Settings
from app.starting import bring_to_head, open_metadata
from migrations.upgrade import current_revision, head_revision, upgrade_within
from tests.app.keeping.conftest import rows_of


def quiet(_text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def elsewhere(database: Database, request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Where a restore goes: a folder that is not there yet, and a new database."""
    url = None if database.is_sqlite else request.getfixturevalue("postgresql_url")
    return Settings(data_dir=tmp_path / "restored" / "here", metadata_url=url)


def test_restored_metadata_has_every_row_key_and_token(
    database: Database, kept_settings: Settings, folder: Path, elsewhere: Settings
) -> None:
    said = restore(elsewhere, folder, quiet)
    assert said.instance_id == (kept_settings.data_dir / "instance.id").read_text().strip()
    restored = open_metadata(elsewhere)
    assert rows_of(restored) == rows_of(database)
    restored.close()
    former, now = kept_settings.data_dir, elsewhere.data_dir
    assert (now / "admin.token").read_text() == (former / "admin.token").read_text()
    assert signer_of(now).key_id == signer_of(former).key_id
    assert not (now / "restore.unfinished").exists()
    live = check_live(elsewhere)
    assert (live.ok, live.problems, live.revision) == (True, [], head_revision())


def test_all_of_a_backup_is_its_owners_alone(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    said = check_backup(folder)
    assert (said.ok, said.problems) == (True, [])
    assert said.signing_key_id is not None
    assert said.rows["audit_events"] == 6


def test_backup_beside_writers_is_one_moment(
    database: Database, kept_settings: Settings, elsewhere: Settings, tmp_path: Path
) -> None:
    # Each transaction raises two counters in two tables by one: a backup that mixed moments would differ.
    with database.transaction() as db:
        db.execute(
            sa.text(
                "insert into global_parameters (name, value, version, updated_at) values ('a', '0', 1, :at)"
            ),
            {"at": "2026-01-01 00:00:00"},
        )
        db.execute(sa.text("insert into counters (name, value) values ('drill', 0)"))
    ended = threading.Event()
    written = threading.Thread(target=_write_pairs, args=(database, ended))
    written.start()
    try:
        time.sleep(0.1)
        for number in range(3):
            back_up(kept_settings, tmp_path.parent / f"{tmp_path.name}-moment{number}", quiet)
    finally:
        ended.set()
        written.join()
    restore(elsewhere, tmp_path.parent / f"{tmp_path.name}-moment2", quiet)
    restored = open_metadata(elsewhere)
    with restored.reading() as db:
        counted = db.execute(sa.text("select value from counters where name = 'drill'")).scalar_one()
        named = db.execute(sa.text("select value from global_parameters where name = 'a'")).scalar_one()
    restored.close()
    assert counted > 0
    assert int(str(named).strip('"')) == counted


def _write_pairs(database: Database, ended: threading.Event) -> None:
    number = 0
    while not ended.is_set():
        number += 1
        with database.transaction() as db:
            db.execute(sa.text("update counters set value = :n where name = 'drill'"), {"n": number})
            db.execute(
                sa.text("update global_parameters set value = :n where name = 'a'"), {"n": f'"{number}"'}
            )


def test_backup_of_an_older_schema_is_restored_and_then_migrated(
    elsewhere: Settings, kept_settings: Settings, postgresql_url: str, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/old.db" if kept_settings.metadata_url is None else postgresql_url
    if elsewhere.metadata_url is not None:
        pytest.skip("one new PostgreSQL database for each test; SQLite has this case")
    old = Settings(data_dir=kept_settings.data_dir, metadata_url=url)
    database = open_metadata(old)
    with database.engine.begin() as connection:
        upgrade_within(connection, "0017")
    database.close()
    place = tmp_path.parent / f"{tmp_path.name}-old"
    assert back_up(old, place, quiet).manifest.revision == "0017"
    assert check_backup(place).ok
    said = restore(elsewhere, place, quiet)
    assert any("older than this version" in step for step in said.next)
    restored = open_metadata(elsewhere)
    assert current_revision(restored) == "0017"
    bring_to_head(restored, may_migrate=True)
    assert current_revision(restored) == head_revision()
    restored.close()


def test_manifest_says_what_the_folder_holds(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert {file.name for file in manifest.files} | {MANIFEST} == {path.name for path in folder.iterdir()}
    assert any("archives" in name for name in manifest.not_included)


@pytest.mark.postgresql
def test_nothing_is_restored_into_a_database_with_anything(
    postgresql_database: Database, postgresql_url: str, tmp_path: Path
) -> None:
    InstanceLock(tmp_path).release()
    url = postgresql_database.url.render_as_string(hide_password=False)
    place = tmp_path.parent / f"{tmp_path.name}-kept"
    back_up(Settings(data_dir=tmp_path, metadata_url=url), place, quiet)
    there = Settings(data_dir=tmp_path / "new", metadata_url=postgresql_url)
    engine = sa.create_engine(postgresql_url, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("create view somebodys as select 1")
    with pytest.raises(NotKept) as error:
        restore(there, place, quiet)
    assert (error.value.code, error.value.exit_code) == ("DATABASE_NOT_EMPTY", 78)
    assert not there.data_dir.exists()
    with engine.begin() as connection:
        connection.exec_driver_sql("drop view somebodys")
    _change_a_table_file(place)
    with pytest.raises(NotKept) as error:
        restore(there, place, quiet)
    assert error.value.code == "BACKUP_INVALID"
    with engine.connect() as connection:
        assert sa.inspect(connection).get_table_names() == []


def _change_a_table_file(place: Path) -> None:
    path = place / "table-counters.copy"
    path.write_bytes(path.read_bytes().replace(b"\t0\n", b"\t7\n"))
