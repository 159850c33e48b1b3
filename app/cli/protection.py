"""`lethe protection`: which files no eraser may touch, and for whom."""

from itertools import islice
from typing import Annotated

import typer
from lethe_client import FileRange, Protection

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, States, StoreId
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="protection", no_args_is_help=True, add_completion=False, help="Files that no eraser may touch."
)


def _range(each: FileRange) -> str:
    return each.first if each.last == each.first else f"{each.first}..{each.last or ''}"


@app.command("list")
@on_service
def list_protections(
    session: Session,
    store: StoreId,
    *,
    state: States = None,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List the protected sets of a store.

    Example: lethe protection list ledger
    """
    states = [each.upper() for each in state or ()]
    found = list(islice(session.client.protections.list(store, states=states), limit))
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["protection", "kind", "name", "state", "files", "lease ends", "by", "session"],
        [_row(each) for each in found],
    )
    return ExitCode.OK


def _row(each: Protection) -> list[object]:
    files = ", ".join(_range(part) for part in each.ranges)
    return [
        each.id,
        each.kind,
        each.name,
        each.state,
        files,
        each.lease_expires_at,
        each.requested_by,
        each.backup_session_id,
    ]


@app.command("end")
@on_service
def end(
    session: Session,
    store: StoreId,
    protection: Annotated[str, typer.Argument(metavar="PROTECTION", help="Its id; not one of a backup.")],
) -> int:
    """Give the files back; whoever still reads them may read what is being erased.

    Example: lethe protection end ledger prt_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    ended = session.client.protections.end(store, protection)
    session.out.document(ended.raw)
    session.out.say(f"{ended.id} is {ended.state}.")
    return ExitCode.OK
