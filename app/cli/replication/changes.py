"""`lethe changes`: write to a replica, list its changelog."""

import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer
from lethe_client import Change, LetheError, Record, Written

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId
from app.cli.shell.byte_values import Base64Option, bytes_of, shown
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service
from app.kit.json_bodies import sendable

LINE_MAX_BYTES: Final = 4 * 1024 * 1024
PROGRESS_EVERY_S: Final = 2.0
ONCE_PAGE: Final = 500


class Starting(StrEnum):
    """Where to begin without a cursor."""

    EARLIEST = "earliest"
    NEWEST = "newest"
    LATEST = "latest"


class Verdict(StrEnum):
    """Whether the winner's replica had the loser."""

    CONCURRENT = "CONCURRENT"
    UNCERTAIN = "UNCERTAIN"
    SEEN = "SEEN"


_FIELDS: Final = frozenset({"database", "key", "value", "if_csn"})

app = typer.Typer(
    name="changes",
    no_args_is_help=True,
    add_completion=False,
    help="Write changes to a replica; list its changelog.",
)


@app.command("put")
@on_service
def put(
    session: Session,
    store: StoreId,
    database: Annotated[str, typer.Argument(help="Of the key.")],
    key: Annotated[str, typer.Argument(help="Of the entry.")],
    value: Annotated[str | None, typer.Argument(help="What the key has from now on.")] = None,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the key, instead of a value.")] = False,
    if_csn: Annotated[
        str | None,
        typer.Option(metavar="CSN|none", help="Only where the entry is at it; none: where there is none."),
    ] = None,
    base64: Base64Option = False,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Sent again with it, the change is written once.")
    ] = None,
) -> int:
    """Write one change; done when it is durable.

    Example: lethe changes put orders-east orders 4711 shipped
    """
    if delete == (value is not None):
        raise typer.BadParameter("a value, or --delete", param_hint="VALUE")
    written = session.client.changes.put(
        store,
        bytes_of(database, is_base64=base64, name="DATABASE"),
        bytes_of(key, is_base64=base64, name="KEY"),
        None if value is None else bytes_of(value, is_base64=base64, name="VALUE"),
        if_csn=if_csn,
        idempotency_key=idempotency_key,
    )
    session.out.document(written.raw)
    session.out.facts({"CSN": written.last_csn, "written before": written.replayed or None})
    return ExitCode.OK


@app.command("import")
@on_service
def import_file(
    session: Session,
    store: StoreId,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help='NDJSON: {"database": ..., "key": ..., "value": ... or null} on each line; - for stdin.',
        ),
    ],
    *,
    database: Annotated[str | None, typer.Option(help="Of lines that name none.")] = None,
    label: Annotated[
        str | None,
        typer.Option(help="A name for this import: run again with it, only what is missing is written."),
    ] = None,
    block: Annotated[int, typer.Option(min=1, max=1_000_000, help="Changes in one request.")] = 10_000,
    base64: Base64Option = False,
) -> int:
    """Write the changes of a file in blocks, each all or none, in their order.

    After a failure run the same command with the label that it names, within 7 days: blocks that were written
    are passed over. A line that is no change ends the import before its block.

    Example: lethe changes import orders-east changes.jsonl
    """
    name = label or uuid.uuid4().hex
    found = _Imported(session, name)
    with _opened(file) as lines:
        changes = _read(lines, database=database, is_base64=base64)
        try:
            for each in session.client.changes.import_blocks(store, changes, label=name, block_changes=block):
                found.add(each.written)
        except (LetheError, typer.BadParameter):
            found.show_rest()
            raise
    session.out.document(found.document())
    session.out.facts(found.document() | {"label": None})
    return ExitCode.OK


