"""`lethe replication topology`: all replicas, and how far each consumer is behind."""

from collections.abc import Mapping
from typing import Any

from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service


@on_service
def topology(session: Session) -> int:
    """Show every replica, every agreement, and what each consumer lacks by RID. Consumers are not asked.

    Example: lethe replication topology
    """
    found = session.client.replication.topology()
    out = session.out
    out.document(found.raw)
    out.table(["replica", "at", "rid", "status"], [_node(each) for each in found.nodes])
    columns = ["supplier", "consumer", "state", "behind", "lag", "RIDs behind", "last session"]
    out.table(columns, [_agreement(each) for each in found.agreements])
    if found.truncated:
        out.note("There are more replicas than these.")
    return ExitCode.OK


def _node(node: Mapping[str, Any]) -> list[Any]:
    status = node["status"] or node["target_code"] or "not asked"
    rid = None if node["rid"] is None else str(node["rid"])
    return [node["store"], node["url"] or "here", rid, status]


def _agreement(each: Mapping[str, Any]) -> list[Any]:
    consumer, last = each["consumer"], each["last_session"]
    behind = [f"{row['rid']}: {row['changes']}" for row in each["rids"] or () if row["changes"]]
    state = "needs a total initialisation" if each["needs_total"] else each["color"]
    ended = None if last is None else last["code"] or last["outcome"]
    return [
        each["supplier"],
        f"{consumer['url']} {consumer['store']}",
        each["target_code"] or state,
        each["lag_changes"],
        each["lag"],
        ", ".join(behind),
        ended,
    ]
