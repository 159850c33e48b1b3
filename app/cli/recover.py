"""`lethe recover`: take a store back after the metadata was restored."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.service.process import MetadataUrl, run_process
from app.cli.shell.arguments import StoreId
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service
from app.server import recover as recover_here
from app.settings import Settings

app = typer.Typer(
    name="recover", add_completion=False, help="Take a store back after the metadata was restored."
)


@app.command("recover")
@on_service
def recover(
    session: Session,
    store: StoreId,
    *,
    offline: Annotated[
        bool,
        typer.Option(
            "--offline",
            help="No service runs (it ends with 78 where every store is ahead): work in its --data-dir.",
        ),
    ] = False,
    metadata_url: MetadataUrl = None,
) -> int:
    """Raise our epoch above the target's, and mark the jobs there that we do not know (EPOCH_AHEAD).

    A replica that was restored from a backup (REPLICA_RESTORED) takes writes again; what it lacks is lost.

    Example: lethe recover shop
    """
    if offline:
        return _offline(session, store, metadata_url)
    _show(session, session.client.stores.recover(store).raw)
    return ExitCode.OK


def _offline(session: Session, store: str, metadata_url: str | None) -> int:
    found: dict[str, Any] = {}

    def work(settings: Settings) -> int:
        code, done = recover_here(settings, store)
        found.update(done.model_dump(mode="json") if done else {})
        return code

    given = {"data_dir": session.data_dir, "metadata_url": metadata_url}
    code = run_process("recover", work, given, json=False)
    if found:
        _show(session, found)
    return code


def _show(session: Session, recovery: Mapping[str, Any]) -> None:
    session.out.document(recovery)
    session.out.facts(
        {
            "epoch before": recovery.get("epoch_before"),
            "epoch after": recovery.get("epoch_after"),
            "foreign jobs": recovery.get("foreign_jobs"),
            "given up": _given_up(recovery.get("given_up")),
        }
    )


def _given_up(lost: Mapping[str, Any] | None) -> str | None:
    """Own changes of a restored replica that are lost now."""
    if lost is None:
        return None
    return f"changes of replica {lost['rid']} above {lost['after'] or 'nothing'}, up to {lost['upto']}"
