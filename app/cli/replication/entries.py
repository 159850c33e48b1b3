"""`lethe entries`: what a replica holds, by key."""

import sys
from itertools import islice
from typing import Annotated

import typer

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId
from app.cli.shell.byte_values import Base64Option, bytes_of, shown
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service
from app.cli.shell.streams import Words

Tombstones = Annotated[bool, typer.Option("--tombstones", help="Show deleted keys too.")]

app = typer.Typer(
    name="entries", no_args_is_help=True, add_completion=False, help="What a replica holds, by key."
)


@app.command("get")
@on_service
def get(
    session: Session,
    store: StoreId,
    database: Annotated[str, typer.Argument(help="Of the key.")],
    key: Annotated[str, typer.Argument(help="Of the entry.")],
    *,
    tombstones: Tombstones = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the value's bytes and nothing else.")] = False,
    base64: Base64Option = False,
) -> int:
    """The newest state of one key.

    Example: lethe entries get orders-east orders 4711
    """
    entry = session.client.entries.get(
        store,
        bytes_of(database, is_base64=base64, name="DATABASE"),
        bytes_of(key, is_base64=base64, name="KEY"),
        tombstones=tombstones,
    )
    if raw and not session.out.json:
        Words(sys.stdout).write_bytes(entry.value or b"")
        return ExitCode.OK
    session.out.document(entry.raw)
    value = "(deleted)" if entry.value is None else shown(entry.value, is_base64=base64)
    session.out.facts({"value": value, "CSN": entry.csn, "of replica": str(entry.rid)})
    return ExitCode.OK


@app.command("list")
@on_service
def list_entries(
    session: Session,
    store: StoreId,
    *,
    database: Annotated[str | None, typer.Option(help="Only of this one.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Only keys that begin so; with --database.")] = None,
    tombstones: Tombstones = False,
    limit: Limit = LIMIT_DEFAULT,
    base64: Base64Option = False,
) -> int:
    """Entries in the order of database and key, byte by byte.

    Example: lethe entries list orders-east
    """
    if prefix is not None and database is None:
        raise typer.BadParameter("a prefix is one of the keys of a --database", param_hint="--prefix")
    found = session.client.entries.list(
        store,
        database=None if database is None else bytes_of(database, is_base64=base64, name="--database"),
        prefix=None if prefix is None else bytes_of(prefix, is_base64=base64, name="--prefix"),
        tombstones=tombstones,
    )
    entries = list(islice(found, limit))
    session.out.document([entry.raw for entry in entries])
    rows = [
        (
            shown(entry.database, is_base64=base64),
            shown(entry.key, is_base64=base64),
            "(deleted)" if entry.value is None else shown(entry.value, is_base64=base64),
            entry.csn,
        )
        for entry in entries
    ]
    session.out.table(["database", "key", "value", "CSN"], rows)
    return ExitCode.OK


@app.command("history")
@on_service
def history(
    session: Session,
    store: StoreId,
    database: Annotated[str, typer.Argument(help="Of the key.")],
    key: Annotated[str, typer.Argument(help="Of the entry.")],
    *,
    limit: Limit = LIMIT_DEFAULT,
    base64: Base64Option = False,
) -> int:
    """The changes of one key that the changelog still holds, the newest first: who made them, which one won.

    Example: lethe entries history orders-east orders 4711
    """
    found = session.client.entries.history(
        store,
        bytes_of(database, is_base64=base64, name="DATABASE"),
        bytes_of(key, is_base64=base64, name="KEY"),
    )
    changes = list(islice(found, limit))
    session.out.document([change.raw for change in changes])
    rows = [
        (
            change.csn,
            change.rid,
            "(deleted)" if change.payload is None else shown(change.payload, is_base64=base64),
            change.outcome,
            change.overwritten_by or "",
        )
        for change in changes
    ]
    session.out.table(["CSN", "of replica", "value", "outcome", "overwritten by"], rows)
    return ExitCode.OK
