"""The nodes whose batches the first step would mark: absent, or with sync_enabled other than 1."""

from dataclasses import dataclass

from spark.purge.statements import PurgeSpec, Statements, bound_nodes
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class StrandedNode:
    """A node that is not enabled, how many of its batches are not OK, and the changes in them."""

    node_id: str | None
    batches: int
    rows: int = 0


def stranded_nodes(conn: Connection, spec: PurgeSpec) -> tuple[StrandedNode, ...]:
    """Count the batches that the step would mark now, by node.

    Source: symmetricds-purge, 'First, stranded batches are updated'.
    """
    statements = Statements.of(conn, spec)
    rows = conn.execute(
        f"select b.node_id, count(*) from {statements.names.outgoing_batch} b"
        f" where {statements.stranded('b')} group by b.node_id order by b.node_id",
        bound_nodes(spec.stranded_nodes, conn.dialect.name),
    )
    return tuple(StrandedNode(node, int(count)) for node, count in rows)