class _Imported:
    """What an import has written so far."""

    def __init__(self, session: Session, label: str) -> None:
        self._session, self._label = session, label
        self._blocks = self._changes = self._passed_over = 0
        self._first_csn: str | None = None
        self._last_csn: str | None = None
        self._begun_s = self._shown_s = time.monotonic()

    def add(self, written: Written) -> None:
        self._blocks += 1
        self._changes += written.changes
        self._passed_over += written.changes if written.replayed else 0
        self._first_csn = self._first_csn or written.first_csn
        self._last_csn = written.last_csn
        now_s = time.monotonic()
        if now_s - self._shown_s >= PROGRESS_EVERY_S:
            rate = self._changes / (now_s - self._begun_s)
            self._session.out.note(f"{self._changes:,} changes, {rate:,.0f}/s")
            self._shown_s = now_s

    def show_rest(self) -> None:
        done = f"{self._changes:,} changes in {self._blocks} blocks are written."
        self._session.out.note(f"{done} Go on with: --label {self._label}")

    def document(self) -> dict[str, Any]:
        return {
            "changes": self._changes,
            "blocks": self._blocks,
            "written before": self._passed_over,
            "first_csn": self._first_csn,
            "last_csn": self._last_csn,
            "label": self._label,
        }


@app.command("list")
@on_service
def list_records(
    session: Session,
    store: StoreId,
    *,
    rid: Annotated[int | None, typer.Option(min=1, max=65_534, help="Only of this replica.")] = None,
    after: Annotated[str | None, typer.Option(metavar="CSN", help="Only those after it.")] = None,
    limit: Limit = LIMIT_DEFAULT,
    base64: Base64Option = False,
) -> int:
    """The records of the changelog, in the order of RID and CSN.

    Example: lethe changes list orders-east
    """
    records = list(islice(session.client.changes.list(store, rid=rid, after=after), limit))
    session.out.document([record.raw for record in records])
    rows = [
        (
            record.csn,
            record.kind,
            shown(record.database, is_base64=base64),
            shown(record.key, is_base64=base64),
            "(deleted)" if record.payload is None else shown(record.payload, is_base64=base64),
        )
        for record in records
    ]
    session.out.table(["CSN", "kind", "database", "key", "value"], rows)
    return ExitCode.OK


@app.command("follow")
@on_service
def follow(
    session: Session,
    store: StoreId,
    *,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="From after it on; see --starting.")
    ] = None,
    starting: Annotated[
        Starting,
        typer.Option(help="Without a cursor: all that the changelog holds, its last 500, or from now on."),
    ] = Starting.EARLIEST,
    database: Annotated[str | None, typer.Option(help="Only of this one.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin so; with --database.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Stop at the end, instead of waiting for more.")
    ] = False,
    base64: Base64Option = False,
) -> int:
    """Print each change once, as it comes, over lost connections and restarts; Ctrl-C ends it.

    Of each replica id they come in the order of their CSNs. With --json each is a line with its `cursor`:
    keep the last one, and go on by --cursor. With --once the last line is the cursor alone.

    Example: lethe changes follow orders-east --database orders --json
    """
    if prefix is not None and database is None:
        raise typer.BadParameter("a prefix is one of the keys of a --database", param_hint="--prefix")
    wanted: dict[str, Any] = {
        "starting": starting.value,
        "database": None if database is None else bytes_of(database, is_base64=base64, name="--database"),
        "prefix": None if prefix is None else bytes_of(prefix, is_base64=base64, name="--prefix"),
    }
    if once:
        return _follow_once(session, store, cursor, wanted, limit=limit, is_base64=base64)
    for each in islice(session.client.changes.follow(store, cursor, **wanted), limit):
        _tell(session, each, cursor=each.cursor, is_base64=base64)
    return ExitCode.OK


def _follow_once(
    session: Session,
    store: str,
    cursor: str | None,
    wanted: dict[str, Any],
    *,
    limit: int | None,
    is_base64: bool,
) -> int:
    """Print what is there now, page by page, and the cursor behind it."""
    left, more = limit, True
    while more and left != 0:
        size = None if left is None else min(left, ONCE_PAGE)
        page = session.client.changes.feed(store, cursor, **wanted, page_size=size)
        for item in page.items:
            _tell(session, item, cursor=None, is_base64=is_base64)
        cursor, more = page.cursor, page.more
        left = None if left is None else left - len(page.items)
    session.out.line({"cursor": cursor})
    session.out.say(f"cursor {cursor}")
    return ExitCode.OK


