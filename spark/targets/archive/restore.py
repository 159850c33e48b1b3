"""Bring archived rows back: into a new SQLite file, a schema beside the live tables, or the live tables.

Rules:
- One transaction per unit. A unit whose file fails its check, or whose keys are taken, changes nothing, is
  reported, and the others go on.
- Repeating a restore changes nothing more.
- The live tables get batches before events before data: a row whose batch is not there yet would look
  stranded to the engine's own purge. Others get parents before children, as foreign keys say, and within a
  table that refers to itself what went last comes first. A unit that still lacks a parent comes again after
  the others, as long as any of them gets in; what is left is refused, and says what to do.
Source: design.md, 'Purge', `archive`.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from spark.targets.archive.archive import read_shape
from spark.targets.archive.changed import changed_by
from spark.targets.archive.columns import TableShape, describe_table
from spark.targets.archive.insert import (
    Inserted,
    add_file_table,
    create_like,
    insert_again,
    insert_live,
    insert_missing,
)
from spark.targets.archive.parents import Parents, in_a_circle, parents_first, parents_of
from spark.targets.archive.restored_file import (
    Attempt,
    FileMark,
    create_draft,
    draft_of,
    mark_of,
    publish,
    remove_draft,
    remove_earlier_drafts,
)
from spark.targets.archive.schemas import live_schema, relations_of, schema_exists
from spark.targets.archive.sqlite import insert_rows
from spark.targets.archive.units import (
    LIVE_ORDER,
    ArchivedUnit,
    RestoredUnit,
    RestoreReport,
    archived_units,
    damage_of,
    names_of,
    rank_of,
    restored,
)
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import (
    ArchiveCorrupt,
    RestoreConflict,
    TargetError,
    TargetParentMissing,
    TargetPathRefused,
    TargetRowConflict,
    TargetSchemaUnsupported,
    TargetTablesMissing,
)
from spark.targets.fence import check_fence
from spark.targets.files.beneath import is_within
from spark.targets.ledger import LedgerRow, find_unit, has_ledger, record_unit
from spark.targets.manifest import ManifestEntry
from spark.targets.sqlite_opening import OUTSIDE

ShouldStop = Callable[[], bool]
RESTORE_STEP = "RESTORE"
FOREIGN_SHOWN = 5
GENERATED_ALWAYS = "428C9"


def restore_into_file(
    entries: Sequence[ManifestEntry],
    path: Path,
    *,
    attempt: Attempt,
    roots: tuple[str, ...] = (),
    should_stop: ShouldStop | None = None,
    before_publish: Callable[[FileMark, RestoreReport], None] | None = None,
) -> RestoreReport:
    """Write the rows into a new SQLite file with the tables of the archive.

    The file appears when the restore has come to its end, not before.

    Args:
        attempt: whose draft it is until then.
        roots: resolved directories in which it may lie; none: anywhere.
        before_publish: gets what tells this file from others, and what the restore did. The file appears
            after it.
    Raises: RestoreConflict: the file exists. ArchiveFailed: the disk refused. TargetPathRefused.
    """
    path = _allowed(path, roots)
    if os.path.lexists(path):
        raise RestoreConflict(f"{path} exists already")
    draft = draft_of(path, attempt)
    create_draft(draft)
    try:
        limits = SessionLimits(roots=roots)
        with connect(Target(f"sqlite:///{draft}"), application_name="lethe-restore", limits=limits) as conn:
            if entries:
                _match_encoding(conn, entries)
            report = _each(entries, lambda unit, shape: _into_file(conn, unit, shape), should_stop)
        if not report.stopped:
            if before_publish is not None:
                before_publish(mark_of(draft), report)
            publish(draft, path)
        return report
    finally:
        remove_draft(draft)


def published_before(path: Path, attempt: Attempt, mark: FileMark | None, *, roots: tuple[str, ...]) -> bool:
    """Whether the file of an earlier attempt is there; from now on none of them can put it there.

    Args:
        mark: reads what an earlier attempt gave to `before_publish`; None: none came so far.
    Raises: ArchiveFailed: the disk refused. TargetPathRefused.
    """
    path = _allowed(path, roots)
    remove_earlier_drafts(path, attempt)
    return mark is not None and os.path.lexists(path) and mark_of(path) == mark


def _allowed(path: Path, roots: tuple[str, ...]) -> Path:
    path = Path(os.path.realpath(path.parent), path.name)
    if not is_within(str(path), roots):
        raise TargetPathRefused(OUTSIDE)
    return path


def restore_into_schema(
    conn: Connection,
    schema: str,
    entries: Sequence[ManifestEntry],
    *,
    fence: tuple[str, int] | None = None,
    should_stop: ShouldStop | None = None,
) -> RestoreReport:
    """Write the rows into a schema (MySQL: a database), which is created, with tables like the live ones.

    Rows that are there already, and are the same, are left; a different row under the same key is a conflict.

    Args:
        fence: resource and token that every unit checks first.
    Raises: TargetSchemaUnsupported: SQLite. RestoreConflict: it is the schema of the live tables, or
        of somebody else's. FenceRaised.
    """
    if conn.dialect.name == "sqlite":
        raise TargetSchemaUnsupported("SQLite has no schemas: restore into a file")
    if schema == live_schema(conn):
        raise RestoreConflict(f"{schema} holds the live tables")
    _refuse_foreign(conn, schema, {entry.table_name for entry in entries})
    if not schema_exists(conn, schema):
        conn.execute(f"create schema if not exists {conn.dialect.quote(schema)}")

    def into_schema(unit: ArchivedUnit, shape: TableShape) -> RestoredUnit:
        _same_dialect(conn, shape)
        if conn.dialect.name == "mysql":  # whose DDL ends every transaction
            create_like(conn, schema, shape)
        with conn.transaction():
            if fence is not None:
                check_fence(conn, fence[0], token=fence[1])
            with suppress(TargetTablesMissing):  # then the table is like the archived one
                _same_values(shape, describe_table(conn, shape.table))
            if conn.dialect.name != "mysql":
                create_like(conn, schema, shape)
            done = insert_missing(conn, schema, shape, unit.rows(shape))
        return restored(unit, done)

    return _each(entries, into_schema, should_stop)


def _refuse_foreign(conn: Connection, schema: str, ours: set[str]) -> None:
    """A schema that holds more than restored tables is in use: another store's, Lethe's own, the server's."""
    found = relations_of(conn, schema)
    foreign = [name for name in found if name not in ours and not name.endswith(LIVE_ORDER)]
    if foreign:
        raise RestoreConflict(
            f"{schema} holds {', '.join(foreign[:FOREIGN_SHOWN])}: not a schema of restores"
        )


