"""`lethe metadata check`: of a backup, or of the metadata that is in use; nothing is written."""

from pathlib import Path

import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.db import Database
from app.erase.certificates.signing import KEY_BYTES, Signer
from app.keeping import postgresql_copy, sqlite_copy
from app.keeping.backup import places_of, sqlite_file
from app.keeping.errors import NotKept, translated
from app.keeping.folder import INVALID_ADVICE, opened, read_manifest, verified
from app.keeping.models import DATABASE, INSTANCE, SIGNING_KEY, TOKEN, CheckRead, Manifest
from app.kit.metadata.engines import wait_without_end
from app.settings import Settings
from app.starting import open_metadata
from app.tables import metadata
from migrations.revisions import head_revision, is_known

LIVE_ADVICE = "Stop the service, keep a copy of what is there, and restore the last good backup."
KEY_ADVICE = "Restore the key from a backup. Move it away only if there is none: a new one is made then."
NEWER_ADVICE = "Use the version of Lethe that made it, or a newer one."
BROKEN_REFERENCES = "select conname from pg_constraint where contype = 'f' and not convalidated"


def check_backup(place: Path) -> CheckRead:
    """Look at each byte of a backup.

    Raises: NotKept: it is no backup at all.
    """
    with translated():
        manifest = read_manifest(place)
        said = CheckRead(
            subject="BACKUP",
            place=str(place.absolute()),
            engine=manifest.engine,
            revision=manifest.revision,
            revision_of_this_program=head_revision(),
            made_at=manifest.made_at,
            instance_id=manifest.instance_id,
        )
        _look_at_files(place, manifest, said)
        _look_at_revision(said)
    said.ok = not said.problems
    return said


def _look_at_files(place: Path, manifest: Manifest, said: CheckRead) -> None:
    intact = set()
    for kept in manifest.files:
        try:
            for _ in verified(place, kept):
                pass
            intact.add(kept.name)
        except NotKept as error:
            said.blame(error.code, error.detail, error.advice)
    if INSTANCE in intact and _small(place, INSTANCE).decode().strip() != manifest.instance_id:
        said.blame("INSTANCE_ID_DIFFERS", "the instance id is not that of the manifest", INVALID_ADVICE)
    if SIGNING_KEY in intact:
        _look_at_key(_small(place, SIGNING_KEY), said, INVALID_ADVICE)
    said.rows = {str(kept.table): kept.rows or 0 for kept in manifest.tables}
    if DATABASE in intact:
        sqlite_copy.examine(place / DATABASE, said, alone=True, advice=INVALID_ADVICE)
        if said.revision != manifest.revision:
            detail = f"the database is at revision {said.revision}, not {manifest.revision}"
            said.blame("REVISION_DIFFERS", detail, INVALID_ADVICE)


def _look_at_revision(said: CheckRead) -> None:
    head, found = said.revision_of_this_program, said.revision
    if found == head:
        return
    if found is None:
        said.blame("METADATA_EMPTY", "there is no schema in it", LIVE_ADVICE)
    elif not is_known(found):
        said.blame(
            "SCHEMA_NEWER", f"revision {found} was made by a newer Lethe (ours is {head})", NEWER_ADVICE
        )
    elif said.subject == "LIVE":
        detail = f"revision {found} is older than this version's {head}"
        said.blame("SCHEMA_OLDER", detail, "Run `lethe migrate`; take a backup before.")
    else:
        said.notes.append(f"it is older than this version: `lethe migrate` brings it from {found} to {head}")


def _look_at_key(raw: bytes, said: CheckRead, advice: str) -> None:
    if len(raw) != KEY_BYTES:
        said.blame("SIGNING_KEY_UNUSABLE", f"the signing key has {len(raw)} bytes, not {KEY_BYTES}", advice)
        return
    said.signing_key_id = Signer(Ed25519PrivateKey.from_private_bytes(raw)).key_id


def _small(place: Path, name: str) -> bytes:
    with opened(place, name) as file:
        return file.read()


def check_live(settings: Settings) -> CheckRead:
    """Look at the metadata that a service uses, or would use; one may run.

    Raises: NotKept: it is away, or there is none.
    """
    with translated():
        database = open_metadata(settings)
    with translated(str(database.url.password) if database.url.password else None):
        said = CheckRead(
            subject="LIVE",
            place=str(settings.data_dir.absolute()),
            engine="sqlite" if database.is_sqlite else "postgresql",
            revision_of_this_program=head_revision(),
        )
        try:
            if database.is_sqlite:
                sqlite_copy.examine(sqlite_file(database), said, alone=False, advice=LIVE_ADVICE)
            else:
                _look_at_server(database, said)
            _look_at_revision(said)
            if said.revision == said.revision_of_this_program:
                _look_at_schema(database, said)
            _look_at_data_dir(settings.data_dir, said)
        finally:
            database.close()
    said.ok = not said.problems
    return said


def _look_at_server(database: Database, said: CheckRead) -> None:
    with database.engine.connect() as connection:
        names = sorted(sa.inspect(connection).get_table_names())
        if postgresql_copy.VERSIONS not in names:
            return
        said.revision = postgresql_copy.revision_of(connection)
        wait_without_end(connection)
        connection.exec_driver_sql("set local statement_timeout = 0")
        for name in names:  # reads each row: a page that cannot be read is an error here
            count = sa.select(sa.func.count()).select_from(sa.table(name))
            said.rows[name] = connection.execute(count).scalar_one()
        for (name,) in connection.execute(sa.text(BROKEN_REFERENCES)):
            said.blame("REFERENCE_UNCHECKED", f"the foreign key {name} is not valid", LIVE_ADVICE)
        if "stores" in names:
            said.stores = [row[0] for row in connection.execute(sa.text("select id from stores order by id"))]


def _look_at_schema(database: Database, said: CheckRead) -> None:
    with database.engine.connect() as connection:
        inspector = sa.inspect(connection)
        there = {
            name: {column["name"] for column in inspector.get_columns(name)}
            for name in inspector.get_table_names()
        }
    for name, table in metadata.tables.items():
        lacking = {column.name for column in table.columns} - there.get(name, set())
        if lacking:
            detail = f"table {name} lacks {', '.join(sorted(lacking))}, which its revision has"
            said.blame("SCHEMA_DIFFERS", detail, LIVE_ADVICE)


def _look_at_data_dir(data_dir: Path, said: CheckRead) -> None:
    found = {}
    for name, path in places_of(data_dir).items():
        if not path.exists():
            continue
        try:
            found[name] = _small(path.parent, path.name)
        except (NotKept, OSError) as error:
            detail = error.detail if isinstance(error, NotKept) else f"{path}: {error.strerror}"
            said.blame("FILE_UNREADABLE", detail, "Run this as the account of the service.")
    if INSTANCE in found:
        said.instance_id = found[INSTANCE].decode(errors="replace").strip()
    else:
        said.notes.append("no service has run on this data directory yet: it has no instance id")
    if SIGNING_KEY in found:
        _look_at_key(found[SIGNING_KEY], said, KEY_ADVICE)
    elif SIGNING_KEY not in found and said.rows.get("signing_keys"):
        said.notes.append("there is no signing key here: one is made with the next certificate")
    if TOKEN not in found:
        said.notes.append("there is no admin.token here: the next start of `lethe serve` makes one")
