"""Which version of a record is the newest that is safe to rely on: one window over (database, key)."""

from dataclasses import dataclass

import numpy as np

from spark.erase.native.comparing import same_keys
from spark.erase.native.types import Table
from spark.erase.reading.log import Entries, Lns, Mask
from spark.erase.reading.transactions import Outcomes


@dataclass(frozen=True, slots=True)
class Superseded:
    """Of each LN: whether a newer committed version exists, and whether only a hash said so.

    Attributes:
        rows: LNs with a newer version whose key is the same, byte by byte.
        collided: LNs with a newer version of the same hash and another key; they stay.
        later: LNs that only a version superseded on which nobody may rely yet: it may vanish in a crash.
    """

    rows: Mask
    collided: Mask
    later: Mask


def find_superseded(
    entries: Entries, lns: Lns, outcomes: Outcomes, *, user: Mask, first_active: int
) -> Superseded:
    """Find the committed LNs that are older than the newest committed version of their record.

    Args:
        entries: all of the log.
        lns: all of the log.
        outcomes: of the LNs.
        user: the LNs of user types.
        first_active: only versions whose LN and commit both lie before it can supersede.
    """
    candidates, reliable = find_candidates(entries, lns, outcomes, user=user, first_active=first_active)
    same, other = compare_versions(lns, candidates, reliable)
    result = Superseded(*(np.zeros(len(lns.entry), dtype=bool) for _ in range(3)))
    result.rows[same] = True
    result.collided[other] = True
    result.later[compare_later(lns, candidates, reliable)] = True
    return Superseded(result.rows, result.collided, result.later & ~result.rows)


def find_candidates(
    entries: Entries, lns: Lns, outcomes: Outcomes, *, user: Mask, first_active: int
) -> tuple[Table, Mask]:
    """Find the LNs that may supersede each other, and whether each is one to rely on."""
    candidates = np.flatnonzero(user & outcomes.committed)
    before = (entries.lsn[lns.entry] < first_active) & (outcomes.commit_lsn < first_active)
    return candidates, before[candidates]


def compare_versions(lns: Lns, candidates: Table, reliable: Mask) -> tuple[Table, Table]:
    """Find the candidates with a newer version: those whose key is the same, and those of which only the hash
    is.
    """
    newer = newest_in_group(lns, candidates, reliable)
    older = newer > candidates
    rows, others = candidates[older], newer[older]
    same = np.empty(len(rows), dtype=np.uint8)
    same_keys(lns.keys, lns.key_bounds, rows, others, same)
    return rows[same == 1], rows[same == 0]


def compare_later(lns: Lns, candidates: Table, reliable: Mask) -> Table:
    """Find the candidates with a newer version of the same key, where all versions count.

    Only records with a version that is not to be relied on are looked at: of all others it is known already.
    """
    if reliable.all():
        return candidates[:0]
    hashes = np.unique(lns.hash_1[candidates[~reliable]])
    asked = lns.hash_1[candidates]
    near = candidates[hashes[np.minimum(np.searchsorted(hashes, asked), len(hashes) - 1)] == asked]
    return compare_versions(lns, near, np.ones(len(near), dtype=bool))[0]


def newest_in_group(lns: Lns, candidates: Table, reliable: Mask) -> Table:
    """Find, for each candidate, the last reliable candidate of the same database and hash; -1 where there is
    none.

    Candidates stand in log order, and a stable sort keeps them so within a group. Two keys that share the
    first half of the hash can tear a group apart; then an older version is found or none, and less is erased.
    """
    order = np.argsort(lns.hash_1[candidates], kind="stable")
    rows = candidates[order]
    first, second, db = lns.hash_1[rows], lns.hash_2[rows], lns.db[rows]
    ends = np.ones(len(rows), dtype=bool)
    ends[:-1] = (first[1:] != first[:-1]) | (second[1:] != second[:-1]) | (db[1:] != db[:-1])
    group = np.cumsum(ends) - ends
    last = np.full(int(ends.sum()), -1, dtype=np.int64)
    good = np.flatnonzero(reliable[order])
    # Positions ascend, so the last assignment to a group is its newest version.
    last[group[good]] = rows[good]
    newest = np.empty(len(rows), dtype=np.int64)
    newest[order] = last[group]
    return newest
