"""What waits to be delivered, by node and channel: one bounded look through the indexes of SymmetricDS.

Rules:
- the condition on `status` is one of ranges, so that `idx_ob_status` finds the few that wait among the many
  that are delivered; a NULL status waits for nobody, as in the statements of a purge;
- so many batches and so many rows of `data_event` are read at most: beyond, the figures are lower bounds;
- nothing is locked, and no table is read whole but the names of nodes and channels, and `node_host`'s rows of
  the nodes that are told.
Source: facts/symmetricds-purge, sections 1, 2 and 6.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

from spark.formats.symmetricds import DATA_EVENT, NODE, OUTGOING_BATCH, Layout, TimeEncoding
from spark.purge.cutoff import CutoffValue, instant_of
from spark.purge.reading.catalog import columns_of
from spark.purge.reading.inspect import readable
from spark.purge.reading.known import Known, read_known
from spark.targets.connection import Connection

BATCHES_MAX: Final = 200_000
ROWS_MAX: Final = 1_000_000
PAIRS_MAX: Final = 100
"""Pairs of node and channel that are told each, those with the oldest batches first."""
NODE_HOST: Final = "node_host"
_WAITS: Final = "(status < 'IG' or (status > 'IG' and status < 'OK') or status > 'OK')"
_OFFSET: Final = re.compile(r"([+-])(\d{2}):(\d{2})")
_Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What of a channel waits for a node.

    Attributes:
        rows: events of its batches; a row of `data` counts once for each node that it goes to.
        oldest_at: of the oldest batch, aware; None: its time is NULL, or no time.
        status, is_in_error: of the oldest batch; None: it went meanwhile.
    """

    node: str
    channel: str
    batches: int
    errors: int
    rows: int
    oldest_batch: int
    oldest_at: datetime | None
    status: str | None = None
    is_in_error: bool = False


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """What the target knows of a node.

    Attributes:
        is_enabled: None: it is not in `node`.
        heartbeat_at: when it told last that it runs; None: it never did, or it may not be read.
    """

    is_enabled: bool | None
    heartbeat_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class BacklogReading:
    """What waits at one moment.

    Attributes:
        pairs: the first PAIRS_MAX, those with the oldest batches first; `pairs_total` counts all.
        is_at_least: there is more than was read.
        nodes: of the pairs that are told.
        known: names of all nodes and channels; None: nobody has asked.
    """

    batches: int
    errors: int
    rows: int
    pairs: tuple[Waiting, ...]
    pairs_total: int
    is_at_least: bool
    nodes: Mapping[str, NodeSeen]
    known: Known | None = None


def read_backlog(
    conn: Connection,
    layout: Layout,
    *,
    time_zone: str,
    encoding: TimeEncoding,
    batches_max: int = BATCHES_MAX,
    rows_max: int = ROWS_MAX,
) -> BacklogReading:
    """Look once at what waits.

    Args:
        time_zone, encoding: of the naive times (`cutoff.instant_of`).
    Raises: TargetError: among them that a statement took longer than the connection allows.
    """
    has_flag = "error_flag" in layout.columns_of(OUTGOING_BATCH)
    waiting = f"{_waiting(conn, has_channel=_has_channel(layout), has_flag=has_flag)} limit {batches_max + 1}"
    found = conn.execute(
        "select node_id, channel_id, count(*), sum(is_error), min(batch_id), min(create_time)"
        f" from ({waiting}) w group by node_id, channel_id"
    )
    rows = _rows_by_pair(conn, waiting, rows_max)

    def instant(value: CutoffValue | None) -> datetime | None:
        return None if value is None else instant_of(value, time_zone=time_zone, encoding=encoding)

    pairs = [
        Waiting(
            *_pair(node, channel),
            batches=int(batches),
            errors=int(errors),
            rows=rows.get(_pair(node, channel), 0),
            oldest_batch=int(oldest),
            oldest_at=instant(at),
        )
        for node, channel, batches, errors, oldest, at in found
    ]
    pairs.sort(key=lambda each: (each.oldest_batch, each.node, each.channel))
    told = _with_oldest(conn, pairs[:PAIRS_MAX], has_flag=has_flag)
    batches_total, rows_total = sum(each.batches for each in pairs), sum(rows.values())
    return BacklogReading(
        batches=batches_total,
        errors=sum(each.errors for each in pairs),
        rows=rows_total,
        pairs=tuple(told),
        pairs_total=len(pairs),
        is_at_least=batches_total > batches_max or rows_total > rows_max,
        nodes=_nodes(conn, sorted({each.node for each in told}), time_zone=time_zone, encoding=encoding),
        known=_known(conn, pairs),
    )


def _known(conn: Connection, pairs: Sequence[Waiting]) -> Known | None:
    return read_known(conn, nodes=[each.node for each in pairs], channels=[each.channel for each in pairs])


