"""`lethe fleet`: one purge over many stores."""

from typing import Annotated

import typer

from app.cli.purge import (
    Archive,
    Cutoff,
    Engine,
    Force,
    Kind,
    KindOption,
    MaxRows,
    Retention,
    StrandedOption,
    Strict,
    purge_request,
)
from app.cli.shell.arguments import Timeout, pairs
from app.cli.shell.job_options import REASON, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish

app = typer.Typer(name="fleet", no_args_is_help=True, add_completion=False, help="One job over many stores.")


@app.callback()
def _root() -> None:
    """Keep `purge` a command of its own."""


@app.command("purge")
@on_service
def purge(
    session: Session,
    stores: Annotated[list[str] | None, typer.Argument(metavar="STORE", help="Or --label.")] = None,
    *,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="All stores with these labels; repeatable.")
    ] = None,
    kind: KindOption = Kind.OUTGOING,
    retention_minutes: Retention = None,
    cutoff: Cutoff = None,
    stranded: StrandedOption = None,
    strict: Strict = None,
    max_rows_in_tx: MaxRows = None,
    archive: Archive = False,
    engine: Engine = None,
    throttle: Annotated[
        float | None, typer.Option("--throttle", min=0, metavar="ROWS_PER_S", help="Each store, at most.")
    ] = None,
    force: Force = False,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Purge many stores in one request; a store that fails does not stop the others.

    Example: lethe fleet purge --label region=eu --retention-minutes 7200
    """
    if bool(stores) == bool(label):
        raise typer.BadParameter("name stores or give --label: one of both", param_hint="STORE / --label")
    request = purge_request(
        kind=kind,
        retention_minutes=retention_minutes,
        cutoff=cutoff,
        stranded=stranded,
        strict=strict,
        max_rows_in_tx=max_rows_in_tx,
        archive=archive,
        engine=engine,
        throttle=throttle,
        force=force,
        reason=reason,
    )
    parent = session.client.jobs.batch(
        kind="PURGE",
        params=request.document(),
        stores=stores or (),
        labels=pairs(label, option="--label"),
    )
    return finish(session, parent, wait=wait, timeout_s=timeout)
