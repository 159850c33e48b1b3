"""The document's statements over one id range each, in the forms that were measured.

They remove what the literal statements remove; what differs is only how it is found. On PostgreSQL
(facts/locks.md):
- the id range stands on every table of a statement except `sym_outgoing_batch` in the delete of data: a batch
  made since the unit's lock has a higher id and must protect;
- NOT EXISTS instead of NOT IN: a NOT IN whose estimate exceeds work_mem is quadratic. The two agree, for ids
  are never NULL inside a range;
- the OR keeps the inner IN a hashed list; as a join the planner reads the whole batch table for every unit.
SQLite has one writer and no hashes: there the batch of each event is looked up by its key. So it is on
MariaDB and MySQL, whose other plans read whole tables. Theirs is also the rule that the subqueries of a
DELETE lock what they read: the greatest id is read before, or every unit would wait for whoever captures now.
Source: symmetricds-purge, Outgoing Purge; facts/symmetricds-purge, section 4.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

from spark.formats.symmetricds import DATA, DATA_EVENT, DELIVERED_STATUSES, NODE, OUTGOING_BATCH, TableNames
from spark.purge.cutoff import CutoffValue
from spark.purge.keys import among
from spark.targets.connection import Connection, DialectName

Step = Literal["STRANDED", "DATA", "EVENTS", "BATCHES"]
STEPS: tuple[Step, ...] = ("STRANDED", "DATA", "EVENTS", "BATCHES")
ALIAS_OF: dict[Step, str] = {"STRANDED": "b", "DATA": "d", "EVENTS": "e", "BATCHES": "b"}

_DELIVERED = ", ".join(f"'{status}'" for status in DELIVERED_STATUSES)


@dataclass(frozen=True, slots=True)
class PurgeSpec:
    """What a purge decides once and keeps until its end.

    Attributes:
        cutoff: as `cutoff.convert` returned it.
        strict: a batch whose status is NULL protects its data and events (the document lets it not).
        mark_stranded: batches of nodes that are not enabled become OK first.
        stranded_nodes: mark only these; None marks those of every node that is not enabled.
        of_channels: channel to its own cut-off, in the place of `cutoff`. Then the age of each batch counts:
            one that is not older stays with its events, also between others that are.
    """

    cutoff: CutoffValue
    strict: bool = False
    mark_stranded: bool = True
    stranded_nodes: tuple[str | None, ...] | None = None
    of_channels: tuple[tuple[str, CutoffValue], ...] = ()

    @property
    def bound(self) -> dict[str, Any]:
        """The parameters of `Statements.old`."""
        found: dict[str, Any] = {"cutoff": self.cutoff}
        for place, (channel, cutoff) in enumerate(self.of_channels):
            found |= {f"channel_{place}": channel, f"cutoff_{place}": cutoff}
        return found


def table_names(conn: Connection) -> TableNames:
    """The quoted names of the purged tables in a connection's schema, with its prefix."""

    def name(table: str) -> str:
        return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")

    return TableNames(
        data=name(DATA), data_event=name(DATA_EVENT), outgoing_batch=name(OUTGOING_BATCH), node=name(NODE)
    )


def _events_index(conn: Connection) -> str | None:
    table = f"{conn.target.table_prefix}{DATA_EVENT}"
    if table not in conn.noted:
        rows = conn.execute(
            "select index_name from information_schema.statistics where table_schema = database()"
            " and table_name = :table and column_name = 'batch_id' and seq_in_index = 1 order by 1 limit 1",
            {"table": table},
        )
        conn.noted[table] = conn.dialect.quote(str(rows[0][0])) if rows else None
    return conn.noted[table]


def bound_nodes(nodes: tuple[str | None, ...] | None, dialect: DialectName) -> dict[str, Any]:
    """The parameters that `Statements.stranded` names when it is limited to some nodes."""
    if nodes is None:
        return {}
    named = [node for node in nodes if node is not None]
    # In a list of MySQL stands at least a NULL, which is no node.
    values: dict[str, Any] = {"postgresql": named, "mysql": named or [None], "sqlite": json.dumps(named)}
    return {"nodes": values[dialect]}


