"""`lethe slony sync`: a SYNC of a node, at once or where one is due."""

from typing import Annotated

import typer

from app.cli.shell.arguments import StoreId
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import REASON, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.slony.jobs import run_job
from app.cli.slony.results import show_sync

IfOlder = Annotated[
    str | None,
    typer.Option(
        "--if-older-than",
        metavar="DURATION",
        help="Only where the node has made none for so long: PT10M. A job, for a node without its slon.",
    ),
]


@on_service
def sync(
    session: Session,
    store: StoreId,
    *,
    if_older_than: IfOlder = None,
    reason: Reason = REASON,
    wait: Wait = True,
) -> int:
    """Make a SYNC on a node, by its cluster's own function. Exit 0 also where none is due.

    Example: lethe slony sync node1 --if-older-than PT10M
    """
    if if_older_than is not None:
        job = session.client.slony.sync_if_older(store, interval=if_older_than, reason=reason)
        return run_job(session, job, wait=wait, timeout_s=None, show=show_sync)
    if reason != REASON:
        raise typer.BadParameter(
            "say --if-older-than too: a SYNC at once keeps no reason", param_hint="--reason"
        )
    made = session.client.slony.sync(store)
    session.out.document(made.raw)
    session.out.say(f"Event {made.origin},{made.seqno} is made.")
    return ExitCode.OK
