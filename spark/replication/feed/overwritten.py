"""Changes that lost against a change of another replica id, and whether the two knew of each other.

A change loses against the next greater CSN of its key. Of the two the loser never knew the winner: its CSN
would be the greater one. Whether the winner's replica had the loser when it wrote is not in any record; what
is known is in which order both came here. Sessions bring changes in the order of all CSNs, out of a snapshot
that holds whatever its supplier had: had the winner's replica had the loser, the loser would have come no
later. So a loser that came later was not known (CONCURRENT). Where the winner is our own and the loser was
here before it, it was known (SEEN). All else is UNCERTAIN: it came before, together, within one second, or
the winner's record is not here any more. Times are whole seconds of the target's clock.

What deceives it: a clock of the target that was set back; records that a session has brought back after a
restore, which came here later than they were written; a record that a dead letter has held back elsewhere
(one that was held back here is UNCERTAIN).
Source: facts/replication-decision-table, section 6.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.dead_letters import Direction
from spark.replication.records import RecordKind, ReplicaStatus
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.replica import snapshot
from spark.targets.connection import Connection


class Verdict(StrEnum):
    """Whether the winner's replica had the loser when it wrote."""

    CONCURRENT = "CONCURRENT"
    UNCERTAIN = "UNCERTAIN"
    SEEN = "SEEN"


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A change that lost; the winner's `logged_at_s` is None where its record is not here."""

    database: bytes
    key: bytes
    loser: Csn
    loser_logged_at_s: int
    winner: Csn
    winner_logged_at_s: int | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class OverwrittenPage:
    """Changes that lost, by the loser's CSN."""

    found: tuple[Overwritten, ...]
    more: bool
    is_initializing: bool = False


def read_overwritten(
    conn: Connection, *, after: str, verdicts: Collection[Verdict], database: bytes | None, rows_max: int
) -> OverwrittenPage:
    """Read a page of them, in a transaction of its own.

    Args:
        after: losers above this CSN only; what is below is not read at all.
        database: only of its keys.
    Raises: ReplicaMissing, LayoutUnknown; TargetError: also where there is too much behind `after`.
    """
    tables = tables_of(conn)
    with conn.transaction(read_only=True):
        keep_filled(conn)
        seen = snapshot(conn)
        if seen.replica.status is ReplicaStatus.INITIALIZING:
            return OverwrittenPage((), False, is_initializing=True)
        rows = conn.execute(
            _statement(tables, seen.vectors.ruv, verdicts, is_narrowed=database is not None),
            {
                "after": after,
                "received": Direction.RECEIVED.value,
                "own": seen.replica.rid,
                "kind": RecordKind.CHANGE.value,
                "rows": rows_max + 1,
                **({} if database is None else {"database": database}),
            },
        )
    found = tuple(
        Overwritten(bytes(where), bytes(key), Csn(csn), int(at_s), Csn(by), by_s, Verdict(verdict))
        for where, key, csn, at_s, by, by_s, verdict in rows[:rows_max]
    )
    return OverwrittenPage(found, len(rows) > rows_max)


def _statement(
    tables: ReplicaTables, rids: Iterable[int], verdicts: Collection[Verdict], *, is_narrowed: bool
) -> str:
    of_rids = ", ".join(str(int(rid)) for rid in sorted(rids)) or "null"
    names = ", ".join(f"'{verdict.value}'" for verdict in sorted(verdicts))
    narrowed = " and database = :database" if is_narrowed else ""
    return (
        "select database, key, csn, logged_at_s, by_csn, by_logged_at_s, verdict from ("
        " select w.database, w.key, w.csn, w.logged_at_s, coalesce(w.next_csn, e.csn) as by_csn,"
        " w.next_logged_at_s as by_logged_at_s, case"
        " when w.next_csn is null then 'UNCERTAIN'"
        " when w.logged_at_s > w.next_logged_at_s and not exists ("
        f" select 1 from {tables.dead_letters} d where d.direction = :received and d.rid = w.rid"
        " and d.csn <= w.csn and (d.resolved_at_s is null or d.resolved_at_s >= w.next_logged_at_s))"
        " then 'CONCURRENT'"
        " when w.next_rid = :own and w.logged_at_s < w.next_logged_at_s then 'SEEN'"
        " else 'UNCERTAIN' end as verdict"
        " from ("
        " select rid, csn, database, key, logged_at_s, lead(csn) over k as next_csn,"
        " lead(rid) over k as next_rid, lead(logged_at_s) over k as next_logged_at_s"
        f" from {tables.changelog} where rid in ({of_rids}) and csn > :after and kind = :kind{narrowed}"
        " window k as (partition by database, key order by csn)) w"
        f" left join {tables.entries} e"
        " on w.next_csn is null and e.database = w.database and e.key = w.key and e.csn > w.csn"
        " where (w.next_csn is not null or e.csn is not null)"
        " and substr(coalesce(w.next_csn, e.csn), 13, 4) <> substr(w.csn, 13, 4)) as lost"
        f" where verdict in ({names}) order by csn limit :rows"
    )
