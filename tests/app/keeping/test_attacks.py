"""Backups that were changed, and places that are not free: refused, and nothing is written."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.db import Database
from app.jobs.running.instances import InstanceLock
from app.keeping.backup import back_up
from app.keeping.check import check_backup, check_live
from app.keeping.errors import NotKept
from app.keeping.folder import MANIFEST, read_manifest
from app.keeping.restore import restore
from app.settings import Settings
from app.starting import UNFINISHED, Misconfigured, using
from tests.app.keeping.conftest import Forge

CONFIGURATION, AGAIN = 78, 75
POSITIONS = 2
STRIDE = 5


def quiet(_text: str) -> None:
    """Nobody listens."""


@pytest.fixture
def database(sqlite_database: Database) -> Database:
    """One engine: what is read of a folder is the same on both."""
    return sqlite_database


@pytest.fixture
def elsewhere(tmp_path: Path) -> Settings:
    """Where a restore would go."""
    return Settings(data_dir=tmp_path / "restored")


def refused(settings: Settings, folder: Path) -> NotKept:
    """The error of a restore that leaves nothing."""
    with pytest.raises(NotKept) as found:
        restore(settings, folder, quiet)
    assert not settings.data_dir.exists() or not any(settings.data_dir.iterdir())
    return found.value


def test_a_flipped_byte_in_any_file_is_found_and_nothing_is_restored(
    folder: Path, elsewhere: Settings
) -> None:
    rng = Random(17)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for place in {0, len(whole) - 1, *(rng.randrange(len(whole)) for _ in range(POSITIONS))}:
            path.write_bytes(
                whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]
            )
            assert refused(elsewhere, folder).code == "BACKUP_INVALID", (path.name, place)
        path.write_bytes(whole)
    assert check_backup(folder).ok


def test_every_byte_of_the_manifest_counts(folder: Path) -> None:
    path = folder / MANIFEST
    whole = path.read_bytes()
    for place in range(0, len(whole), STRIDE):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(NotKept, match=MANIFEST):
            read_manifest(folder)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "signing/key", "table-../x.copy", ""]
)
def test_manifest_that_names_a_path_is_refused(
    folder: Path, forge: Forge, elsewhere: Settings, name: str
) -> None:
    files = json.loads((folder / MANIFEST).read_text())["files"]
    files[1]["name"] = name
    forge({"files": files})
    assert refused(elsewhere, folder).code == "BACKUP_INVALID"


@pytest.mark.parametrize("changes", [
    {"format": "lethe-metadata/2"}, {"files": []}, {"engine": "postgresql"}, {"revision": "../x"},
    {"files": "all"}, {"made_at": "yesterday"}, {"unknown": 1}, {"instance_id": "ins_of_somebody_else"},
])  # fmt: skip
def test_manifest_that_makes_no_sense_is_refused(
    folder: Path, forge: Forge, elsewhere: Settings, changes: dict[str, Any]
) -> None:
    forge(changes)
    assert refused(elsewhere, folder).code in {"BACKUP_INVALID", "BACKUP_OF_ANOTHER_ENGINE"}


def test_links_and_pipes_in_the_folder_are_not_followed(folder: Path, elsewhere: Settings) -> None:
    for name in ("admin.token", "lethe.db", MANIFEST):
        real = folder.parent / f"real-{name}"
        (folder / name).rename(real)
        (folder / name).symlink_to(real)  # of the very same bytes
        assert refused(elsewhere, folder).code == "BACKUP_INVALID", name
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert refused(elsewhere, folder).code == "BACKUP_INVALID", name
        (folder / name).unlink()
        real.rename(folder / name)
    assert check_backup(folder).ok


def test_backup_of_a_newer_schema_is_refused(folder: Path, forge: Forge, elsewhere: Settings) -> None:
    forge({"revision": "9999"})
    error = refused(elsewhere, folder)
    assert (error.code, error.exit_code) == ("BACKUP_NEWER", CONFIGURATION)


def test_folder_without_a_manifest_is_no_backup(folder: Path, elsewhere: Settings) -> None:
    (folder / MANIFEST).rename(folder / f"{MANIFEST}.new")
    assert refused(elsewhere, folder).code == "BACKUP_UNFINISHED"
    with pytest.raises(NotKept, match="no manifest"):
        check_backup(folder)


def test_nothing_is_backed_up_over_something(kept_settings: Settings, folder: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    linked = folder.parent / "linked"
    linked.symlink_to(folder.parent / "nowhere")
    places = [folder, folder / MANIFEST, linked, tmp_path / "inside-the-data-directory"]
    for place in places:
        with pytest.raises(NotKept) as error:
            back_up(kept_settings, place, quiet)
        assert error.value.exit_code == CONFIGURATION or place == folder / MANIFEST, place
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_is_restored_over_something(folder: Path, elsewhere: Settings) -> None:
    there = elsewhere.data_dir
    there.mkdir()
    (there / "somebodys").write_text("file")
    with pytest.raises(NotKept) as error:
        restore(elsewhere, folder, quiet)
    assert (error.value.code, error.value.exit_code) == ("DATA_DIRECTORY_NOT_EMPTY", CONFIGURATION)
    assert [path.name for path in there.iterdir()] == ["somebodys"]
    other = Settings(data_dir=there.parent / "other", metadata_url=f"sqlite:///{there}/somebodys")
    assert refused(other, folder).code == "DATABASE_NOT_EMPTY"
    assert (there / "somebodys").read_text() == "file"


def test_nothing_is_restored_below_a_running_service(folder: Path, elsewhere: Settings) -> None:
    lock = InstanceLock(elsewhere.data_dir)
    with pytest.raises(NotKept) as error:
        restore(elsewhere, folder, quiet)
    lock.release()
    assert (error.value.code, error.value.exit_code) == ("DATA_DIRECTORY_IN_USE", AGAIN)


def test_restore_that_was_killed_keeps_every_process_from_starting(folder: Path, elsewhere: Settings) -> None:
    restore(elsewhere, folder, quiet)
    (elsewhere.data_dir / UNFINISHED).touch()  # as a kill before the last step leaves it
    with pytest.raises(Misconfigured, match="did not end"), using(elsewhere.data_dir):
        raise AssertionError("it was used")
    with pytest.raises(NotKept, match="killed has left"):
        restore(elsewhere, folder, quiet)


def test_live_check_tells_what_is_broken(kept_settings: Settings, database: Database) -> None:
    assert check_live(kept_settings).ok
    key = kept_settings.data_dir / "signing" / "key"
    key.write_bytes(b"short")
    with database.engine.connect() as connection:
        connection.exec_driver_sql("commit")
        connection.exec_driver_sql("pragma foreign_keys = off")
        connection.exec_driver_sql(
            "insert into job_events (job_id, seq, at, type, data)"
            " values ('job_x', 1, '2026-01-01', 'x', '{}')"
        )
        connection.exec_driver_sql("alter table windows rename to somewhere")
        connection.exec_driver_sql("begin")
    said = check_live(kept_settings)
    codes = {problem.code for problem in said.problems}
    assert codes == {"SIGNING_KEY_UNUSABLE", "REFERENCE_BROKEN", "SCHEMA_DIFFERS"}
    assert all(problem.advice for problem in said.problems)


def test_live_check_finds_a_damaged_page(kept_settings: Settings, database: Database, folder: Path) -> None:
    database.close()
    file = kept_settings.data_dir / "lethe.db"
    shutil.copy(folder / "lethe.db", file)
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    whole = bytearray(file.read_bytes())
    whole[4096 * 10 : 4096 * 12] = bytes(8192)
    file.write_bytes(whole)
    said = check_live(kept_settings)
    assert not said.ok
    assert "DATABASE_DAMAGED" in {problem.code for problem in said.problems}


def test_nothing_to_back_up_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotKept) as error:
        back_up(Settings(data_dir=tmp_path / "none"), tmp_path / "backup", quiet)
    assert (error.value.code, error.value.exit_code) == ("METADATA_NOT_FOUND", CONFIGURATION)
    assert not (tmp_path / "backup").exists()