def restore_live(
    conn: Connection,
    entries: Sequence[ManifestEntry],
    *,
    fence: tuple[str, int] | None = None,
    should_stop: ShouldStop | None = None,
) -> RestoreReport:
    """Write the rows back into the tables that they came from; any key that is taken refuses its unit.

    Args:
        fence: resource and token that every unit checks first.
    Raises: FenceRaised; TargetLockTimeout and other transient errors: repeat, what was done is found again.
    """
    ledger = has_ledger(conn)

    def into_live(unit: ArchivedUnit, shape: TableShape) -> RestoredUnit:
        _same_dialect(conn, shape)
        with conn.transaction():
            if fence is not None:
                check_fence(conn, fence[0], token=fence[1])
            live = describe_table(conn, shape.table)
            _same_values(shape, live)
            if ledger and find_unit(conn, unit.first.job_id, _ledger_id(unit)) is not None:
                # Restored once, but a later purge may have taken the rows again.
                return restored(unit, insert_again(conn, shape, unit.rows(shape)))
            if not live.primary_key:
                raise RestoreConflict(f"{shape.table} has no primary key: a conflict would not be seen")
            done = insert_live(conn, live, shape, unit.rows(shape))
            if ledger:
                record_unit(conn, _ledger_row(unit, done))
        return restored(unit, done)

    return _each_live(conn, entries, into_live, should_stop)


def _each_live(
    conn: Connection,
    entries: Sequence[ManifestEntry],
    restore: Callable[[ArchivedUnit, TableShape], RestoredUnit],
    should_stop: ShouldStop | None,
) -> RestoreReport:
    """Parents before children; round after round while units get in that lacked a parent before."""
    parents = parents_of(conn, {entry.table_name for entry in entries})
    found: list[RestoredUnit] = []
    waiting = _in_live_order(archived_units(entries), parents)
    while waiting:
        later: list[tuple[ArchivedUnit, str]] = []
        for unit in waiting:
            if should_stop is not None and should_stop():
                return RestoreReport(tuple(found), stopped=True)
            try:
                found.append(damage_of(unit) or _attempt(unit, restore))
            except TargetParentMissing as exc:
                later.append((unit, exc.detail))
        if len(later) == len(waiting):
            found += _orphans(later, parents)
            break
        waiting = [unit for unit, _ in later]
    return RestoreReport(tuple(found))


