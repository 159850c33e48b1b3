"""`lethe metadata restore`: a backup into an empty data directory, and an empty database.

Rules:
- nothing is written before every byte of the backup was looked at, and each is looked at again as it is copied;
- a data directory is the restore's own by its instance lock, from its first file to its last;
- until the last file is there, a marker keeps each process of Lethe from starting on it (app/starting.py).
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from app.db import Database
from app.jobs.running.instances import ID_FILE, InstanceBusy, InstanceLock
from app.keeping import postgresql_copy, sqlite_copy
from app.keeping.backup import OWNER_ONLY, places_of
from app.keeping.check import check_backup
from app.keeping.errors import NotKept, misconfigured, not_now, translated
from app.keeping.folder import created, read_manifest, sync_folder, verified
from app.keeping.models import DATABASE, INSTANCE, Kept, Manifest, RestoreRead
from app.settings import Settings
from app.starting import UNFINISHED, open_metadata
from migrations.upgrade import head_revision, is_known

Say = Callable[[str], None]
SIDE_FILES = ("", "-wal", "-shm", "-journal")


def restore(settings: Settings, place: Path, say: Say) -> RestoreRead:
    """Bring a backup back.

    Raises: NotKept: the database is as empty as before; a data directory that was begun says so.
    """
    os.umask(OWNER_ONLY)
    with translated():
        database = open_metadata(settings)
    with translated(str(database.url.password) if database.url.password else None):
        try:
            manifest = _trusted(place, database, say)
            with _claimed(settings.data_dir):
                if database.is_sqlite:
                    _restore_sqlite(database, manifest, place, say)
                else:
                    postgresql_copy.check_empty(database)
                    postgresql_copy.restore(database, manifest, place, say)
                for name, path in places_of(settings.data_dir).items():
                    _restore_small(manifest, place, name, path)
            return _said(settings, database, manifest)
        finally:
            database.close()


def _trusted(place: Path, database: Database, say: Say) -> Manifest:
    """The manifest of a backup that is whole and fits.

    Raises: NotKept.
    """
    manifest = read_manifest(place)
    if not is_known(manifest.revision):
        raise misconfigured(
            "BACKUP_NEWER",
            f"the backup has schema revision {manifest.revision}, this version of Lethe {head_revision()}",
            f"Restore it by Lethe {manifest.lethe}, which made it, or a newer one.",
        )
    if (manifest.engine == "sqlite") != database.is_sqlite:
        raise misconfigured(
            "BACKUP_OF_ANOTHER_ENGINE",
            f"the backup is of {manifest.engine}, --metadata-url names another kind of database",
            "Name an empty PostgreSQL database by --metadata-url for a backup of one; else leave it out.",
        )
    say("checking the backup")
    said = check_backup(place)
    if said.problems:
        first = said.problems[0]
        more = f" ({len(said.problems) - 1} more problems)" if len(said.problems) > 1 else ""
        raise NotKept("BACKUP_INVALID", f"{first.detail}{more}", first.advice)
    return manifest


@contextmanager
def _claimed(data_dir: Path) -> Iterator[None]:
    """An empty data directory, which is ours for the block; it is marked where that does not end well.

    Raises: NotKept: it is not empty, or a service runs there.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    _refuse_unless_empty(data_dir)
    marker = data_dir / UNFINISHED
    try:
        with created(marker) as file:
            file.write(b"lethe metadata restore began here and has not ended\n")
        lock = os.open(data_dir / ID_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise not_now("DATA_DIRECTORY_IN_USE", f"somebody else begins to use {data_dir}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sync_folder(data_dir)
        yield
        sync_folder(data_dir)
        marker.unlink()
        sync_folder(data_dir)
    finally:
        os.close(lock)


def _refuse_unless_empty(data_dir: Path) -> None:
    found = sorted(path.name for path in data_dir.iterdir())
    if not found:
        return
    if ID_FILE in found:
        try:
            InstanceLock(data_dir).release()
        except InstanceBusy as error:
            detail = f"{error}: nothing is restored below a running service"
            raise not_now("DATA_DIRECTORY_IN_USE", detail, "Stop it, and name a new --data-dir.") from error
    raise misconfigured(
        "DATA_DIRECTORY_NOT_EMPTY",
        f"{data_dir} is not empty: it has {', '.join(found[:3])}",
        "Name a new folder by --data-dir, or move what is there away."
        + (" It is what a restore that was killed has left." if UNFINISHED in found else ""),
    )


def _restore_sqlite(database: Database, manifest: Manifest, place: Path, say: Say) -> None:
    target = Path(database.url.database or "")
    for suffix in SIDE_FILES:
        if os.path.lexists(f"{target}{suffix}"):
            detail = f"{target}{suffix} is there already"
            raise misconfigured("DATABASE_NOT_EMPTY", detail, "Name a new file by --metadata-url, or none.")
    kept = _named(manifest, DATABASE)
    assert kept is not None, "a manifest of SQLite without its database"
    say(f"copying {kept.bytes} bytes")
    with created(target) as file:
        for chunk in verified(place, kept):
            file.write(chunk)
    sync_folder(target.absolute().parent)


def _restore_small(manifest: Manifest, place: Path, name: str, path: Path) -> None:
    kept = _named(manifest, name)
    if kept is None:
        return
    content = b"".join(verified(place, kept))
    if name == INSTANCE:  # it is there, and locked
        with path.open("rb+") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        return
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with created(path) as file:
        file.write(content)
    sync_folder(path.parent)


def _named(manifest: Manifest, name: str) -> Kept | None:
    return next((kept for kept in manifest.files if kept.name == name), None)


def _said(settings: Settings, database: Database, manifest: Manifest) -> RestoreRead:
    stores = _stores(database)
    migrate = "" if manifest.revision == head_revision() else _MIGRATE[database.is_sqlite]
    return RestoreRead(
        data_dir=str(settings.data_dir.absolute()),
        engine=manifest.engine,
        revision=manifest.revision,
        instance_id=manifest.instance_id,
        stores=stores,
        next=[step for step in (*_BEFORE, migrate, *_AFTER) if step]
        + [f"lethe recover {store}" for store in stores],
    )


def _stores(database: Database) -> list[str]:
    if database.is_sqlite:
        return sqlite_copy.stores_of(Path(database.url.database or ""))
    with database.engine.connect() as connection:
        return [row[0] for row in connection.execute(sa.text("select id from stores order by id"))]


_MIGRATE = {
    True: "The schema is older than this version: `lethe serve` migrates it as it starts.",
    False: "The schema is older than this version: run `lethe migrate`, or `lethe serve --migrate`.",
}
_BEFORE = (
    "Make sure that the former service does not run any more: this one has its identity and its keys.",
)
_AFTER = (
    "Put archives and secrets back where the settings say; they are not in this backup.",
    "Start `lethe serve`. Jobs on a store that was worked on since the backup answer EPOCH_AHEAD. Where every"
    " store is ahead it ends with 78: add --offline --data-dir DIR to the commands below.",
    "Take each store back, once:",
)