def _tell(session: Session, record: Record, *, cursor: str | None, is_base64: bool) -> None:
    session.out.line(dict(record.raw) | ({} if cursor is None else {"cursor": cursor}))
    value = "(deleted)" if record.payload is None else shown(record.payload, is_base64=is_base64)
    place = f"{shown(record.database, is_base64=is_base64)} {shown(record.key, is_base64=is_base64)}"
    session.out.say(f"{record.csn} {record.rid} {record.kind} {place} {value}", endless=True)


@app.command("overwritten")
@on_service
def overwritten(
    session: Session,
    store: StoreId,
    *,
    since: Annotated[
        datetime | None, typer.Option(help="Of then and later, in UTC; default: of the last day.")
    ] = None,
    verdict: Annotated[
        list[Verdict] | None,
        typer.Option(help="Repeatable; default: CONCURRENT and UNCERTAIN.", case_sensitive=False),
    ] = None,
    database: Annotated[str | None, typer.Option(help="Only of this one.")] = None,
    limit: Limit = LIMIT_DEFAULT,
    base64: Base64Option = False,
) -> int:
    """Changes that lost against one of another replica id, and whether that one's replica had them.

    CONCURRENT: it had not. SEEN: it had. UNCERTAIN: the changelog does not tell. What was lost:
    `lethe entries history`.

    Example: lethe changes overwritten orders-east
    """
    found = session.client.changes.overwritten(
        store,
        since=None if since is None else since.replace(tzinfo=UTC),
        verdicts=[each.value for each in verdict or ()],
        database=None if database is None else bytes_of(database, is_base64=base64, name="--database"),
    )
    lost = list(islice(found, limit))
    session.out.document([each.raw for each in lost])
    rows = [
        (
            each.verdict,
            shown(each.database, is_base64=base64),
            shown(each.key, is_base64=base64),
            each.csn,
            each.rid,
            each.overwritten_by,
            each.overwritten_by_rid,
        )
        for each in lost
    ]
    session.out.table(["verdict", "database", "key", "lost CSN", "lost RID", "won CSN", "won RID"], rows)
    return ExitCode.OK


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """The file, or standard input for `-`.

    Raises: typer.BadParameter: it cannot be read.
    """
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 -- closed below; an error of the block is none of the file
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from error
    with opened:
        yield opened


def _read(lines: BinaryIO, *, database: str | None, is_base64: bool) -> Iterator[Change]:
    """The changes of a file, line by line; empty lines are passed over.

    Raises: typer.BadParameter: with the number of the line.
    """
    number = 0
    while line := lines.readline(LINE_MAX_BYTES + 1):
        number += 1
        if len(line) > LINE_MAX_BYTES:
            raise _bad_line(number, f"more than {LINE_MAX_BYTES} bytes")
        if line.strip():
            yield _change(line, number, database=database, is_base64=is_base64)


def _change(line: bytes, number: int, *, database: str | None, is_base64: bool) -> Change:
    try:
        found = sendable(line)
    except ValueError as error:
        raise _bad_line(number, f"no JSON: {error}") from None
    if not isinstance(found, dict) or not found.keys() <= _FIELDS:
        raise _bad_line(number, "not an object of database, key, value and if_csn")
    found.setdefault("database", database)
    for name in ("database", "key"):
        if not isinstance(found.get(name), str):
            raise _bad_line(number, f"{name} is no text")
    if "value" not in found or not isinstance(found["value"], str | None):
        raise _bad_line(number, "value is neither a text nor null")
    if not isinstance(found.get("if_csn"), str | None):
        raise _bad_line(number, "if_csn is neither a text nor null")
    try:
        values = [
            None if found[name] is None else bytes_of(found[name], is_base64=is_base64, name=name)
            for name in ("database", "key", "value")
        ]
    except (typer.BadParameter, UnicodeEncodeError) as error:
        raise _bad_line(number, str(error)) from None
    database_bytes, key, value = values
    assert database_bytes is not None, "looked at before"
    assert key is not None, "looked at before"
    return Change(database_bytes, key, value, found.get("if_csn"))


def _bad_line(number: int, detail: str) -> typer.BadParameter:
    return typer.BadParameter(f"line {number}: {detail}", param_hint="FILE")
