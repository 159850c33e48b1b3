"""`lethe replication audit` and `dead-letters`: whether both sides hold the same, and what was refused."""

import base64
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any, Final

import typer
from lethe_client import DeadLetter, Job

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId, Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import REASON, EngineChoice, Reason, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish, follow, note_failure

SHOWN_MAX_CHARS: Final = 60


def _ranges(values: list[str] | None) -> dict[int, list[str | None]] | None:
    """Read repeated RID=AFTER..UPTO, AFTER empty for the first.

    Raises: typer.BadParameter.
    """
    if not values:
        return None
    found: dict[int, list[str | None]] = {}
    for value in values:
        rid, equals, bounds = value.partition("=")
        after, dots, upto = bounds.partition("..")
        if not equals or not dots or not upto or not rid.isdecimal():
            raise typer.BadParameter(f"{value!r} is not RID=AFTER..UPTO", param_hint="--range")
        if int(rid) in found:
            raise typer.BadParameter(f"RID {rid} is given twice", param_hint="--range")
        found[int(rid)] = [after or None, upto]
    return found


@on_service
def audit(
    session: Session,
    store: StoreId,
    agreement: Annotated[str, typer.Argument(metavar="AGREEMENT", help="Which consumer to compare with.")],
    *,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range", metavar="RID=AFTER..UPTO", help="Only these changes; AFTER may be empty. Repeatable."
        ),
    ] = None,
    entries: Annotated[
        bool, typer.Option("--entries/--no-entries", help="The entries too, where both RUVs are equal.")
    ] = True,
    engine: Annotated[
        EngineChoice | None,
        typer.Option("--engine", case_sensitive=False, help="What reads this replica."),
    ] = None,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Compare a replica with a consumer: exit 0 where nothing differs, 1 where something does.

    Example: lethe replication audit orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    job = session.client.audits.create(
        store,
        agreement,
        ranges=_ranges(ranges),
        entries=entries,
        engine=None if engine is None else engine.value,
        reason=reason,
    )
    if not wait:
        return finish(session, job, wait=False, timeout_s=timeout)
    session.out.note(f"Job {job.id} (Ctrl-C leaves it running)")
    return _outcome(session, follow(session, job, timeout_s=timeout))


@on_service
def dead_letters(
    session: Session,
    store: StoreId,
    *,
    open_only: Annotated[
        bool, typer.Option("--open", help="Without those that were accepted since.")
    ] = False,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List records that a consumer refused, or that this replica did.

    Example: lethe replication dead-letters orders-east
    """
    found = list(islice(session.client.dead_letters.list(store, open_only=open_only), limit))
    session.out.document([each.raw for each in found])
    columns = ["direction", "peer", "CSN", "key", "code", "attempts", "last", "resolved"]
    session.out.table(columns, [_letter(each) for each in found])
    return ExitCode.OK


def _letter(letter: DeadLetter) -> list[Any]:
    return [
        letter.direction,
        letter.peer,
        letter.csn,
        _text(letter.key),
        letter.code,
        letter.attempts,
        letter.last_at,
        letter.resolved_at,
    ]


def _text(value: str | None) -> str | None:
    """Bytes for people: as text where they are one."""
    if value is None:
        return None
    text = repr(base64.b64decode(value).decode(errors="backslashreplace"))[1:-1]
    return text if len(text) <= SHOWN_MAX_CHARS else f"{text[:SHOWN_MAX_CHARS]}..."


def _outcome(session: Session, job: Job) -> int:
    """Print what an audit found, and the exit code that says whether both sides agree."""
    out, result = session.out, job.result or {}
    out.document(job.raw)
    if job.state != "SUCCEEDED":
        note_failure(session, job)
        return ExitCode.FAILED
    out.facts(
        {
            "agrees": result["agrees"],
            "all of both sides compared": result["complete"],
            "not comparable": result["reason"],
        }
    )
    out.table(
        ["rid", "above", "up to", "changes here", "changes there", "agrees"],
        [_rid(row) for row in result["rids"]],
    )
    entries = result["entries"]
    counts = {f"entries {side}": (entries[name] or {}).get("count") for side, name in _SIDES.items()}
    out.facts({**counts, "entries agree": entries["agrees"], "entries not compared": entries["not_compared"]})
    if result["differing"]:
        columns = ["rid", "what", "CSN", "above", "up to", "here", "there"]
        out.table(columns, [_difference(row) for row in result["differing"]])
    if entries["differing"]:
        columns = ["entries: what", "behind", "up to", "here", "there"]
        out.table(columns, [_entry_difference(row) for row in entries["differing"]])
    if result["truncated"]:
        out.note("There are more differences than these.")
    return ExitCode.OK if result["agrees"] else ExitCode.FAILED


_SIDES: Final = {"here": "supplier", "there": "consumer"}


def _rid(row: Mapping[str, Any]) -> list[Any]:
    counts = [(row[name] or {}).get("count") for name in _SIDES.values()]
    verdict = row["not_compared"] if row["agrees"] is None else row["agrees"]
    return [str(row["rid"]), row["after"], row["upto"], *counts, verdict]


def _difference(row: Mapping[str, Any]) -> list[Any]:
    where = [row["csn"], row["after"], row["upto"]]
    return [str(row["rid"]), row["kind"], *where, row["supplier"], row["consumer"]]


def _entry_difference(row: Mapping[str, Any]) -> list[Any]:
    places = [_text((row[name] or {}).get("key")) for name in ("after", "upto")]
    return [row["kind"], *places, row["supplier"], row["consumer"]]