def _in_live_order(units: Sequence[ArchivedUnit], parents: Parents) -> list[ArchivedUnit]:
    place = {table: number for number, table in enumerate(parents_first(parents))}

    def key(unit: ArchivedUnit) -> tuple[int, int, int]:
        table = unit.first.table_name
        return rank_of(table), place[table], -_written_ns(unit) if table in parents[table] else 0

    return sorted(units, key=key)


def _written_ns(unit: ArchivedUnit) -> int:
    """When its file was written, before its rows went; one that is not there is told of later."""
    with suppress(OSError):
        return os.stat(unit.first.path).st_mtime_ns
    return 0


def _orphans(left: Sequence[tuple[ArchivedUnit, str]], parents: Parents) -> list[RestoredUnit]:
    """Units whose rows need rows that did not come back."""
    circle = in_a_circle(parents, {unit.first.table_name for unit, _ in left})
    todo = "restore the rows that they need first, then this archive again"
    if circle:
        todo = (
            f"rows of {', '.join(circle)} need each other, and none can come first: restore into a schema or"
            " file, and copy them from there in one transaction with the foreign keys deferred"
            " (MariaDB, MySQL: foreign_key_checks = 0); or what they need is in no archive: restore it first"
        )
    return [RestoredUnit(*names_of(unit), "CONFLICT", detail=f"{detail}; {todo}") for unit, detail in left]


def _each(
    entries: Sequence[ManifestEntry],
    restore: Callable[[ArchivedUnit, TableShape], RestoredUnit],
    should_stop: ShouldStop | None,
) -> RestoreReport:
    found: list[RestoredUnit] = []
    for unit in archived_units(entries):
        if should_stop is not None and should_stop():
            return RestoreReport(tuple(found), stopped=True)
        found.append(damage_of(unit) or _attempt(unit, restore))
    return RestoreReport(tuple(found))


def _attempt(unit: ArchivedUnit, restore: Callable[[ArchivedUnit, TableShape], RestoredUnit]) -> RestoredUnit:
    try:
        return restore(unit, read_shape(unit.first.path))
    except ArchiveCorrupt as exc:
        return RestoredUnit(*names_of(unit), "CORRUPT", detail=exc.detail)
    except TargetParentMissing:
        raise
    except (TargetRowConflict, RestoreConflict, TargetSchemaUnsupported, TargetTablesMissing) as exc:
        return RestoredUnit(*names_of(unit), "CONFLICT", detail=exc.detail)
    except TargetError as exc:
        # A value that the column no longer takes; any, where it is generated now.
        if not (exc.sqlstate or "").startswith(("22", GENERATED_ALWAYS)):
            raise
        return RestoredUnit(*names_of(unit), "CONFLICT", detail=exc.detail)


def _into_file(conn: Connection, unit: ArchivedUnit, shape: TableShape) -> RestoredUnit:
    with conn.transaction():
        add_file_table(conn, shape)
        names = [column.name for column in shape.columns]
        came, written = insert_rows(
            conn, conn.dialect.quote(shape.table), names, unit.rows(shape), or_ignore=True
        )
    return restored(unit, Inserted(written, came - written))


def _match_encoding(conn: Connection, entries: Sequence[ManifestEntry]) -> None:
    """Give the new file the encoding of the archived one: texts that are none are kept as bytes."""
    for entry in entries:
        with suppress(ArchiveCorrupt):
            encoding = read_shape(entry.path).encoding
            if encoding in ("UTF-16le", "UTF-16be"):
                conn.execute(f"pragma encoding = '{encoding}'")
            return


def _same_dialect(conn: Connection, shape: TableShape) -> None:
    if shape.dialect != conn.dialect.name:
        raise TargetSchemaUnsupported(f"the archive is of {shape.dialect}, the target of {conn.dialect.name}")


def _same_values(shape: TableShape, live: TableShape) -> None:
    """Refuse rows that would come back as others.

    Raises: RestoreConflict.
    """
    changed = None if shape.dialect == "sqlite" else changed_by(shape, live)
    if changed is not None:
        raise RestoreConflict(
            f"{shape.table}: {changed}, so values could come back as others: restore into a file, and copy"
            " them from there"
        )


def _ledger_id(unit: ArchivedUnit) -> str:
    return f"restore:{unit.first.unit_id}"


def _ledger_row(unit: ArchivedUnit, done: Inserted) -> LedgerRow:
    entry = unit.first
    return LedgerRow(
        entry.job_id, _ledger_id(unit), RESTORE_STEP, 1, entry.token, done.rows, {"table": entry.table_name}
    )
