"""`lethe replica`: a replica as a file, and back."""

from typing import Annotated

import typer

from app.cli.shell.arguments import StoreId, Timeout
from app.cli.shell.job_options import REASON, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish

app = typer.Typer(
    name="replica",
    no_args_is_help=True,
    add_completion=False,
    help="Export a replica into a file, and import it into a blank replica.",
)


@app.command("export")
@on_service
def export_replica(
    session: Session,
    store: StoreId,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Absolute path of a new file, on the worker's machine.")
    ],
    *,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Write all that a replica holds at one moment into a signed file; writers go on meanwhile.

    Example: lethe replica export orders-east /srv/snapshots/orders.lethe
    """
    job = session.client.replica_snapshots.export(store, file, reason=reason)
    return finish(session, job, wait=wait, timeout_s=timeout)


@app.command("import")
@on_service
def import_replica(
    session: Session,
    store: StoreId,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Absolute path of the file, on the worker's machine.")
    ],
    *,
    signed_by: Annotated[
        str | None,
        typer.Option("--signed-by", metavar="KEY", help="Refuse a file that another replica has signed."),
    ] = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Fill a blank replica from a file; sessions go on from its RUV, without a total initialisation.

    Example: lethe replica import orders-west /srv/snapshots/orders.lethe
    """
    job = session.client.replica_snapshots.put_in(store, file, signed_by=signed_by, reason=reason)
    return finish(session, job, wait=wait, timeout_s=timeout)
