"""What an outgoing purge would do: exact counts, the nodes it would mark, and a warning for every awkward
row.

The counts are those of the run that follows on a quiet database, stranded step included. Reads only, in
chunks.
Source: symmetricds-purge, Outgoing Purge; facts/symmetricds-purge, sections 4 and 7.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spark.formats.symmetricds import DATA, DATA_EVENT, OUTGOING_BATCH
from spark.purge.cutoff import CutoffValue
from spark.purge.findings import (
    SAMPLE_MAX,
    PlanWarning,
    batch_findings,
    data_findings,
    event_findings,
    shared_with_protecting,
    warnings_of,
)
from spark.purge.keys import KeySink
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.ranges import eligible_batches, step_bounds
from spark.purge.reading.channels import unknown_channels
from spark.purge.resent import ResentReport, list_resent
from spark.purge.scan import PlanStopped, Scan, Source, scan
from spark.purge.statements import PurgeSpec, Statements, Step, bound_nodes
from spark.purge.stranded import StrandedNode
from spark.purge.upkeep_rules import CHANNEL
from spark.targets.connection import Connection

__all__ = ["OutgoingPlan", "PlanStopped", "PlanWarning", "StrandedNode", "TablePlan", "plan_outgoing"]

IdRange = tuple[int, int]
# The baseline must be whole to blame nobody wrongly; beyond this the purge may report older ones as its own.
BASELINE_MAX = 10_000
# No id lies in it.
NOWHERE: IdRange = (1, 0)
EVERYWHERE: IdRange = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingPlan(PurgePlan):
    """With the batches that lack data or events already."""

    baseline: ResentReport


def plan_outgoing(
    conn: Connection,
    spec: PurgeSpec,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    now: CutoffValue | None = None,
    keys: KeySink | None = None,
) -> OutgoingPlan:
    """Count what `run_unit` over all ranges of all steps would remove.

    Args:
        should_stop: asked before each chunk.
        now: the target's clock, converted like the cut-off; None: times in the future are not looked for.
        keys: gets the key of every row that would be marked or removed.
    Raises: PlanStopped; any TargetError.
    """
    return _Plan(conn, spec, should_stop, now, keys).make()


class _Plan:
    """Carries what every part of the plan reads."""

    def __init__(
        self,
        conn: Connection,
        spec: PurgeSpec,
        should_stop: Callable[[], bool],
        now: CutoffValue | None,
        keys: KeySink | None,
    ) -> None:
        self._conn = conn
        self._should_stop = should_stop
        self._keys = keys
        self._marks = spec.mark_stranded
        self._channels = tuple(channel for channel, _cutoff in spec.of_channels)
        self._statements = Statements.of(conn, spec, as_if_marked=True)
        self._data_range = step_bounds(conn, "DATA", spec)
        self._batch_range = eligible_batches(conn, self._statements, spec)
        blo, bhi = self._batch_range or NOWHERE
        dhi = self._data_range[1] if self._data_range else 0
        self._parameters: dict[str, Any] = {
            **spec.bound,
            "now": now,
            "dhi": dhi,
            "blo": blo,
            "bhi": bhi,
            **bound_nodes(spec.stranded_nodes, conn.dialect.name),
        }
        self._nodes: dict[str | None, StrandedNode] = {}

    def make(self) -> OutgoingPlan:
        """Walk the three tables once each, then the undelivered batches."""
        data, events, batches = self._data(), self._events(), self._batches()
        baseline = self._resent(self._data_range, BASELINE_MAX)
        missing = self._resent(EVERYWHERE, SAMPLE_MAX)
        if self._should_stop():
            raise PlanStopped
        return OutgoingPlan(
            tables=(
                self._table(DATA, data, self._data_range),
                self._table(DATA_EVENT, events, self._batch_range),
                self._table(OUTGOING_BATCH, batches, self._batch_range),
            ),
            stranded_nodes=tuple(node for _, node in sorted(self._nodes.items(), key=_by_name)),
            warnings=(
                *warnings_of([*data.found, *events.found, *batches.found]),
                *self._missing_before(missing),
                *self._kept_ids(),
                *self._unknown_channels(),
            ),
            baseline=baseline,
        )

    def _data(self) -> Scan:
        names = self._statements.names
        protected = self._statements.protected_event()
        events = (
            f"with p as (select e.data_id, e.batch_id, case when {protected} then 1 else 0 end as protected,"
            f" case when {self._held()} then 1 else 0 end as held"
            f" from {names.data_event} e where e.data_id between :lo and :hi),"
            " x as (select p.data_id, max(p.protected) as protected,"
            " max(case when p.held = 0 and p.batch_id between :blo and :bhi then 0 else 1 end) as kept"
            " from p group by p.data_id) "
        )
        source = Source(
            keys=names.data,
            key="data_id",
            before=events,
            rows=f"{names.data} d left join x on x.data_id = d.data_id where d.data_id between :lo and :hi",
            row_key="d.data_id",
        )
        removable = f"d.data_id <= :dhi and {self._statements.old('d')} and x.protected = 0"
        keys = f"{events}select d.data_id from {source.rows} and {removable} order by d.data_id"
        findings = data_findings(self._statements)
        return self._scan(source, DATA, removable, findings, step="DATA", keys=keys)

    def _held(self) -> str:
        """True for an event `e` that stays: its batch keeps it."""
        statements = self._statements
        if not statements.channels:
            return statements.protected_event()
        batches = f"{statements.names.outgoing_batch} b where b.batch_id = e.batch_id"
        return f"exists (select 1 from {batches} and {statements.keeps('b')})"

    def _events(self) -> Scan:
        names = self._statements.names
        source = Source(
            keys=names.data_event,
            key="batch_id",
            before=(
                f"with x as (select e.batch_id, count(*) as events from {names.data_event} e"
                " where e.batch_id between :lo and :hi group by e.batch_id) "
            ),
            rows="x where x.batch_id between :lo and :hi",
            row_key="x.batch_id",
            weight="x.events",
        )
        removable = (
            f"x.batch_id between :blo and :bhi and not exists (select 1 from {names.outgoing_batch} b"
            f" where b.batch_id = x.batch_id and {self._statements.keeps('b')})"
        )
        keys = (
            f"select x.batch_id, x.data_id from {names.data_event} x where x.batch_id between :lo and :hi"
            f" and {removable} order by x.batch_id, x.data_id"
        )
        findings = event_findings(self._statements)
        return self._scan(source, DATA_EVENT, removable, findings, step="EVENTS", keys=keys)

    def _batches(self) -> Scan:
        names = self._statements.names
        source = Source(
            keys=names.outgoing_batch,
            key="batch_id",
            rows=f"{names.outgoing_batch} b where b.batch_id between :lo and :hi",
            row_key="b.batch_id",
        )
        removable = (
            f"b.batch_id between :blo and :bhi and {self._statements.gone('b')}"
            f" and not ({shared_with_protecting(self._statements)})"
        )
        keys = (
            f"select b.batch_id, b.node_id from {source.rows} and {removable} order by b.batch_id, b.node_id"
        )
        findings, count = batch_findings(self._statements), self._count_nodes
        return self._scan(source, OUTGOING_BATCH, removable, findings, count, step="BATCHES", keys=keys)

    def _scan(
        self,
        source: Source,
        table: str,
        removable: str,
        findings: Sequence[Any],
        each_chunk: Callable[[int, int], None] = lambda _lo, _hi: None,
        *,
        step: Step,
        keys: str,
    ) -> Scan:
        return scan(
            self._conn,
            source,
            table=self._named(table),
            removable=removable,
            findings=findings,
            parameters=self._parameters,
            should_stop=self._should_stop,
            each_chunk=each_chunk,
            keys=keys,
            take=None if self._keys is None else partial(self._keys, step),
        )

    def _count_nodes(self, lo: int, hi: int) -> None:
        rows = self._conn.execute(
            f"select b.node_id, count(*) from {self._statements.names.outgoing_batch} b"
            f" where b.batch_id between :lo and :hi and {self._statements.stranded('b')} group by b.node_id",
            {**self._parameters, "lo": lo, "hi": hi},
        )
        if not rows:
            return
        if self._keys is not None and self._marks:
            marked = self._conn.execute(
                f"select b.batch_id, b.node_id from {self._statements.names.outgoing_batch} b"
                f" where b.batch_id between :lo and :hi and {self._statements.stranded('b')}"
                " order by b.batch_id, b.node_id",
                {**self._parameters, "lo": lo, "hi": hi},
            )
            self._keys("STRANDED", marked)
        events: dict[str | None, int] = dict(
            self._conn.execute(
                f"select b.node_id, count(*) from {self._statements.names.outgoing_batch} b"
                f" join {self._statements.names.data_event} e on e.batch_id = b.batch_id"
                f" where b.batch_id between :lo and :hi and {self._statements.stranded('b')}"
                " group by b.node_id",
                {**self._parameters, "lo": lo, "hi": hi},
            )
        )
        for node, count in rows:
            known = self._nodes.get(node, StrandedNode(node, 0))
            self._nodes[node] = StrandedNode(
                node, known.batches + int(count), known.rows + int(events.get(node, 0))
            )

    def _resent(self, data_range: IdRange | None, limit: int) -> ResentReport:
        return list_resent(self._conn, data_range, self._batch_range, limit, should_stop=self._should_stop)

    def _missing_before(self, missing: ResentReport) -> list[PlanWarning]:
        detail = (
            "not delivered, and events or data of it have gone before this purge: it cannot be sent whole"
        )
        sample = tuple(item.batch_id for item in missing.items)
        table = self._named(OUTGOING_BATCH)
        found = PlanWarning("BATCH_DATA_ALREADY_MISSING", table, missing.count, sample, detail)
        return [found] if missing.count else []

    def _unknown_channels(self) -> list[PlanWarning]:
        unknown = unknown_channels(self._conn, self._channels)
        detail = (
            "no channel of this name is in it: rows of the channel that was meant go by the other cut-off"
        )
        found = PlanWarning(
            "CHANNEL_UNKNOWN", self._named(CHANNEL), len(unknown), unknown[:SAMPLE_MAX], detail
        )
        return [found] if unknown else []

    def _kept_ids(self) -> list[PlanWarning]:
        """The greatest ids, where the row of that id would have gone otherwise."""
        names = self._statements.names
        found = []
        for table, name, alias, key, condition in (
            (DATA, names.data, "d", "data_id", self._statements.removable_data()),
            (
                OUTGOING_BATCH,
                names.outgoing_batch,
                "b",
                "batch_id",
                f"{self._statements.delivered('b')} and {self._statements.old('b')}",
            ),
        ):
            highest = self._conn.execute(f"select max({key}) from {name}")[0][0]
            if highest is None:
                continue
            bound = {**self._parameters, "lo": highest, "hi": highest}
            sql = (
                f"select count(*) from {name} {alias} where {alias}.{key} between :lo and :hi and {condition}"
            )
            [(count,)] = self._conn.execute(sql, bound)
            if count:
                detail = "the greatest id of its table: always stays, so that no id is ever used twice"
                found.append(
                    PlanWarning("MAX_ID_KEPT", self._named(table), int(count), (int(highest),), detail)
                )
        return found

    def _table(self, table: str, result: Scan, bounds: IdRange | None) -> TablePlan:
        lo, hi = bounds or (None, None)
        return TablePlan(self._named(table), result.rows, result.removable, lo, hi)

    def _named(self, table: str) -> str:
        return f"{self._conn.target.table_prefix}{table}"


def _by_name(item: tuple[str | None, StrandedNode]) -> str:
    return item[0] or ""
