"""`lethe metadata backup`: the metadata, and what belongs to it in the data directory; a service may run.

Rules:
- the database is read first, in one snapshot: a key or token that is younger than the metadata gets known at
  the next start, while metadata that knows a key or token which is lost could not be mended;
- the manifest comes last (app/keeping/folder.py).
"""

import os
from collections.abc import Callable
from pathlib import Path

from app.clock import SystemClock
from app.db import Database
from app.erase.certificates.signing import FOLDER, KEY_FILE
from app.jobs.running.instances import ID_FILE
from app.keeping import postgresql_copy, sqlite_copy
from app.keeping.errors import NotKept, misconfigured, translated
from app.keeping.folder import created, make_folder, measured, opened, owner_only, write_manifest
from app.keeping.models import (
    DATABASE,
    INSTANCE,
    NOT_INCLUDED,
    SIGNING_KEY,
    TOKEN,
    BackupRead,
    Kept,
    Manifest,
)
from app.kit.texts.distribution import installed_version
from app.settings import Settings
from app.starting import open_metadata

SMALL_BYTES_MAX = 4_096
Say = Callable[[str], None]


def places_of(data_dir: Path) -> dict[str, Path]:
    """Where the files beside the database lie, by their names in a backup."""
    return {
        INSTANCE: data_dir / ID_FILE,
        TOKEN: data_dir / TOKEN,
        SIGNING_KEY: data_dir / FOLDER / KEY_FILE,
    }


def sqlite_file(database: Database) -> Path:
    """The file of SQLite metadata.

    Raises: NotKept: it is not there.
    """
    path = Path(database.url.database or "")
    if not path.is_file():
        raise misconfigured(
            "METADATA_NOT_FOUND",
            f"there is no metadata at {path}",
            "Name the data directory of the service by --data-dir, or its --metadata-url.",
        )
    return path


@owner_only()
def back_up(settings: Settings, place: Path, say: Say) -> BackupRead:
    """Write a backup into a new folder.

    Raises: NotKept: nothing in the folder is a backup then.
    """
    with translated():
        database = open_metadata(settings)
    with translated(str(database.url.password) if database.url.password else None):
        try:
            return _written(settings, database, place, say)
        finally:
            database.close()


def _written(settings: Settings, database: Database, place: Path, say: Say) -> BackupRead:
    if database.is_sqlite:
        sqlite_file(database)
    make_folder(place, settings.data_dir)
    say("reading the metadata")
    made_at = SystemClock().now()
    revision, kept = _snapshot(database, place, say)
    kept += _copies(settings.data_dir, place)
    manifest = Manifest(
        lethe=installed_version(),
        revision=revision,
        engine="sqlite" if database.is_sqlite else "postgresql",
        instance_id=(place / INSTANCE).read_text().strip(),
        made_at=made_at,
        files=kept,
        not_included=NOT_INCLUDED,
    )
    write_manifest(place, manifest)
    say(f"{len(kept)} files, {sum(file.bytes for file in kept)} bytes")
    return BackupRead(place=str(place.absolute()), manifest=manifest)


def _snapshot(database: Database, place: Path, say: Say) -> tuple[str, list[Kept]]:
    if not database.is_sqlite:
        return postgresql_copy.snapshot(database, place, say)
    copy = place / DATABASE
    sqlite_copy.snapshot(sqlite_file(database), copy)
    revision = sqlite_copy.revision_of(copy)
    if revision is None:
        raise misconfigured("METADATA_EMPTY", f"{sqlite_file(database)} holds no metadata of Lethe")
    return revision, [measured(copy)]


def _copies(data_dir: Path, place: Path) -> list[Kept]:
    """What lies beside the database; all of it is replaced by a rename and never changed in its place."""
    kept = []
    for name, path in places_of(data_dir).items():
        if not os.path.lexists(path):
            if name == INSTANCE:
                raise misconfigured(
                    "INSTANCE_ID_MISSING",
                    f"{path} is missing: no service has ever run on this data directory",
                    "Name the data directory of the service by --data-dir.",
                )
            continue
        with opened(path.parent, path.name) as file, created(place / name) as copy:
            copy.write(file.read(SMALL_BYTES_MAX + 1))
        kept.append(measured(place / name))
        if kept[-1].bytes > SMALL_BYTES_MAX:
            raise NotKept("FILE_TOO_LARGE", f"{path} is larger than {SMALL_BYTES_MAX} bytes: what is it?")
    return kept