@dataclass(frozen=True, slots=True)
class Statements:
    """Builds the texts; every value is a parameter: :lo, :hi, :cutoff, :nodes.

    Attributes:
        as_if_marked: read as if the stranded step had been done; for plans.
        only_nodes: the stranded condition also asks for the given nodes; `null_node`: a NULL node is one of
            them.
        only_keys: only rows of a reviewed plan, whose keys `keys.bound_keys` binds.
        events_index: MySQL: the quoted name of the index on the batches of the events.
    """

    names: TableNames
    dialect: DialectName
    strict: bool = False
    as_if_marked: bool = False
    only_nodes: bool = False
    null_node: bool = False
    events_index: str | None = None
    only_keys: bool = False
    channels: int = 0

    @classmethod
    def of(
        cls, conn: Connection, spec: PurgeSpec, *, as_if_marked: bool = False, only_keys: bool = False
    ) -> "Statements":
        """The statements of a purge on the connection's tables."""
        nodes = spec.stranded_nodes
        return cls(
            table_names(conn),
            conn.dialect.name,
            strict=spec.strict,
            as_if_marked=as_if_marked and spec.mark_stranded,
            only_nodes=nodes is not None,
            null_node=nodes is not None and None in nodes,
            events_index=_events_index(conn) if conn.dialect.name == "mysql" else None,
            only_keys=only_keys,
            channels=len(spec.of_channels),
        )

    def old(self, alias: str) -> str:
        """True for a captured row or a batch that is older than the cut-off of its channel."""
        if not self.channels:
            return f"{alias}.create_time < :cutoff"
        own = " ".join(f"when :channel_{place} then :cutoff_{place}" for place in range(self.channels))
        return f"{alias}.create_time < case {alias}.channel_id {own} else :cutoff end"

    def young_all_the_same(self, alias: str) -> str:
        """True for a batch that is not older, of a purge that takes it along between others that are."""
        return "1 = 0" if self.channels else f"({self.old(alias)}) is not true"

    def keeps(self, alias: str) -> str:
        """True for a batch that keeps its events: it protects, or the time of its channel is not over."""
        if not self.channels:
            return self.protects(alias)
        return f"({self.protects(alias)} or ({self.old(alias)}) is not true)"

    def stranded(self, alias: str) -> str:
        """True for a batch which the stranded step turns to OK."""
        condition = (
            f"{alias}.node_id not in (select n.node_id from {self.names.node} n where n.sync_enabled = 1)"
            f" and {alias}.status != 'OK'"
        )
        return f"{condition} and {self._of_nodes(alias)}" if self.only_nodes else condition

    def _of_nodes(self, alias: str) -> str:
        listed = {
            "postgresql": "= any(cast(:nodes as text[]))",
            "mysql": "in :nodes",
            "sqlite": "in (select value from json_each(:nodes))",
        }[self.dialect]
        or_null = f" or {alias}.node_id is null" if self.null_node else ""
        return f"({alias}.node_id {listed}{or_null})"

    def protects(self, alias: str) -> str:
        """True for a batch that keeps its data and events."""
        undelivered = f"{alias}.status not in ({_DELIVERED})"
        if self.strict:
            undelivered = f"({undelivered} or {alias}.status is null)"
        if self.as_if_marked:
            return f"({undelivered} and ({self.stranded(alias)}) is not true)"
        return undelivered

    def delivered(self, alias: str) -> str:
        """True for a batch that may be removed itself."""
        delivered = f"{alias}.status in ({_DELIVERED})"
        if self.as_if_marked:
            return f"({delivered} or ({self.stranded(alias)}) is true)"
        return delivered

    def gone(self, alias: str) -> str:
        """True for a batch of the range that goes when its events have."""
        delivered = self.delivered(alias)
        return f"{delivered} and {self.old(alias)}" if self.channels else delivered

    def below_greatest(self, step: Step) -> str:
        """True for a row whose id is not the greatest of its table now: that one stays, whatever the range.

        The bounds of a step lie below it already; a target that was restored from a backup has gone back.
        On MySQL :greatest is what `greatest` told.
        """
        if self.dialect == "mysql":
            return {"DATA": "d.data_id < :greatest", "BATCHES": "b.batch_id < :greatest"}.get(step, "")
        return {
            "DATA": f"d.data_id < (select max(data_id) from {self.names.data})",
            "BATCHES": f"b.batch_id < (select max(batch_id) from {self.names.outgoing_batch})",
        }.get(step, "")

    def greatest(self, step: Step) -> str | None:
        """MySQL: the greatest id of the step's table, which the delete needs as :greatest."""
        if self.dialect != "mysql" or not self.below_greatest(step):
            return None
        table, key = {
            "DATA": (self.names.data, "data_id"),
            "BATCHES": (self.names.outgoing_batch, "batch_id"),
        }[step]
        return f"select max({key}) from {table}"

    def removable_data(self) -> str:
        """Condition on `sym_data d` between :lo and :hi; `PurgeSpec.bound`."""
        event = f"{self.names.data_event} e where e.data_id = d.data_id and e.data_id between :lo and :hi"
        return (
            f"d.data_id between :lo and :hi and {self.old('d')} and exists (select 1 from {event})"
            f" and not exists (select 1 from {event} and {self.protected_event()})"
        )

    def protected_event(self) -> str:
        """True for an event `e`, whose data id is between :lo and :hi, of a batch that protects."""
        batches = f"{self.names.outgoing_batch} b where {self.protects('b')}"
        if self.dialect != "postgresql":
            return f"exists (select 1 from {batches} and b.batch_id = e.batch_id)"
        reached = (
            f"select distinct x.batch_id from {self.names.data_event} x where x.data_id between :lo and :hi"
        )
        return (
            "(e.data_id is null or e.batch_id in"
            f" (select b.batch_id from {batches} and b.batch_id = any(array({reached}))))"
        )

    def removable_events(self) -> str:
        """Condition on `sym_data_event e` between :lo and :hi."""
        return (
            f"e.batch_id between :lo and :hi and not exists (select 1 from {self.names.outgoing_batch} b"
            f" where b.batch_id = e.batch_id and b.batch_id between :lo and :hi and {self.keeps('b')})"
        )

    def removable_batches(self) -> str:
        """Condition on `sym_outgoing_batch b` between :lo and :hi, after the events of the range have
        gone.
        """
        return (
            f"b.batch_id between :lo and :hi and {self.gone('b')}"
            f" and not exists (select 1 from {self.names.data_event} e"
            " where e.batch_id = b.batch_id and e.batch_id between :lo and :hi)"
        )

    def target_of(self, step: Step) -> str:
        """The table of a step with the alias that its condition uses."""
        table = {
            "STRANDED": self.names.outgoing_batch,
            "DATA": self.names.data,
            "EVENTS": self.names.data_event,
            "BATCHES": self.names.outgoing_batch,
        }[step]
        return f"{table} as {ALIAS_OF[step]}{self._by_key(step)}"

    def _by_key(self, step: Step) -> str:
        """MySQL: no walk through the whole table, whatever its statistics say: it would lock the rows."""
        if self.dialect != "mysql":
            return ""
        index = self.events_index if step == "EVENTS" else "primary"
        return f" force index ({index})" if index else ""

    def delete(self, step: Step) -> str:
        """The delete of one unit; for BATCHES too PostgreSQL looks at the status of the locked row again."""
        condition = {
            "DATA": self.removable_data,
            "EVENTS": self.removable_events,
            "BATCHES": self.removable_batches,
        }[step]()
        kept = self.below_greatest(step)
        # One form for all versions: MariaDB before 11.6 takes no alias in the form of one table.
        head = f"delete {ALIAS_OF[step]}" if self.dialect == "mysql" else "delete"
        kept = f" and {kept}" if kept else ""
        return f"{head} from {self.target_of(step)} where {condition}{kept}{self._among(step)}"

    def mark(self) -> str:
        """The update of one unit of the stranded step."""
        return (
            f"update {self.target_of('STRANDED')} set status = 'OK'"
            f" where b.batch_id between :lo and :hi and {self.stranded('b')}{self._among('STRANDED')}"
        )

    def _among(self, step: Step) -> str:
        """The condition that keeps a unit to the rows of its plan."""
        if not self.only_keys:
            return ""
        batch = ("b.batch_id", "coalesce(b.node_id, '')")
        columns: dict[Step, tuple[str, ...]] = {
            "STRANDED": batch,
            "DATA": ("d.data_id",),
            "EVENTS": ("e.batch_id", "e.data_id"),
            "BATCHES": batch,
        }
        return f" and {among(self.dialect, columns[step], last_is_text=columns[step] == batch)}"

    def reached(self) -> str:
        """MySQL: the ids of the batches that a range of data reaches through the events."""
        return (
            f"select distinct e.batch_id from {self.names.data_event} e force index (primary)"
            " where e.data_id between :lo and :hi"
        )

    def lock_listed(self, step: Step, share_lock: str) -> str | None:
        """MySQL: lock, in key order, the batches of :listed (DATA) or of the unit's own range; their ids."""
        if step == "BATCHES":
            return None
        which = {
            "DATA": "in :listed",
            "EVENTS": "between :lo and :hi",
            "STRANDED": f"between :lo and :hi and {self.stranded('b')}",
        }[step]
        if step == "STRANDED":
            share_lock = " for update"
        return (
            f"select b.batch_id from {self.names.outgoing_batch} b force index (primary)"
            f" where b.batch_id {which} order by b.batch_id, b.node_id{share_lock}"
        )

    def lock(self, step: Step, share_lock: str) -> str | None:
        """Lock, in key order, every batch that the unit's range reaches, and count them; None: no lock
        needed.

        Args:
            step: DATA reaches its batches through the events, EVENTS and STRANDED name them by their own
                range.
            share_lock: the dialect's clause for alias `b`; empty where the transaction itself keeps writers
                out.
        """
        if step == "BATCHES" or not share_lock:
            return None
        batches = f"{self.names.outgoing_batch} b where b.batch_id"
        events = (
            f"select distinct e.batch_id from {self.names.data_event} e where e.data_id between :lo and :hi"
        )
        # As a semi-join the planner reads the whole batch table; the array goes through the key.
        reached = {
            "DATA": f"= any(array({events}))",
            "EVENTS": "between :lo and :hi",
            "STRANDED": f"between :lo and :hi and {self.stranded('b')}",
        }[step]
        if step == "STRANDED":
            share_lock = share_lock.replace("for share", "for no key update")
        return (
            f"select count(*) from (select 1 from {batches} {reached}"
            f" order by b.batch_id, b.node_id{share_lock}) locked"
        )
