"""What one node knows of everybody's newest events and confirmations, read by aggregates.

Source: facts/slony, sections 1 and 6.
"""

from spark.events.confirmations import confirmed_upto
from spark.events.preconditions.records import Newest, View
from spark.events.records import Catalog
from spark.formats.slony import SYNC
from spark.targets.connection import Connection

DROP_SET = "DROP_SET"


def newest_seqnos(conn: Connection, catalog: Catalog) -> dict[int, int]:
    """Of each node of sl_node its newest event here, of any type; a node without events is left out.

    One descent into the key of sl_event for each node.
    """
    table = conn.dialect.qualify(catalog.schema, "sl_event")
    rows = conn.execute(
        f"select n.id, (select max(ev_seqno) from {table} where ev_origin = n.id)"
        " from unnest(cast(:nodes as integer[])) as n (id)",
        {"nodes": [node.id for node in catalog.nodes]},
    )
    return {int(origin): int(seqno) for origin, seqno in rows if seqno is not None}


def read_view(conn: Connection, catalog: Catalog) -> View:
    """A node's view for the preconditions; one scan of sl_event."""
    table = conn.dialect.qualify(catalog.schema, "sl_event")
    rows = conn.execute(
        f"""
        with newest as (
            select ev_origin, max(ev_seqno) as newest,
                max(ev_seqno) filter (where ev_type <> :sync) as config,
                max(ev_seqno) filter (where ev_type = :drop_set) as drop_set
            from {table} group by ev_origin
        )
        select n.ev_origin, n.newest, e.ev_type, n.config, c.ev_type, n.drop_set
        from newest n
        join {table} e on e.ev_origin = n.ev_origin and e.ev_seqno = n.newest
        left join {table} c on c.ev_origin = n.ev_origin and c.ev_seqno = n.config
        """,
        {"sync": SYNC, "drop_set": DROP_SET},
    )
    return View(
        node=catalog.local_node,
        nodes=catalog.nodes,
        any={int(row[0]): Newest(int(row[1]), str(row[2])) for row in rows},
        config={int(row[0]): Newest(int(row[3]), str(row[4])) for row in rows if row[3] is not None},
        drop_set={int(row[0]): Newest(int(row[5]), DROP_SET) for row in rows if row[5] is not None},
        confirmed=confirmed_upto(conn, catalog),
    )
