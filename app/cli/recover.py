"""`lethe recover`: take a store back after the metadata was restored."""

import typer

from app.cli.arguments import StoreId
from app.cli.exits import ExitCode
from app.cli.session import Session, on_service

app = typer.Typer(
    name="recover", add_completion=False, help="Take a store back after the metadata was restored."
)


@app.command("recover")
@on_service
def recover(session: Session, store: StoreId) -> int:
    """Raise our epoch above the target's, and mark the jobs there that we do not know (EPOCH_AHEAD)."""
    recovery = session.client.stores.recover(store)
    session.out.document(recovery.raw)
    session.out.facts(
        {
            "epoch before": recovery.epoch_before,
            "epoch after": recovery.epoch_after,
            "foreign jobs": recovery.foreign_jobs,
        }
    )
    return ExitCode.OK
