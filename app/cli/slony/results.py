"""How `lethe slony` shows plans and results of jobs to people."""

from collections.abc import Mapping
from typing import Any

from lethe_client import CleanupPlan

from app.cli.shell.session import Session
from app.cli.shell.watching import warning_text


def show_plan(session: Session, made: CleanupPlan) -> None:
    """Print what a cleanup would remove, and what is held by whom."""
    out = session.out
    step = [str(made.log_switch.get(name) or "") for name in ("step", "table")]
    out.facts(
        {
            "plan": made.plan_id,
            "confirmed before": made.confirmed_before,
            "via": made.via,
            "rule": made.rule,
            "log switch": " ".join(step).strip(),
            "expires": made.expires_at,
        }
    )
    out.table(["table", "to remove"], list(made.tables.items()))
    columns = ["origin", "events", "to remove", "below event", "held by", "node", "which has"]
    out.table(columns, [_planned(each) for each in made.origins])
    for limit in made.limits.get("exceeded") or ():
        out.note(f"over the limit, would be refused: {limit}")
    for warning in made.warnings:
        out.note(f"warning: {warning_text(warning)}")


def show_result(session: Session, result: Mapping[str, Any]) -> None:
    """Print the result of a wait, a cleanup or a log switch; what it has not is left out."""
    out = session.out
    log = result.get("log_switch") or {}
    facts: dict[str, Any] = {
        "waited on": number(result.get("wait_on")),
        "all have confirmed": result.get("is_satisfied"),
        "via": result.get("via"),
        "confirmed before": result.get("confirmed_before"),
        "counts": result.get("counts"),
        "units": result.get("units"),
        "against the plan": result.get("classification"),
        "archive": (result.get("archive") or {}).get("directory"),
        "log switch": result.get("outcome") or log.get("step"),
        "emptied": result.get("emptied") or log.get("emptied"),
        "log status": number(result.get("status", log.get("status"))),
        "waited for": result.get("waited_for"),
    }
    out.facts({name: value for name, value in facts.items() if value is not None})
    if removed := result.get("removed"):
        out.table(["removed from", "rows"], list(removed.items()))
    if origins := result.get("origins"):
        rows = [[number(each.get(name)) for name in _LEFT] for each in origins]
        held = [each.get("held") for each in origins]
        columns = ["origin", "removed below", "oldest left", "newest", "held"]
        out.table(columns, [[*row, why] for row, why in zip(rows, held, strict=True)])
    if outstanding := result.get("outstanding"):
        rows = [[*(number(each.get(name)) for name in _OUTSTANDING), each.get("why")] for each in outstanding]
        out.table(["origin", "event", "outstanding: node", "has confirmed", "why"], rows)
    for warning in result.get("warnings") or ():
        out.note(f"warning: {warning_text(warning)}")


def show_sync(session: Session, result: Mapping[str, Any]) -> None:
    """Print whether a SYNC was made, and how old the one before it is."""
    made = result.get("seqno")
    session.out.facts(
        {
            "outcome": result.get("outcome"),
            "made": None if made is None else f"{result['origin']},{made}",
            "newest before": number(result.get("last_seqno")),
            "its age": result.get("last_age"),
            "own slon connected": result.get("has_own_slon"),
        }
    )
    if result.get("has_own_slon") is False:
        session.out.note("warning: the slon of this node is not connected: a SYNC does not take its place")


_LEFT = ("origin", "bound", "first_seqno", "last_seqno")
_OUTSTANDING = ("origin", "seqno", "receiver", "confirmed_seqno")


def _planned(each: Mapping[str, Any]) -> list[Any]:
    held = each.get("held") or {}
    why = [held.get("why"), number(held.get("receiver")), number(held.get("seqno"))]
    return [number(each["origin"]), each["rows"], each["rows_to_remove"], number(each.get("bound")), *why]


def number(value: int | None) -> str | None:
    """Numbers that are names: their digits are not grouped."""
    return None if value is None else str(value)
