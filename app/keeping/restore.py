"""`lethe metadata restore`: a backup into an empty data directory, and an empty database.

Rules:
- nothing is written before every byte of the backup was looked at; each is looked at again as it is copied;
- a data directory is the restore's own by its instance lock, from its first file to its last;
- until the last file is there, a marker keeps each process of Lethe from starting on it (app/starting.py).
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from app.audit.witness import NOTE
from app.clock import SystemClock
from app.db import Database
from app.jobs.running.instances import ID_FILE
from app.keeping import postgresql_copy, sqlite_copy
from app.keeping.backup import places_of
from app.keeping.check import check_backup
from app.keeping.errors import NotKept, misconfigured, not_now, translated
from app.keeping.folder import created, owner_only, read_manifest, sync_folder, verified
from app.keeping.models import DATABASE, INSTANCE, Kept, Manifest, RestoreRead
from app.kit.ids import new_id
from app.settings import Settings
from app.starting import UNFINISHED, open_metadata
from migrations.revisions import head_revision, is_known

Say = Callable[[str], None]
SIDE_FILES = ("", "-wal", "-shm", "-journal")


@owner_only()
def restore(settings: Settings, place: Path, say: Say) -> RestoreRead:
    """Bring a backup back.

    Raises: NotKept: database and data directory are as empty as before.
    """
    with translated():
        database = open_metadata(settings)
    with translated(str(database.url.password) if database.url.password else None):
        try:
            manifest = _trusted(place, database, say)
            _refuse_unless_empty(settings.data_dir, database)
            with _claimed(settings.data_dir):
                for name, path in places_of(settings.data_dir).items():
                    _restore_small(manifest, place, name, path)
                _note(settings.data_dir, manifest)
                if database.is_sqlite:
                    _restore_sqlite(Path(database.url.database or ""), manifest, place, say)
                else:
                    postgresql_copy.restore(database, manifest, place, say)
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


def _refuse_unless_empty(data_dir: Path, database: Database) -> None:
    """Raises: NotKept: there is something where the backup would go."""
    found = sorted(path.name for path in data_dir.iterdir()) if data_dir.is_dir() else []
    if ID_FILE in found and _is_locked(data_dir / ID_FILE):
        detail = f"a service runs in {data_dir}: nothing is restored below it"
        raise not_now("DATA_DIRECTORY_IN_USE", detail, "Stop it, and name a new folder by --data-dir.")
    if found or (os.path.lexists(data_dir) and not data_dir.is_dir()):
        left = " It is what a restore that was killed has left." if UNFINISHED in found else ""
        raise misconfigured(
            "DATA_DIRECTORY_NOT_EMPTY",
            f"{data_dir} is no empty folder: it has {', '.join(found[:3]) or 'a file in its place'}.{left}",
            "Name a new folder by --data-dir, or move what is there away.",
        )
    if not database.is_sqlite:
        postgresql_copy.check_empty(database)
        return
    for suffix in SIDE_FILES:
        if os.path.lexists(target := f"{database.url.database}{suffix}"):
            detail = f"{target} is there already"
            raise misconfigured("DATABASE_NOT_EMPTY", detail, "Name a new file by --metadata-url, or none.")


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def _claimed(data_dir: Path) -> Iterator[None]:
    """An empty data directory that is ours for the block, and is empty again where the block fails.

    Raises: NotKept: somebody else has begun to use it.
    """
    data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    marker = data_dir / UNFINISHED
    try:
        with created(marker) as file:
            file.write(b"lethe metadata restore has begun here, and has not ended\n")
    except FileExistsError as error:
        raise not_now("DATA_DIRECTORY_IN_USE", f"another restore works in {data_dir}") from error
    with ExitStack() as undoing:
        undoing.callback(marker.unlink)
        lock = _locked(data_dir)
        try:
            undoing.callback(_emptied, data_dir)
            sync_folder(data_dir)
            yield
            undoing.pop_all()
            sync_folder(data_dir)
            marker.unlink()
            sync_folder(data_dir)
        finally:
            os.close(lock)


def _locked(data_dir: Path) -> int:
    """The instance lock of a directory that has none yet; raises NotKept."""
    try:
        lock = os.open(data_dir / ID_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise not_now("DATA_DIRECTORY_IN_USE", f"a service begins to use {data_dir}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise not_now("DATA_DIRECTORY_IN_USE", f"a service begins to use {data_dir}") from error
    return lock


def _emptied(data_dir: Path) -> None:
    """Remove what this restore has made; the marker goes last."""
    (data_dir / NOTE).unlink(missing_ok=True)
    for path in places_of(data_dir).values():
        path.unlink(missing_ok=True)
        if path.parent != data_dir and path.parent.is_dir():
            path.parent.rmdir()


def _restore_sqlite(target: Path, manifest: Manifest, place: Path, say: Say) -> None:
    kept = _named(manifest, DATABASE)
    assert kept is not None, "a manifest of SQLite without its database"
    say(f"copying {kept.bytes} bytes")
    with ExitStack() as undoing, created(target) as file:
        undoing.callback(target.unlink)
        for chunk in verified(place, kept):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
        undoing.pop_all()
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


def _note(data_dir: Path, manifest: Manifest) -> None:
    """What the next start tells in the audit: that the metadata is of the past."""
    said = {
        "id": new_id("res"),
        "backup_made_at": manifest.made_at.isoformat(),
        "restored_at": SystemClock().now().isoformat(),
        "uid": os.getuid(),
    }
    with created(data_dir / NOTE) as file:
        file.write(json.dumps(said).encode())


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
    "Tokens, schedules and webhooks are those of the backup's time: revoke, pause, remove and rotate again"
    " what was so since. Jobs that remove something are paused until you resume or abort them.",
    "Copy archives and secrets to where the settings say; they are not in this backup.",
    "Start `lethe serve`. Jobs on a store that was worked on since the backup answer EPOCH_AHEAD. Where every"
    " store is ahead it ends with 78: add --offline --data-dir DIR to the commands below.",
    "Take each store back, once:",
)
