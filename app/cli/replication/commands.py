"""`lethe replication`: what a consumer needs, and bringing it there."""

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from lethe_client import Anchor

from app.cli.replication.admin import clock, grants, keys
from app.cli.replication.agreement import app as agreements
from app.cli.replication.audit import audit, dead_letters
from app.cli.replication.session import Strategy, compare
from app.cli.replication.session import app as sessions
from app.cli.replication.topology import topology
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service
from app.kit.json_bodies import sendable

QUESTION_MAX_BYTES: Final = 64 * 1024 * 1024

app = typer.Typer(
    name="replication",
    no_args_is_help=True,
    add_completion=False,
    help="Bring changes of a replica to others, and compare both sides.",
)


app.add_typer(agreements)
app.add_typer(sessions)
app.add_typer(grants)
app.add_typer(clock)
app.add_typer(keys)
app.command("compare")(compare)
app.command("audit")(audit)
app.command("dead-letters")(dead_letters)
app.command("topology")(topology)


def _read_question(file: str) -> dict[str, Any]:
    """The question in a file, or on standard input for `-`.

    Raises: typer.BadParameter: it cannot be read, is too large, or is no JSON object.
    """
    try:
        if file == "-":
            content = sys.stdin.buffer.read(QUESTION_MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(QUESTION_MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}", param_hint="FILE") from error
    if len(content) > QUESTION_MAX_BYTES:
        raise typer.BadParameter(f"more than {QUESTION_MAX_BYTES} bytes", param_hint="FILE")
    try:
        question = sendable(content)
    except ValueError as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="FILE") from None
    if not isinstance(question, dict):
        raise typer.BadParameter("no JSON object", param_hint="FILE")
    return question


def _place(anchor: Anchor | None) -> str | None:
    if anchor is None:
        return None
    if anchor.csn is None:
        return "the beginning of the changelog"
    return f"at {anchor.csn}" if anchor.inclusive else f"after {anchor.csn}"


@app.command("decide")
@on_service
def decide(
    session: Session,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|-",
            help="JSON with supplier, consumer, and what else the service takes; - for stdin.",
        ),
    ],
    *,
    strategy: Annotated[
        Strategy | None, typer.Option(help="Instead of the one that the file names.", case_sensitive=False)
    ] = None,
) -> int:
    """Decide on the vectors of a file; no store is asked. Exit 0 whatever the answer is.

    Example: lethe replication decide vectors.json
    """
    question = _read_question(file)
    if strategy is not None:
        question["strategy"] = strategy.value
    decision = session.client.replication.decide(question)
    session.out.document(decision.raw)
    blocked = ", ".join(map(str, decision.blocked_rids))
    session.out.facts(
        {
            "outcome": decision.outcome,
            "reason": decision.reason,
            "purged RIDs": blocked,
            # With NEEDS_TOTAL it is only where the document would have begun, and lost changes.
            "anchor": _place(decision.anchor) if decision.outcome == "SEND" else None,
        }
    )
    if decision.windows:
        rows = [(rid, after or "(the first)", upto) for rid, (after, upto) in decision.windows.items()]
        session.out.table(["rid", "above", "up to"], rows)
    return ExitCode.OK
