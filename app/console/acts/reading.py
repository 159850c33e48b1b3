"""What a plan says, for people: what would be lost first, what stands in the way, what to know."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.console.words import count, instant, size

Plan = Mapping[str, Any]
HEAD: Final = frozenset({"warnings", "hazards", "limits", "plan_id", "store"})
"""What a page shows above all else."""


@dataclass(frozen=True, slots=True)
class Loss:
    """So much of something that would be gone."""

    what: str
    amount: str
    detail: str = ""


def losses(plan: Plan) -> list[Loss]:
    """What would be lost, the parts before the whole."""
    found = [*_of_tables(plan), *_of_stranded(plan), *_of_log(plan)]
    if "rows_to_remove" in plan:
        found.append(Loss("all rows that go", count(plan["rows_to_remove"], "rows")))
    if "records" in plan:
        found.append(Loss("records", count(plan["records"], "records"), size(plan.get("bytes"))))
    return found


def _of_tables(plan: Plan) -> Iterator[Loss]:
    tables = plan.get("tables", ())
    if isinstance(tables, Mapping):
        for table, rows in tables.items():
            yield Loss(str(table), count(rows, "rows"))
        return
    for each in tables:
        yield Loss(each["table"], count(each["rows_to_remove"], "rows"), f"of {count(each['rows'])}")


def _of_stranded(plan: Plan) -> Iterator[Loss]:
    stranded = plan.get("stranded")
    if not stranded:
        return
    if stranded["mode"] == "MARK" and stranded["nodes"]:
        nodes = ", ".join(str(each["node_id"]) for each in stranded["nodes"])
        yield Loss(f"changes that nodes {nodes} never get", count(stranded["rows"], "rows"), stranded["cost"])
    if stranded["mode"] in ("REMOVE", "RECAPTURE") and stranded["rows"]:
        yield Loss(
            "events and changes that no batch holds", count(stranded["rows"], "rows"), stranded["cost"]
        )


def _of_log(plan: Plan) -> Iterator[Loss]:
    for each in plan.get("erase", ()):
        yield Loss(each["code"], count(each["entries"], "entries"), size(each["bytes"]))
    deleted = [each for each in plan.get("files", ()) if each.get("deleted")]
    if deleted:
        whole = count(len(deleted), "files")
        yield Loss(
            "whole files that JE has put aside", whole, size(sum(each["size_bytes"] for each in deleted))
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a plan may be run, and what to say of it.

    Args:
        obstacle: why not; empty: it may.
    """

    obstacle: str
    is_outdated: bool = False
    is_empty: bool = False


def standing(plan: Plan, *, now: datetime) -> Standing:
    """How a plan stands by itself; the API looks at the store again when it is run."""
    if instant(plan["expires_at"]) <= now:
        return Standing("This plan is outdated: it has expired.", is_outdated=True)
    exceeded: Sequence[str] = plan["limits"]["exceeded"]
    if exceeded:
        return Standing("The store's limits do not allow this plan: " + "; ".join(exceeded) + ".")
    if not plan.get("is_executable", True):
        return Standing("More rows would go than a plan can name. Narrow the request, or run it by the API.")
    if removes_nothing(plan):
        return Standing(
            "There is nothing to remove, and so nothing to run. See the cut-off, what stays and the warnings,"
            " or change the request.",
            is_empty=True,
        )
    return Standing("")


def removes_nothing(plan: Plan) -> bool:
    """Whether a run would change nothing; a discard speaks of keys, and a log switch is work too."""
    stranded = plan.get("stranded") or {}
    # Batches of channels that are gone have no nodes that are listed.
    gives_up = stranded.get("mode") == "MARK" and (stranded.get("nodes") or stranded.get("batches"))
    step = (plan.get("log_switch") or {}).get("step")
    if "records" in plan or gives_up or step in ("START", "FINISH", "HEAL"):
        return False
    tables = plan.get("tables") or ()
    rows = (
        list(tables.values()) if isinstance(tables, Mapping) else [each["rows_to_remove"] for each in tables]
    )
    rows += [plan.get("rows_to_remove", 0), *(each["entries"] for each in plan.get("erase", ()))]
    return not any(rows) and not any(each.get("deleted") for each in plan.get("files", ()))


def rest_of(plan: Plan) -> dict[str, Any]:
    """All that the page does not show above."""
    return {name: value for name, value in plan.items() if name not in HEAD}