def _rows_by_pair(conn: Connection, waiting: str, rows_max: int) -> dict[_Pair, int]:
    counted = conn.execute(
        "select node_id, channel_id, count(*) from (select w.node_id, w.channel_id"
        f" from ({waiting}) w join {_name(conn, DATA_EVENT)} e on e.batch_id = w.batch_id"
        f" limit {rows_max + 1}) x group by node_id, channel_id"
    )
    return {_pair(node, channel): int(count) for node, channel, count in counted}


def _waiting(conn: Connection, *, has_channel: bool, has_flag: bool) -> str:
    error = "status = 'ER' or error_flag = 1" if has_flag else "status = 'ER'"
    channel = "channel_id" if has_channel else "null as channel_id"
    return (
        f"select batch_id, node_id, {channel}, create_time, case when {error} then 1 else 0 end as is_error"
        f" from {_name(conn, OUTGOING_BATCH)} where {_WAITS}"
    )


def _has_channel(layout: Layout) -> bool:
    return "channel_id" in layout.columns_of(OUTGOING_BATCH)


def _with_oldest(conn: Connection, pairs: Sequence[Waiting], *, has_flag: bool) -> list[Waiting]:
    """The pairs with the state of their oldest batches, found by the primary key."""
    if not pairs:
        return []
    names, values = _listed([each.oldest_batch for each in pairs])
    flag = "error_flag" if has_flag else "0"
    found = conn.execute(
        f"select batch_id, node_id, status, {flag} from {_name(conn, OUTGOING_BATCH)}"
        f" where batch_id in ({names})",
        values,
    )
    same = _same(conn)
    states = {(int(batch), same(str(node or ""))): (status, error) for batch, node, status, error in found}
    told = []
    for each in pairs:
        status, error = states.get((each.oldest_batch, same(each.node)), (None, 0))
        told.append(replace(each, status=status, is_in_error=status == "ER" or bool(error)))
    return told


def _nodes(
    conn: Connection, names: Sequence[str], *, time_zone: str, encoding: TimeEncoding
) -> dict[str, NodeSeen]:
    if not names:
        return {}
    listed, values = _listed(names)
    same = _same(conn)
    enabled = {
        same(str(node)): int(is_enabled or 0) == 1
        for node, is_enabled in conn.execute(
            f"select node_id, sync_enabled from {_name(conn, NODE)} where node_id in ({listed})", values
        )
    }
    beats = _heartbeats(conn, listed, values, time_zone=time_zone, encoding=encoding)
    return {name: NodeSeen(enabled.get(same(name)), beats.get(same(name))) for name in names}


def _heartbeats(
    conn: Connection, listed: str, values: Mapping[str, Any], *, time_zone: str, encoding: TimeEncoding
) -> dict[str, datetime]:
    """The newest of each node, by the offset that the node has told with it, as SymmetricDS reads them."""
    columns = columns_of(conn, NODE_HOST)
    if "heartbeat_time" not in columns or not readable(conn, NODE_HOST):
        return {}
    offset = "timezone_offset" if "timezone_offset" in columns else "null"
    newest: dict[str, datetime] = {}
    for node, value, told in conn.execute(
        f"select node_id, heartbeat_time, {offset} from {_name(conn, NODE_HOST)} where node_id in ({listed})",
        values,
    ):
        at = None if value is None else _heartbeat(value, told, time_zone=time_zone, encoding=encoding)
        if at is not None:
            name = _same(conn)(str(node))
            newest[name] = max(at, newest.get(name, at))
    return newest


def _heartbeat(
    value: CutoffValue, offset: str | None, *, time_zone: str, encoding: TimeEncoding
) -> datetime | None:
    parts = _OFFSET.fullmatch((offset or "").strip())
    if parts is None or encoding not in ("timestamp", "text"):
        return instant_of(value, time_zone=time_zone, encoding=encoding)
    naive = value if isinstance(value, datetime) else None
    if isinstance(value, str):
        try:
            naive = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if naive is None:
        return None
    sign = 1 if parts[1] == "+" else -1
    span = sign * timedelta(hours=int(parts[2]), minutes=int(parts[3]))
    if abs(span) >= timedelta(days=1):
        return instant_of(value, time_zone=time_zone, encoding=encoding)
    return naive.replace(tzinfo=timezone(span)).astimezone(UTC)


def _same(conn: Connection) -> Callable[[str], str]:
    """The form of a text in which two are the same to the database; the usual collations of MySQL fold."""
    return (lambda text: text.casefold().rstrip(" ")) if conn.dialect.name == "mysql" else str


def _listed(values: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """`:v0, :v1, ...` and their values."""
    named = {f"v{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{name}" for name in named), named


def _pair(node: object, channel: object) -> _Pair:
    return str(node or ""), str(channel or "")


def _name(conn: Connection, table: str) -> str:
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")
