"""`lethe slony health`: a plugin of Nagios and its like; exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

import typer
from lethe_client import HealthFinding, NodeHealth, SlonyHealth

from app.cli.shell.plugin import exit_code, line, require_one, summed_up, tell, unknown
from app.cli.shell.session import Session, on_service


def _health(
    session: Session,
    store: Annotated[str | None, typer.Argument(metavar="[STORE]", help="One node, by its store.")] = None,
    *,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="All registered nodes of this cluster instead.")
    ] = None,
) -> int:
    """Tell a monitor whether a node or a cluster is well. Exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    Example: lethe slony health --cluster lab
    """
    require_one(store, cluster, name="cluster")
    if cluster is not None:
        found = session.client.slony.cluster_health(cluster)
    else:
        assert store is not None, "one of them was given"
        found = session.client.slony.health(store)
    tell(session.out, "SLONY", found, first=_summary(found), figures=_figures(found))
    for each in found.findings:
        session.out.say(line(_finding(each)))
    return exit_code(found.status)


health = on_service(_health, refused=unknown("SLONY"))


def _summary(found: SlonyHealth) -> str:
    nodes = f"cluster {found.cluster}, {len(found.nodes)} node(s) asked"
    return summed_up(nodes, [each.detail for each in found.findings])


def _finding(each: HealthFinding) -> str:
    about = "" if each.node is None else f" node {each.node}"
    seen = f" (seen by {', '.join(each.seen_by)})" if each.seen_by else ""
    return f"{each.severity} {each.code}{about}{seen}: {each.detail}. {each.advice}"


def _figures(found: SlonyHealth) -> Iterator[str]:
    yield f"findings={len(found.findings)};;;0"
    for node in found.nodes:
        yield from _figures_of(node)


def _figures_of(node: NodeHealth) -> Iterator[str]:
    for name, age in (
        ("lag", node.lag),
        ("sync_age", node.sync_age),
        ("transaction_age", node.transaction_age),
    ):
        if age is not None:
            yield f"{node.store}_{name}={_seconds(age)}s;;;0"
    for table, rows in node.table_rows.items():
        yield f"{node.store}_{table}={rows};;;0"


def _seconds(age: timedelta) -> str:
    return f"{age.total_seconds():.1f}"
