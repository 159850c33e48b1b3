"""What becomes of each record of a batch that has arrived; pure.

A record is, looked at in this order within its replica:
- covered: its CSN is not above the RUV, so it is here already;
- refused: this replica cannot keep it; it and all later ones of its replica (halted) are not applied;
- applied: it follows the one before it, which its `prev` proves;
- else there is a hole, and the whole batch is refused.
Source: facts/replication-decision-table, sections 3 and 7; design.md ("halts its RID; never a silent skip").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spark.formats.arrow import np, pa, pc
from spark.formats.changes.checks import csn_column, record_faults, rids_of
from spark.formats.csn import CSN_CHARS, FIELD_MAX, TIMESTAMP_MAX, Csn
from spark.formats.extinction import Extinction, ExtinctionInvalid
from spark.replication.consumer.bounds import Buried
from spark.replication.dead_letters import Refused
from spark.replication.records import RecordKind
from spark.replication.session_errors import PrevGap
from spark.replication.sessions.clock_bound import AHEAD_MAX_S, require_in_time

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND_UNKNOWN: Final = "KIND_UNKNOWN"
RECORD_TOO_LONG: Final = "RECORD_TOO_LONG"
CSN_FROM_THE_FUTURE: Final = "CSN_FROM_THE_FUTURE"
EXTINCTION_UNREADABLE: Final = "EXTINCTION_UNREADABLE"
TOMBSTONE_PURGED: Final = "TOMBSTONE_PURGED"
_NO_CSN: Final = b""
"""Compares below every CSN, as NULL does there."""
_LETTER: Final = ("kind", "database", "key", "payload")

Rows: TypeAlias = "NDArray[np.integer]"
Flags: TypeAlias = "NDArray[np.bool_]"


@dataclass(frozen=True, slots=True)
class Advance:
    """How far the RUV of a replica moves: from above what it was, over `first`, to `last`."""

    first: Csn
    last: Csn


@dataclass(frozen=True, slots=True)
class Sorted:
    """A batch, sorted out.

    Attributes:
        applied: `record_schema`, in the order of the batch.
        halted: how many stand behind a refused one of their replica.
        advances: by RID.
    """

    applied: pa.RecordBatch
    covered: int
    refused: tuple[Refused, ...]
    halted: int
    advances: Mapping[int, Advance]

    @property
    def greatest(self) -> Csn | None:
        """The greatest CSN that is applied; None: nothing is."""
        return max((each.last for each in self.advances.values()), default=None)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A batch by replica: rows of one replica side by side, in their order.

    Attributes:
        order: row numbers of the batch.
        starts: where in `order` each replica begins; `rids` in the same order.
        group: the place in `rids` of each of `order`.
        csns, prevs: of each of `order`; no `prev` is empty.
    """

    batch: pa.RecordBatch
    order: Rows
    rids: tuple[int, ...]
    starts: Rows
    group: Rows
    csns: NDArray[np.bytes_]
    prevs: NDArray[np.bytes_]

    def floors(self, ruv: Mapping[int, Csn]) -> NDArray[np.bytes_]:
        """For each of `order` the CSN up to which its replica is here."""
        return np.array([ruv.get(rid, "").encode() for rid in self.rids], dtype=f"S{CSN_CHARS}")[self.group]

    def new_of(self, ruv: Mapping[int, Csn], rids: Collection[int]) -> pa.RecordBatch:
        """The records of some replica ids that are not here, in the order of the batch."""
        is_wanted = np.array([rid in rids for rid in self.rids], dtype=np.bool_)[self.group]
        mask = np.zeros(len(self.order), dtype=np.bool_)
        mask[self.order] = is_wanted & (self.csns > self.floors(ruv))
        return self.batch.filter(pa.array(mask))

    def count_covered(self, ruv: Mapping[int, Csn]) -> int:
        """How many are here already."""
        return int((self.csns <= self.floors(ruv)).sum())


def arrange(batch: pa.RecordBatch) -> Arrival:
    """Bring the records of each replica together.

    Args:
        batch: of `record_schema`, whose values were checked when it was decoded: well-formed CSNs, ascending
            within each replica, `prev` of the same replica and below its csn.
    """
    rids = rids_of(batch.column("csn"))
    order = np.argsort(rids, kind="stable")
    found, starts, group = np.unique(rids[order], return_index=True, return_inverse=True)
    return Arrival(
        batch=batch,
        order=order,
        rids=tuple(found.tolist()),
        starts=starts,
        group=group,
        csns=csn_column(batch.column("csn"))[order],
        prevs=_with_gaps(batch.column("prev"))[order],
    )


