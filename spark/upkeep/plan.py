"""What a purge would do: exact counts of the moment, with what stays and why."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from spark.formats.symmetricds import DATA, KindName, Layout
from spark.purge.cutoff import CutoffValue
from spark.purge.findings import SAMPLE_MAX, PlanWarning
from spark.purge.keys import KeySink
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.scan import CHUNK_ROWS, PlanStopped, ShouldStop
from spark.purge.upkeep_rules import CHANNEL, faults_of
from spark.rows.keys import texts_of
from spark.rows.sql import Sql
from spark.rows.walk import each_chunk, within
from spark.targets.connection import Connection
from spark.upkeep.parts import Part, parts_of
from spark.upkeep.recapture.judging import kept_of


@dataclass(slots=True)
class _Counted:
    """One condition that is counted; what goes has no code."""

    code: str
    text: str
    detail: str
    count: int = 0
    sample: tuple[Any, ...] = ()


def plan_upkeep(
    conn: Connection,
    kind: KindName,
    layout: Layout,
    cutoff: CutoffValue,
    should_stop: ShouldStop,
    *,
    marks: bool,
    now: CutoffValue,
    keys: KeySink | None = None,
    recaptures: bool = False,
) -> PurgePlan:
    """Count what would go, table by table, as if the steps before had run.

    Args:
        marks: batches would be turned to OK first.
        now: the target's clock, converted like the cut-off.
        keys: gets the keys of every row that would be marked or removed, as texts.
        recaptures: stranded rows would be captured anew: those of which a look tells that they will stay are
            counted, and named in the warnings.
    Raises: PlanStopped; any TargetError.
    """
    tables: list[TablePlan] = []
    warnings: list[PlanWarning] = []
    marked = 0
    for part in parts_of(conn, kind, layout, cutoff, marks=marks, recaptures=recaptures):
        take = None if keys is None else partial(keys, part.step)
        rows, counted = _count(conn, part, now, should_stop, take)
        warnings += [
            PlanWarning(item.code, part.at.table, item.count, item.sample, item.detail)
            for item in counted[1:]
            if item.count
        ]
        if recaptures and part.rule.table == DATA:
            warnings += _kept(conn, part, should_stop)
        if part.rule.action == "MARK":
            marked = counted[0].count
        else:
            tables.append(TablePlan(part.at.table, rows, counted[0].count, None, None))
    warnings += _absent(conn, kind, layout)
    return PurgePlan(tables=tuple(tables), warnings=tuple(warnings), marked=marked)


def _kept(conn: Connection, part: Part, should_stop: ShouldStop) -> list[PlanWarning]:
    found = kept_of(conn, part, part.at.planned, should_stop, otherwise=None)
    if should_stop():
        raise PlanStopped
    return [PlanWarning(each.code, part.at.table, each.count, each.sample, each.detail) for each in found]


def _absent(conn: Connection, kind: KindName, layout: Layout) -> list[PlanWarning]:
    """Tables of other versions, and a table without which nothing is known."""
    prefix = conn.target.table_prefix
    found = [
        PlanWarning("TABLE_NOT_PURGED", f"{prefix}{table}", 0, (), f"{fault}: nothing of it goes")
        for table, fault in faults_of(kind, layout, prefix=prefix).items()
    ]
    if kind == "CHANNELS":
        name = conn.dialect.qualify(conn.target.schema, f"{prefix}{CHANNEL}")
        [(channels,)] = conn.execute(f"select count(*) from {name}")
        if not channels:
            detail = "there is no channel at all: nothing is taken for gone, everything stays"
            found.append(PlanWarning("NO_CHANNELS", f"{prefix}{CHANNEL}", 1, (), detail))
    return found


def _conditions(part: Part) -> list[_Counted]:
    at, rule, row = part.at, part.rule, part.at.row
    found = [
        _Counted("", at.planned.text, ""),
        _Counted("ROW_TIME_NULL", f"{row}.{rule.time} is null", f"{rule.time} is NULL: never removed"),
        _Counted(
            "ROW_TIME_IN_FUTURE", f"{row}.{rule.time} > :now", "later than the target's clock: check clocks"
        ),
    ]
    if rule.time == "inactive_time":  # NULL is the normal state of a history
        del found[1]
    if rule.kept is not None:
        text = f"({part.own.text}) and ({at.planned.text}) is not true"
        found.append(_Counted(rule.kept.code, text, rule.kept.detail))
    return found


def _count(
    conn: Connection,
    part: Part,
    now: CutoffValue,
    should_stop: ShouldStop,
    take: Callable[[list[Any]], None] | None,
) -> tuple[int, list[_Counted]]:
    counted, rows = _conditions(part), 0
    sums = ", ".join(f"coalesce(sum(case when {item.text} then 1 else 0 end), 0)" for item in counted)
    bound = {**part.own.bound, "now": now}
    for after, upto in each_chunk(conn, part.at, rows=CHUNK_ROWS, should_stop=should_stop):
        if should_stop():
            raise PlanStopped
        between = within(part.at, after, upto)
        [(seen, *numbers)] = conn.execute(
            f"select count(*), {sums} from {part.at.source} where {between.text}", {**bound, **between.bound}
        )
        rows += int(seen)
        for item, number in zip(counted, map(int, numbers), strict=True):
            if number and item.code and len(item.sample) < SAMPLE_MAX:
                item.sample += tuple(
                    ", ".join(text[2:] for text in key)
                    for key in _keys(conn, part, between, item.text, bound, SAMPLE_MAX - len(item.sample))
                )
            if number and take is not None and not item.code:
                found = _keys(conn, part, between, item.text, bound, CHUNK_ROWS)
                take(found)
                number = len(found)
            item.count += number
    if should_stop():
        raise PlanStopped
    return rows, counted


def _keys(
    conn: Connection, part: Part, between: Sql, condition: str, bound: dict[str, Any], most: int
) -> list[tuple[str, ...]]:
    rows = conn.execute(
        f"select {part.at.key.selected} from {part.at.source} where ({between.text}) and ({condition})"
        f" order by {part.at.key.order()} limit :most",
        {**bound, **between.bound, "most": most},
    )
    return [texts_of(row) for row in rows]
