"""A generator that stands ahead of its service's clock, seen and brought back; nothing issued is given again.

What a repair does, in one transaction under the generator's lock: it takes the greatest CSN that anybody may
know, of any replica id (the floor), and lets the generator go on at the clock, or right above the floor where
that is later. What the floor is ahead stays in the offset that the clock eats: new CSNs stand still in that
second, and count up, until the clock has come there. So every CSN to come is greater than every one that was
given, and than all that a writer here could see; only seconds that nobody has used are given back.
Source: facts/replication-session, section 2; there an offset that a peer has left never ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spark.formats.csn import FIELD_MAX, Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import SKEW_MAX_S, ClockSkewExceeded, GeneratorState
from spark.replication.errors import ReplicaNotOnline
from spark.replication.records import ReplicaRow, ReplicaStatus, Snapshot
from spark.replication.replica.replica import lock_replica, read_vectors, save_generator, snapshot
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a generator stands.

    Attributes:
        timestamp: the second of the next CSN.
        ahead_s: how far that is ahead of the clock; never below 0.
        by_peers_s: what of it nothing but a repair ends.
    """

    timestamp: int
    ahead_s: int
    by_peers_s: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """A repair: the generator before and after it; `floor` is the greatest CSN that was minded."""

    before: Standing
    after: Standing
    floor: Csn | None


def standing(state: GeneratorState, *, now_s: int) -> Standing:
    """Where a generator stands against the clock."""
    local_s = max(0, state.local_offset_s - max(0, now_s - state.sampled_s))
    timestamp = max(state.timestamp, now_s + local_s + state.remote_offset_s)
    return Standing(timestamp, max(0, timestamp - now_s), state.remote_offset_s)


def read_standing(conn: Connection, *, now_s: int) -> tuple[Snapshot, Standing]:
    """The replica, and where its generator stands.

    Raises: ReplicaMissing.
    """
    seen = snapshot(conn)
    return seen, standing(seen.generator, now_s=now_s)


def repair_clock(conn: Connection, *, known: Iterable[Csn], now_s: int) -> Repaired:
    """Bring a generator back to the clock, as far as no CSN can be given twice.

    Args:
        known: CSNs that are remembered elsewhere: in the metadata, by consumers.
    Raises: ReplicaNotOnline: own changes are missing, or a copy is under way. ClockSkewExceeded: a change is
        more than a day ahead of the clock. ReplicaMissing, TargetLockTimeout: nothing has changed.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row, state = lock_replica(conn, tables)
        if row.status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
            raise ReplicaNotOnline(row.status)
        floor = max([*known, *_held(conn, tables, row)], default=None)
        wanted = _resumed(state, floor, now_s=now_s)
        before = standing(state, now_s=now_s)
        if wanted.timestamp >= before.timestamp and wanted.remote_offset_s >= state.remote_offset_s:
            return Repaired(before, before, floor)
        save_generator(conn, tables, wanted)
        return Repaired(before, standing(wanted, now_s=now_s), floor)


def _resumed(state: GeneratorState, floor: Csn | None, *, now_s: int) -> GeneratorState:
    """The generator at the clock, or above the floor."""
    fresh = replace(state, sampled_s=now_s, local_offset_s=0, remote_offset_s=0, sequence=0)
    if floor is None or floor.timestamp < now_s:
        return fresh
    ahead_s = floor.timestamp - now_s
    if ahead_s > SKEW_MAX_S:
        raise ClockSkewExceeded(f"the change {floor} is {ahead_s} s ahead of the clock", skew_s=ahead_s)
    # The last number of a second is never given: the generator goes to the next one by itself.
    return replace(fresh, local_offset_s=ahead_s, sequence=min(floor.sequence + 1, FIELD_MAX))


def _held(conn: Connection, tables: ReplicaTables, row: ReplicaRow) -> list[Csn]:
    """The greatest CSNs that the replica itself shows."""
    vectors = read_vectors(conn)
    found = [*vectors.ruv.values(), *vectors.purged.values()]
    if row.generation is not None and Csn(row.generation).rid == row.rid:
        found.append(Csn(row.generation))
    for table, column in (
        (tables.changelog, "csn"),
        (tables.entries, "csn"),
        (tables.extinctions, "csn"),
        (tables.agreement_ruv, "acked_csn"),
    ):
        [(greatest,)] = conn.execute(f"select max({column}) from {table}")
        if greatest is not None:
            found.append(Csn(greatest))
    return found