def sort_out(
    arrival: Arrival,
    ruv: Mapping[int, Csn],
    *,
    now_s: int,
    open_letters: Mapping[int, Csn],
    ahead_max_s: int = AHEAD_MAX_S,
    buried: Buried | None = None,
) -> Sorted:
    """Decide for every record.

    Args:
        ruv: of this replica.
        now_s: this service's clock, which no CSN may be more than `ahead_max_s` ahead of.
        open_letters: the first record of a replica id that was refused and has not come since; behind it the
            supplier may have sent more before it knew.
        buried: the greatest CSN of purged tombstones: of an older change nobody knows what became of its key,
            unless an entry is here that is newer, or its key is extinct.
    Raises: PrevGap.
    """
    floors = arrival.floors(ruv)
    is_covered = arrival.csns <= floors
    is_next = np.zeros(len(arrival.csns), dtype=np.bool_)
    # The rows of a replica ascend: what is covered of it stands in front.
    counts = np.bincount(arrival.group, weights=is_covered, minlength=len(arrival.rids))
    first_new = arrival.starts + counts.astype(np.int64)
    is_next[first_new[first_new < np.append(arrival.starts[1:], len(is_next))]] = True
    before = np.where(is_next, floors, np.roll(arrival.csns, 1))
    is_gap = ~is_covered & (arrival.prevs != before)
    found = _faults(arrival, ~is_covered, now_s=now_s, ahead_max_s=ahead_max_s)
    faults = _buried(arrival, ~is_covered, buried) | found
    held = _held(arrival, is_gap & is_next, ruv, open_letters)
    stop = _first_of_each(arrival, {*faults, *held})
    behind = np.arange(len(is_gap)) >= stop[arrival.group]
    is_explained = np.arange(len(is_gap)) > stop[arrival.group]
    is_explained[held] = True
    _refuse_gap(arrival, is_gap & ~is_explained, before)
    is_applied = ~is_covered & ~behind
    refused = tuple(
        _refused(arrival, place, faults[place])
        for place in sorted(faults)
        if place == stop[arrival.group[place]]
    )
    return Sorted(
        applied=_chosen(arrival, is_applied),
        covered=int(is_covered.sum()),
        refused=refused,
        halted=int((~is_covered & behind).sum()) - len(refused),
        advances=_advances(arrival, is_applied),
    )


def csn_limit(now_s: int, *, ahead_max_s: int) -> bytes:
    """The greatest CSN that is not further ahead of the clock than that."""
    return Csn.of(min(now_s + ahead_max_s, TIMESTAMP_MAX), FIELD_MAX, FIELD_MAX, FIELD_MAX).encode()


def refuse_future(batch: pa.RecordBatch, *, now_s: int, ahead_max_s: int) -> None:
    """Raise where a batch of a copy has one that is too far ahead of the clock: it is refused whole.

    Raises: ClockSkewed.
    """
    csns = csn_column(batch.column("csn"))
    beyond = csns[csns > csn_limit(now_s, ahead_max_s=ahead_max_s)]
    require_in_time(map(_csn, beyond[:1].tolist()), now_s=now_s, ahead_max_s=ahead_max_s)


def _with_gaps(column: pa.Array) -> NDArray[np.bytes_]:
    found = np.full(len(column), _NO_CSN, dtype=f"S{CSN_CHARS}")
    if column.null_count < len(column):
        found[np.asarray(column.is_valid())] = csn_column(column.drop_null())
    return found


@cache
def _kinds() -> pa.Array:
    """Made at its first use: pyarrow looks at a list with all of pandas."""
    return pa.array([kind.value for kind in RecordKind])


def _faults(arrival: Arrival, is_new: Flags, *, now_s: int, ahead_max_s: int) -> dict[int, tuple[str, str]]:
    """By place: code and detail of the records that cannot be kept."""
    batch = arrival.batch
    place_of = np.empty(len(arrival.order), dtype=np.int64)
    place_of[arrival.order] = np.arange(len(arrival.order))
    found: dict[int, tuple[str, str]] = {}
    for fault in record_faults(batch):
        found.setdefault(int(place_of[fault.row]), (RECORD_TOO_LONG, fault.detail))
    is_known = np.asarray(pc.is_in(batch.column("kind"), value_set=_kinds()))
    for row in np.flatnonzero(~is_known).tolist():
        kind = batch.column("kind")[row].as_py()
        found[int(place_of[row])] = (KIND_UNKNOWN, f"{kind} is no kind of record that this version applies")
    for row, detail in unreadable_extinctions(batch):
        found[int(place_of[row])] = (EXTINCTION_UNREADABLE, detail)
    for place in np.flatnonzero(arrival.csns > csn_limit(now_s, ahead_max_s=ahead_max_s)).tolist():
        ahead_s = _csn(arrival.csns[place]).timestamp - now_s
        found[place] = (CSN_FROM_THE_FUTURE, f"its time is {ahead_s} s ahead of this replica's clock")
    return {place: fault for place, fault in found.items() if is_new[place]}


