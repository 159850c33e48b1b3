"""What became of one key, as far as the changelog still tells.

The changelog has no index by key: a page reads all of it, without its values, in one statement.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.records import RecordKind, ReplicaStatus
from spark.replication.replica.entries import get_entry
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.part_row import require_held
from spark.replication.replica.replica import snapshot
from spark.targets.connection import Connection

_LAST: Final = "g"
"""Compares above every CSN."""


class Outcome(StrEnum):
    """What a change is now.

    WON: the entry is at it. OVERWRITTEN: a greater CSN has won. EXTINCT: the key has no entry, for an
    extinction has removed it.
    """

    WON = "WON"
    OVERWRITTEN = "OVERWRITTEN"
    EXTINCT = "EXTINCT"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A change of a key; `overwritten_by` is the next greater CSN of the key that is known here."""

    csn: Csn
    payload: bytes | None
    logged_at_s: int
    outcome: Outcome
    overwritten_by: Csn | None


@dataclass(frozen=True, slots=True)
class KeyHistory:
    """Changes of a key, the greatest CSN first.

    Attributes:
        purged: up to where changes have left the changelog, by replica id: older ones may have been there.
    """

    changes: tuple[KeyChange, ...]
    more: bool
    purged: Mapping[int, Csn]
    is_initializing: bool = False


def read_key_history(
    conn: Connection, database: bytes, key: bytes, *, before: str | None, rows_max: int, bytes_max: int
) -> KeyHistory:
    """Read a page of a key's history, in a transaction of its own.

    Args:
        before: only changes below this CSN, the last one of the page before.
        bytes_max: of the values; the last one may exceed it.
    Raises: ReplicaMissing, ReplicaPartial, LayoutUnknown; TargetError: also if the changelog is too long.
    """
    tables = tables_of(conn)
    with conn.transaction(read_only=True):
        keep_filled(conn)
        seen = snapshot(conn)
        if seen.replica.status is ReplicaStatus.INITIALIZING:
            return KeyHistory((), False, {}, is_initializing=True)
        require_held(seen.replica, database, key)
        entry = get_entry(conn, database, key)
        length = "octet_length" if conn.dialect.name == "postgresql" else "length"
        rows = conn.execute(
            f"select rid, csn, logged_at_s, coalesce({length}(payload), 0) from {tables.changelog}"
            " where database = :database and key = :key and kind = :kind and csn < :before"
            " order by csn desc limit :rows",
            {
                "database": database,
                "key": key,
                "kind": RecordKind.CHANGE.value,
                "before": before or _LAST,
                "rows": rows_max + 1,
            },
        )
        newer = Csn(before) if before is not None else None if entry is None else entry.csn
        changes: list[KeyChange] = []
        left = bytes_max
        for rid, csn, logged_at_s, size in rows[:rows_max]:
            if changes and left <= 0:
                break
            left -= size
            [(payload,)] = conn.execute(
                f"select payload from {tables.changelog} where rid = :rid and csn = :csn",
                {"rid": rid, "csn": csn},
            )
            by = newer if newer is not None and newer > csn else None
            if by is not None:
                outcome = Outcome.OVERWRITTEN
            else:
                outcome = Outcome.WON if newer == csn else Outcome.EXTINCT
            changes.append(KeyChange(Csn(csn), payload, int(logged_at_s), outcome, by))
            newer = Csn(csn)
        return KeyHistory(tuple(changes), len(rows) > len(changes), seen.vectors.purged)
