"""Records that a consumer refused: kept at both sides until the consumer's RUV has passed them.

One row for each (direction, peer, CSN): refused again its attempts are counted, and it is open again.
SENT: a consumer refused it, the peer is the agreement. RECEIVED: this replica did, the peer names the
supplier. Source: design.md, Replication ("never a silent skip").
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.targets.connection import Connection


class Direction(StrEnum):
    """Who refused."""

    SENT = "SENT"
    RECEIVED = "RECEIVED"


@dataclass(frozen=True, slots=True)
class Refused:
    """A record as it was refused, and why."""

    csn: Csn
    kind: str
    database: bytes
    key: bytes
    payload: bytes | None
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A refused record with what became of it; times are seconds since 1970 by the target's clock.

    Attributes:
        sizes: bytes of database, key and payload as they are kept; a list may show less of them.
        resolved_at_s: when the RUV had passed it; None: its replica id still waits for it.
    """

    direction: Direction
    peer: str
    refused: Refused
    attempts: int
    first_at_s: int
    last_at_s: int
    resolved_at_s: int | None
    sizes: tuple[int, int, int | None]

    @property
    def position(self) -> tuple[str, str, str]:
        """Where it stands in the order of the list."""
        return (self.direction, self.peer, self.refused.csn)


OPEN_MAX: Final = 1_000
SHOWN_MAX_BYTES: Final = 4_096
"""Of each of database, key and payload, in a list: what was refused may be of any size."""


def put_dead_letters(
    conn: Connection, direction: Direction, peer: str, refused: Sequence[Refused], *, now_s: int
) -> None:
    """Note refused records; the newest refusal's code and detail stand.

    In the transaction of the caller: of a RECEIVED one that of the batch.
    """
    conn.execute_many(
        f"insert into {tables_of(conn).dead_letters} as d "
        "(direction, peer, csn, rid, kind, database, key, payload, code, detail,"
        " attempts, first_at_s, last_at_s) values (:direction, :peer, :csn, :rid, :kind, :database, :key,"
        " :payload, :code, :detail, 1, :now, :now)"
        " on conflict (direction, peer, csn) do update set attempts = d.attempts + 1,"
        " code = excluded.code, detail = excluded.detail, last_at_s = excluded.last_at_s,"
        " kind = excluded.kind, database = excluded.database, key = excluded.key,"
        " payload = excluded.payload, resolved_at_s = null",
        [_values(direction, peer, each, now_s) for each in refused],
    )


def resolve_dead_letters(
    conn: Connection, direction: Direction, ruv: Mapping[int, str], *, now_s: int, peer: str | None = None
) -> int:
    """Mark what a RUV has passed; how many were open until now.

    Args:
        ruv: SENT: the consumer's, as it was acknowledged. RECEIVED: this replica's own.
        peer: only that peer's; None: every peer's, because a record may arrive by another one.
    """
    table = tables_of(conn).dead_letters
    # Nearly always there is nothing: one short look instead of a statement for each replica id.
    rids = conn.execute(
        f"select distinct rid from {table} where resolved_at_s is null and direction = :direction",
        {"direction": direction},
    )
    resolved = 0
    for (rid,) in sorted(rids):
        if rid in ruv:
            resolved += conn.execute_count(
                f"update {table} set resolved_at_s = :now where resolved_at_s is null"
                " and direction = :direction and rid = :rid and csn <= :csn"
                + ("" if peer is None else " and peer = :peer"),
                {"now": now_s, "direction": direction, "rid": rid, "csn": str(ruv[rid])}
                | ({} if peer is None else {"peer": peer}),
            )
    return resolved


def list_dead_letters(
    conn: Connection,
    *,
    rows_max: int,
    after: tuple[str, str, str] | None = None,
    open_only: bool = False,
) -> list[DeadLetter]:
    """A page in the order of (direction, peer, CSN), beginning after a `position`.

    Database and key are cut at SHOWN_MAX_BYTES; a payload that is longer is left out.
    """
    conditions = ["resolved_at_s is null"] if open_only else []
    params: dict[str, Any] = {"rows": rows_max}
    if after is not None:
        conditions.append("(direction, peer, csn) > (:direction, :peer, :csn)")
        params |= dict(zip(("direction", "peer", "csn"), after, strict=True))
    where = f" where {' and '.join(conditions)}" if conditions else ""
    rows = conn.execute(
        "select direction, peer, csn, kind, substr(database, 1, :shown), substr(key, 1, :shown),"
        " case when length(payload) <= :shown then payload end, code, detail, attempts,"
        " first_at_s, last_at_s, resolved_at_s, length(database), length(key), length(payload)"
        f" from {tables_of(conn).dead_letters}{where} order by direction, peer, csn limit :rows",
        params | {"shown": SHOWN_MAX_BYTES},
    )
    return [_letter(row) for row in rows]


def count_open(conn: Connection, direction: Direction, *, peer: str | None = None) -> int:
    """How many are not resolved."""
    [(count,)] = conn.execute(
        f"select count(*) from {tables_of(conn).dead_letters}"
        " where resolved_at_s is null and direction = :direction"
        + ("" if peer is None else " and peer = :peer"),
        {"direction": direction} | ({} if peer is None else {"peer": peer}),
    )
    return int(count)


def open_csns(conn: Connection, direction: Direction) -> list[Csn]:
    """What is not resolved, of every peer; few: behind the first of a replica id nothing is refused."""
    rows = conn.execute(
        f"select distinct csn from {tables_of(conn).dead_letters}"
        " where resolved_at_s is null and direction = :direction order by csn limit :most",
        {"direction": direction, "most": OPEN_MAX},
    )
    return [Csn(csn) for (csn,) in rows]


def _values(direction: Direction, peer: str, refused: Refused, now_s: int) -> dict[str, Any]:
    return {
        "direction": str(direction),
        "peer": peer,
        "csn": str(refused.csn),
        "rid": refused.csn.rid,
        "kind": refused.kind,
        "database": refused.database,
        "key": refused.key,
        "payload": refused.payload,
        "code": refused.code,
        "detail": refused.detail,
        "now": now_s,
    }


def _letter(row: tuple[Any, ...]) -> DeadLetter:
    direction, peer, csn, kind, database, key, payload, code, detail, attempts, first, last, resolved = row[
        :13
    ]
    # SQLite's substr() of an empty value is null, and an extinction has no database and no key.
    place = (bytes(database or b""), bytes(key or b""))
    refused = Refused(Csn(csn), kind, *place, _bytes(payload), code, detail)
    return DeadLetter(Direction(direction), peer, refused, attempts, first, last, resolved, tuple(row[13:]))


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