def _buried(arrival: Arrival, is_new: Flags, buried: Buried | None) -> dict[int, tuple[str, str]]:
    """By place: the new changes that may bring back a key whose tombstone was purged."""
    if buried is None:
        return {}
    kinds = arrival.batch.column("kind").take(pa.array(arrival.order))
    is_change = np.asarray(pc.equal(kinds, RecordKind.CHANGE.value))
    has_value = np.asarray(arrival.batch.column("payload").is_valid())[arrival.order]
    detail = f"it is older than {buried.csn}, up to where tombstones were purged here: its key may be deleted"
    is_older = is_new & is_change & has_value & (arrival.csns <= buried.csn.encode())
    places = np.flatnonzero(is_older)
    if not len(places):
        return {}
    is_harmless = buried.is_harmless(arrival.batch.take(pa.array(arrival.order[places])))
    lost = [place for place, harmless in zip(places.tolist(), is_harmless, strict=True) if not harmless]
    return dict.fromkeys(lost, (TOMBSTONE_PURGED, detail))


def unreadable_extinctions(batch: pa.RecordBatch) -> list[tuple[int, str]]:
    """The extinctions of a batch that this version cannot keep: row, and why."""
    is_one = pc.equal(batch.column("kind"), RecordKind.EXTINCTION.value)
    found = []
    for row in np.flatnonzero(np.asarray(is_one)).tolist():
        try:
            Extinction.parse(batch.column("payload")[row].as_py() or b"")
        except ExtinctionInvalid as error:
            found.append((row, error.detail))
    return found


def _held(
    arrival: Arrival, is_gap: Flags, ruv: Mapping[int, Csn], open_letters: Mapping[int, Csn]
) -> list[int]:
    """Gaps that a refused record has made: the supplier sent on before it knew."""
    held = []
    for place in np.flatnonzero(is_gap).tolist():
        rid = arrival.rids[arrival.group[place]]
        letter = open_letters.get(rid)
        if letter is not None and ruv.get(rid, "") < letter <= arrival.prevs[place].decode():
            held.append(place)
    return held


def _first_of_each(arrival: Arrival, places: set[int]) -> Rows:
    """For each replica the first of the places in it; beyond the end where there is none."""
    stop = np.full(len(arrival.rids), len(arrival.csns), dtype=np.int64)
    for place in places:
        group = arrival.group[place]
        stop[group] = min(stop[group], place)
    return stop


def _refuse_gap(arrival: Arrival, is_gap: Flags, before: NDArray[np.bytes_]) -> None:
    places = np.flatnonzero(is_gap)
    if not len(places):
        return
    place = int(places[0])
    rid, csn = arrival.rids[arrival.group[place]], arrival.csns[place].decode()
    prev, last = arrival.prevs[place].decode() or None, before[place].decode() or None
    raise PrevGap(
        f"{csn} follows {prev or 'no other'} of replica {rid}, and the last one here is {last or 'none'}",
        {"rid": rid, "csn": csn, "prev": prev, "ruv": last},
    )


def _refused(arrival: Arrival, place: int, fault: tuple[str, str]) -> Refused:
    row = {name: arrival.batch.column(name)[int(arrival.order[place])].as_py() for name in _LETTER}
    return Refused(_csn(arrival.csns[place]), **row, code=fault[0], detail=fault[1])


def _chosen(arrival: Arrival, is_applied: Flags) -> pa.RecordBatch:
    if bool(is_applied.all()):
        return arrival.batch
    mask = np.zeros(len(is_applied), dtype=np.bool_)
    mask[arrival.order] = is_applied
    return arrival.batch.filter(pa.array(mask))


def _advances(arrival: Arrival, is_applied: Flags) -> dict[int, Advance]:
    places = np.flatnonzero(is_applied)
    groups, firsts = np.unique(arrival.group[places], return_index=True)
    lasts = np.append(firsts, len(places))[1:] - 1
    return {
        arrival.rids[group]: Advance(_csn(arrival.csns[places[first]]), _csn(arrival.csns[places[last]]))
        for group, first, last in zip(groups.tolist(), firsts.tolist(), lasts.tolist(), strict=True)
    }


def _csn(text: Any) -> Csn:
    return Csn(bytes(text).decode())
