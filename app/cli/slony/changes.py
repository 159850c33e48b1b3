"""`lethe slony changes | copy | feed`: what a subscriber of a node would apply, SYNC by SYNC."""

import json
from typing import Annotated, Any

import typer
from lethe_client import SlonyChange

from app.cli.shell.arguments import StoreId, Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import REASON, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish


@on_service
def changes(
    session: Session,
    store: StoreId,
    *,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Number of the last SYNC that was applied; left out: the oldest kept."),
    ] = None,
    snapshot: Annotated[
        str | None, typer.Option(help="Of that SYNC, as it was read; the node must still have it so.")
    ] = None,
    copied: Annotated[
        str | None, typer.Option(help="Of the START of a first copy: what the copy has is left out.")
    ] = None,
    sets: Annotated[
        list[int] | None, typer.Option("--set", min=0, help="Only tables of this set. Repeatable.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="At most so many SYNCs an answer.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with the SYNCs to come, until Ctrl-C.")
    ] = False,
) -> int:
    """Show the changes of a node behind a SYNC; under --json a record on each line.

    A unit ends with its SYNC: apply it then, and keep that number for --after. A START on a later line says
    that what came since the last SYNC comes again. NEEDS_TOTAL: rows behind the position were cleaned away.

    Example: lethe slony changes node1 --after 5000000012 --follow
    """
    feed = session.client.slony_changes
    if follow:
        found = feed.follow(
            store, after=after, snapshot=snapshot, copied=copied, sets=sets or (), limit=limit
        )
    else:
        found = feed.page(store, after=after, snapshot=snapshot, copied=copied, sets=sets or (), limit=limit)
    for record in found:
        session.out.line(record.raw)
        session.out.say(_said(record), endless=True)
    return ExitCode.OK


@on_service
def copy(
    session: Session,
    store: StoreId,
    *,
    sets: Annotated[list[int], typer.Option("--set", min=0, help="Copy the tables of this set. Repeatable.")],
) -> int:
    """Copy the tables of sets, to follow their changes from there; under --json a record on each line.

    Then give the seqno of the START to `lethe slony changes --after`, its `copied` to --copied. A copy
    without an END is not whole: begin again.

    Example: lethe slony copy node1 --set 1
    """
    for record in session.client.slony_changes.copy(store, sets=sets):
        session.out.line(record.raw)
        session.out.say(_said(record), endless=True)
    return ExitCode.OK


@on_service
def feed(
    session: Session,
    store: StoreId,
    source: Annotated[str, typer.Argument(metavar="NODE", help="The store of the node.")],
    *,
    sets: Annotated[
        list[int] | None, typer.Option("--set", min=0, help="Only tables of this set. Repeatable.")
    ] = None,
    tables: Annotated[
        list[str] | None, typer.Option("--table", help="Only this table, as schema.table. Repeatable.")
    ] = None,
    prefix: Annotated[str | None, typer.Option(help="What the key of each entry begins with.")] = None,
    first_copy: Annotated[
        bool, typer.Option("--first-copy", help="Begin with a new first copy, whatever stands there.")
    ] = False,
    syncs: Annotated[
        int | None, typer.Option(min=1, help="At most so many SYNCs; left out: up to the newest of now.")
    ] = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Carry the changes of a node into the replica STORE, each SYNC exactly once.

    NEEDS_TOTAL and FEED_NOT_ALONE say why it does not go on: then name --first-copy.

    Example: lethe slony feed warehouse node1 --set 1
    """
    job = session.client.slony_changes.feed(
        store,
        source,
        sets=sets or (),
        tables=tables or (),
        prefix=prefix,
        first_copy=first_copy,
        syncs_max=syncs,
        reason=reason,
    )
    return finish(session, job, wait=wait, timeout_s=timeout)


def _said(record: SlonyChange) -> str:
    """A record in one line."""
    detail = record.detail or {}
    if record.kind == "START":
        copied = f", copied at {detail['copied']}" if "copied" in detail else ""
        return f"behind SYNC {record.origin},{record.seqno}{copied}"
    if record.kind == "END":
        return f"END: {detail.get('records')} records"
    if record.kind == "SYNC":
        return f"SYNC {record.seqno}: {detail.get('records')} records, made {detail.get('at')}"
    if record.kind in ("EVENT", "DDL", "DDL_END", "UNKNOWN"):
        return f"  {record.kind} {_text(detail)}"
    name = f"{record.schema}.{record.table}"
    if record.kind == "SEQUENCE":
        return f"  SEQUENCE {name} {detail.get('last_value')}"
    parts = [_text(part) for part in (record.key, record.values) if part is not None]
    return f"  {record.kind} {name} {' -> '.join(parts)}".rstrip()


def _text(values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)
