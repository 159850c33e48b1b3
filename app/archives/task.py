"""The tasks of archives: verify every file, restore rows into a file, a schema or the live tables."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.archives.models import RestoreInto
from app.archives.rows import Archive
from app.archives.service import entries_on_disk, get_archive
from app.archives.verifying import UNIT, checks_here, checks_on, choose_engine
from app.errors import ServiceError
from app.jobs.engines.choice import Engines
from app.jobs.errors import JobFailed, JobStopped
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import claim, controlled, read_store_of
from app.jobs.running.suspension import awake_store
from app.jobs.service import whole_of
from app.stores.borders import is_of_a_store
from app.stores.rows import Store
from app.stores.targets import session_limits, target_of
from spark.targets.archive.restore import (
    published_before,
    restore_into_file,
    restore_into_schema,
    restore_live,
)
from spark.targets.archive.restored_file import Attempt, FileMark
from spark.targets.archive.schemas import identity_beside
from spark.targets.archive.units import RestoreReport
from spark.targets.connection import Connection, connect
from spark.targets.errors import ArchiveCorrupt, RestoreConflict, TargetError
from spark.targets.ledger import archive_manifest, has_ledger
from spark.targets.manifest import ManifestEntry, lying_in

SHOWN_MAX = 200
CHECKPOINT_FILE = "restored_file"
"""Which file the restore made, before it has its name, and what is in it."""


def run_verify(context: JobContext, *, engines: Engines) -> Mapping[str, Any]:
    """Read every file of an archive and compare hash and row count.

    Raises: JobFailed: ARCHIVE_CORRUPT, with the files; ARCHIVE_FAILED: workers do not see them.
    """
    row = _archive(context)
    directory = Path(row.directory)
    entries, source = _entries(context, row)
    engine = choose_engine(context, engines, directory, entries)
    if engine.name == "SPARK" and entries:
        checks = checks_on(context, engine, directory, entries)
    else:
        checks = list(checks_here(context, entries))
    bad = [check for check in checks if check.state != "OK"]
    result = {
        "files": len(checks),
        "rows": sum(check.entry.rows for check in checks),
        "manifest": source,
        "bad": [
            {"path": check.entry.path, "state": check.state, "detail": check.detail}
            for check in bad[:SHOWN_MAX]
        ],
    }
    context.progress(unit=UNIT, done=len(entries), total=len(entries), force=True)
    if bad:
        names = ", ".join(Path(check.entry.path).name for check in bad[:10])
        raise JobFailed("ARCHIVE_CORRUPT", f"{len(bad)} of {len(checks)} files: {names}", result=result)
    return result


def _archive(context: JobContext) -> Archive:
    """The archive that the job is asked for."""
    archived = str(context.job.params["archive"])
    return context.read(lambda db: get_archive(db, archived))


def _entries(context: JobContext, row: Archive) -> tuple[list[ManifestEntry], str]:
    """The valid files: by the target's ledger, else the manifest beside them, else all that are whole.

    None only where the ledger knows of none and none was ever counted: a purge that removed nothing.

    Raises: JobFailed: ARCHIVE_EMPTY, ARCHIVE_CORRUPT.
    """
    is_empty = False
    with suppress(TargetError, ServiceError):
        store = read_store_of(context)
        with connect(
            target_of(store, context.settings, context.database),
            application_name="lethe:archive",
            limits=session_limits(context.settings),
        ) as conn:
            kept_here = has_ledger(conn)
            entries = archive_manifest(conn, row.job_id) if kept_here else []
            if entries:
                return lying_in(Path(row.directory), entries), "LEDGER"
            is_empty = kept_here and row.files == 0
    try:
        found, from_manifest = entries_on_disk(Path(row.directory))
    except ArchiveCorrupt as error:
        raise JobFailed("ARCHIVE_CORRUPT", error.detail) from error
    if not found and is_empty:
        return [], "LEDGER"
    if not found:
        raise JobFailed("ARCHIVE_EMPTY", f"there is no archive file under {row.directory}")
    return found, "MANIFEST" if from_manifest else "FILES"


def run_restore(context: JobContext) -> Mapping[str, Any]:
    """Bring archived rows back.

    Raises: JobFailed: RESTORE_REFUSED when units were refused; the others are restored.
    """
    entries, source = _entries(context, _archive(context))
    if not entries:
        raise JobFailed("ARCHIVE_EMPTY", "the purge removed nothing: there is nothing to bring back")
    into = RestoreInto.model_validate(context.job.params["into"])
    done = _restore(context, entries, into)
    result = {
        "units": done["units"],
        "rows": done["rows"],
        "skipped": done["skipped"],
        "manifest": source,
        "refused": done["refused"],
        "warnings": _marks_left(context) if into.live else [],
    }
    if done["refused_units"]:
        detail = f"{done['refused_units']} of {done['units']} units were refused; the others are restored"
        raise JobFailed("RESTORE_REFUSED", detail, result=result)
    return result


def _summary(report: RestoreReport) -> dict[str, Any]:
    """What became of all units; of those refused, the first."""
    refused = [
        {"unit_id": unit.unit_id, "table": unit.table_name, "state": unit.state, "detail": unit.detail}
        for unit in report.refused[:SHOWN_MAX]
    ]
    return {
        "units": len(report.units),
        "rows": report.rows,
        "skipped": sum(unit.skipped for unit in report.units),
        "refused_units": len(report.refused),
        "refused": refused,
    }


def _marks_left(context: JobContext) -> list[dict[str, Any]]:
    """What a restore does not undo: an archive has a marked batch as it was removed, after the mark."""
    archived = str(context.job.params["archive"])
    purge = context.read(lambda db: db.get(Job, archived))
    marked = ((purge.result if purge is not None else None) or {}).get("stranded", {}).get("marked") or 0
    if not marked:
        return []
    detail = (
        f"{marked} batches of disabled or absent nodes were marked OK by the purge and are OK still: their"
        " nodes do not get them by this; give the batches back their status where they should"
    )
    return [{"code": "MARKS_NOT_UNDONE", "count": marked, "detail": detail}]


def _restore(context: JobContext, entries: list[ManifestEntry], into: RestoreInto) -> dict[str, Any]:
    should_stop: Callable[[], bool] = lambda: context.stop_cause is not None  # noqa: E731
    if into.file is not None:
        return _into_file(context, entries, Path(into.file), should_stop)
    store = awake_store(context)
    with controlled(context, store) as conn:
        claimed = claim(context, conn, resource=_resource(context, into), queue=False)
        fence = (claimed.resource, context.job.token) if claimed.has_ledger else None
        if into.schema_name is not None:
            _require_free(context, conn, store, into.schema_name)
            report = restore_into_schema(
                conn, into.schema_name, entries, fence=fence, should_stop=should_stop
            )
        else:
            report = restore_live(conn, entries, fence=fence, should_stop=should_stop)
    return _whole(context, report)


def _require_free(context: JobContext, conn: Connection, store: Store, schema: str) -> None:
    """Live tables of another store have the same names where tenants have a schema each.

    Raises: JobFailed: RESTORE_CONFLICT.
    """
    if conn.dialect.name == "sqlite":  # which has no schemas, and says so
        return
    proof = identity_beside(conn, schema)
    if context.read(lambda db: is_of_a_store(db, store, schema, proof)):
        detail = f"{schema} holds the live tables of another store: restore into a schema of its own"
        raise JobFailed("RESTORE_CONFLICT", detail)


def _whole(context: JobContext, report: RestoreReport) -> dict[str, Any]:
    if report.stopped:
        context.check()
    return _summary(report)


def _resource(context: JobContext, into: RestoreInto) -> str:
    """The tables that a restore writes: the live ones, or those of its schema."""
    if into.schema_name is not None:
        return f"{into.schema_name}.restore"
    return whole_of(_archive(context).resource)


def _into_file(
    context: JobContext, entries: list[ManifestEntry], path: Path, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    attempt = Attempt(context.job.id, context.job.token)
    roots = session_limits(context.settings).roots
    known = context.checkpoint(CHECKPOINT_FILE)
    mark = FileMark(**known["mark"]) if known else None

    def note(mark: FileMark, report: RestoreReport) -> None:
        context.save_checkpoint(CHECKPOINT_FILE, {"mark": asdict(mark), "done": _summary(report)})

    try:
        if published_before(path, attempt, mark, roots=roots) and known:
            return dict(known["done"])
        report = restore_into_file(
            entries, path, attempt=attempt, roots=roots, should_stop=should_stop, before_publish=note
        )
    except RestoreConflict as error:
        raise JobFailed(error.code, error.detail) from error
    except TargetError as error:
        cause = context.stop_cause
        if cause is not None:
            raise JobStopped(cause) from error
        raise JobFailed(error.code, error.detail) from error
    return _whole(context, report)
