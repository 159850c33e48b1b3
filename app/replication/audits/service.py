"""What an audit compares: the changes of each replica id that both sides hold, and the entries.

Both sides hold a change when it is above what either has purged and not above either's RUV. Pieces of a
bounded number of rows are counted and hashed on both sides; one that differs is narrowed down.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from app.replication.audits.models import (
    ChangeDifferenceRead,
    CsnRange,
    DigestsRead,
    EntriesAuditRead,
    EntryDifferenceRead,
    EntryPlace,
    NotCompared,
    RidAuditRead,
)
from app.replication.audits.narrowing import Budget, Compared, Piece, narrow
from app.replication.audits.sides import Sides, compared, together
from app.replication.peer.answers import PeerReplica
from app.replication.replica.models import base64_text
from spark.formats.csn import FIELD_MAX, Csn
from spark.replication.records import Vectors
from spark.replication.replica.digest import (
    FIRST_KEY,
    EntryKey,
    change_marks,
    entry_marks,
    list_changes,
    piece_rows,
)
from spark.replication.replica.digest_piece import Wanted

CompareChanges = Callable[[Csn | None, Csn | None], Compared]
PIECE_ROWS: Final = 50_000
PIECE_BYTES: Final = 64 * 1024 * 1024
"""What either side reads in one request, well within its time."""
ENTRIES_TRIES_MAX: Final = 3


class RangeMoved(Exception):
    """One side has trimmed, or written entries, while it was read."""


def common_range(
    rid: int, ours: Vectors, theirs: PeerReplica, asked: CsnRange | None
) -> CsnRange | NotCompared:
    """What both sides hold of a replica id, as far as was asked for."""
    own, other = ours.ruv.get(rid), (theirs.ruv or {}).get(rid)
    if own is None or other is None:
        return NotCompared.ONLY_CONSUMER if own is None else NotCompared.ONLY_SUPPLIER
    bounds = [ours.purged.get(rid), theirs.purged.get(rid), asked[0] if asked else None]
    after = max((bound for bound in bounds if bound is not None), default=None)
    upto = min(own, other) if asked is None else min(own, other, asked[1])
    return NotCompared.NOTHING_IN_COMMON if after is not None and after >= upto else (after, upto)


def audit_changes(
    sides: Sides, ranges: Mapping[int, CsnRange], budget: Budget
) -> dict[int, tuple[RidAuditRead, list[ChangeDifferenceRead]]]:
    """Compare the changes of replica ids over ranges that both sides hold; first all, then what differs."""
    pieces = _compared(sides, ranges)
    found = {}
    for rid, (after, upto) in ranges.items():
        try:
            found[rid] = _judged(sides, rid, pieces[rid], budget)
        except RangeMoved:
            moved = NotCompared.TRIMMED_MEANWHILE
            found[rid] = RidAuditRead(rid=rid, after=after, upto=upto, not_compared=moved), []
    return found


def _compared(sides: Sides, ranges: Mapping[int, CsnRange]) -> dict[int, list[Piece[Csn | None]] | None]:
    """The pieces of each range in their order; None: one side has trimmed it meanwhile."""
    found: dict[int, list[Piece[Csn | None]] | None] = {rid: [] for rid in ranges}

    def questions() -> Iterator[Wanted]:
        rows = _piece_rows(sides, entries=False)
        for rid, (after, upto) in ranges.items():
            for low, high in change_marks(sides.conn, rid, after=after, upto=upto, rows=rows):
                if found[rid] is None:
                    break
                yield Wanted({rid: (None if low is None else Csn(low), Csn(high))})

    for wanted, ours, theirs in sides.each(questions()):
        [(rid, (low, high))] = wanted.ranges.items()
        pieces, seen = found[rid], _seen(rid, ours, theirs)
        if pieces is None or seen is None:
            found[rid] = None
        else:
            pieces.append(Piece(low, high, seen))
    return found


def _seen(rid: int, ours: DigestsRead, theirs: DigestsRead) -> Compared | None:
    own, other = ours.rids[str(rid)], theirs.rids[str(rid)]
    return compared(own, other) if own.whole and other.whole else None


def _judged(
    sides: Sides, rid: int, pieces: list[Piece[Csn | None]] | None, budget: Budget
) -> tuple[RidAuditRead, list[ChangeDifferenceRead]]:
    def compare(low: Csn | None, high: Csn | None) -> Compared:
        assert high is not None, "every range of changes has an end"
        seen = _seen(rid, *sides.both(Wanted({rid: (low, high)})))
        if seen is None:
            raise RangeMoved
        return seen

    def middle(low: Csn | None, high: Csn | None, rows: int) -> Csn | None:
        assert high is not None, "every range of changes has an end"
        return Csn(next(change_marks(sides.conn, rid, after=low, upto=high, rows=rows))[1])

    if pieces is None:
        raise RangeMoved
    differing: list[ChangeDifferenceRead] = []
    for piece in pieces:
        if not piece.found.agrees:
            for leaf in narrow(piece, compare=compare, middle=middle, budget=budget):
                differing += _named(sides, rid, leaf, compare)
    row = RidAuditRead(
        rid=rid,
        after=pieces[0].low,
        upto=pieces[-1].high,
        supplier=together(piece.found.supplier for piece in pieces),
        consumer=together(piece.found.consumer for piece in pieces),
        agrees=all(piece.found.agrees for piece in pieces),
    )
    return row, differing


def _named(
    sides: Sides, rid: int, leaf: Piece[Csn | None], compare: CompareChanges
) -> list[ChangeDifferenceRead]:
    """A leaf with one change of this side at most: that change alone, and what lies before and behind it."""
    low, high = leaf.low, leaf.high
    assert high is not None, "every range of changes has an end"
    own = list_changes(sides.conn, rid, after=low, upto=high, rows_max=1)
    if not own:
        return [_difference(rid, None, low, high, leaf.found)]
    csn = own[0]
    below = just_below(csn)
    found = []
    for begin, end, name in ((low, below, None), (below, csn, csn), (csn, high, None)):
        if end is not None and (begin is None or begin < end):
            seen = compare(begin, end)
            if not seen.agrees:
                found.append(_difference(rid, name, begin, end, seen))
    return found


def _difference(
    rid: int, csn: Csn | None, after: Csn | None, upto: Csn, found: Compared
) -> ChangeDifferenceRead:
    return ChangeDifferenceRead(
        rid=rid,
        kind=found.kind,
        csn=csn,
        after=after,
        upto=upto,
        supplier=found.supplier.count,
        consumer=found.consumer.count,
    )


def just_below(csn: Csn) -> Csn | None:
    """The greatest CSN of the same replica below one; None: there is none."""
    if csn.subsequence:
        return Csn.of(csn.timestamp, csn.sequence, csn.rid, csn.subsequence - 1)
    if csn.sequence:
        return Csn.of(csn.timestamp, csn.sequence - 1, csn.rid, FIELD_MAX)
    return Csn.of(csn.timestamp - 1, FIELD_MAX, csn.rid, FIELD_MAX) if csn.timestamp else None


def _piece_rows(sides: Sides, *, entries: bool) -> int:
    return piece_rows(sides.conn, entries=entries, rows_max=PIECE_ROWS, byte_count=PIECE_BYTES)


# -- entries


def audit_entries(sides: Sides, budget: Budget) -> EntriesAuditRead:
    """Compare all entries, where both RUVs are equal and stay so while they are read.

    Tombstones that one side may have purged are left out on both; a version that cannot is not compared.
    """
    for _ in range(ENTRIES_TRIES_MAX):
        ours, theirs = sides.both(Wanted({}))
        if ours.ruv != theirs.ruv:
            return EntriesAuditRead(not_compared=NotCompared.RUVS_DIFFER)
        buried = max(filter(None, (ours.buried, theirs.buried)), default=None)
        if buried is not None and "buried" not in theirs.model_fields_set:
            return EntriesAuditRead(not_compared=NotCompared.TOMBSTONES_PURGED)
        try:
            return _audited_entries(sides, ours.ruv, buried, budget)
        except RangeMoved:
            continue
    return EntriesAuditRead(not_compared=NotCompared.CHANGED_MEANWHILE)


def _audited_entries(
    sides: Sides, ruv: Mapping[str, str], buried: str | None, budget: Budget
) -> EntriesAuditRead:
    marks = partial(entry_marks, sides.conn, part=sides.part, buried=buried)

    def seen(ours: DigestsRead, theirs: DigestsRead) -> Compared | None:
        assert ours.entries is not None and theirs.entries is not None, "they were asked for"  # noqa: PT018
        is_quiet = ours.entries.quiet and theirs.entries.quiet
        return compared(ours.entries, theirs.entries) if is_quiet and ours.ruv == theirs.ruv == ruv else None

    def compare(low: EntryKey | None, high: EntryKey | None) -> Compared:
        found = seen(*sides.both(Wanted({}, (low or FIRST_KEY, high), buried)))
        if found is None:
            raise RangeMoved
        return found

    def middle(low: EntryKey | None, high: EntryKey | None, rows: int) -> EntryKey | None:
        return next(marks(after=low or FIRST_KEY, upto=high, rows=rows))[1]

    has_moved = False

    def questions() -> Iterator[Wanted]:
        for each in marks(rows=_piece_rows(sides, entries=True)):
            if has_moved:
                return
            yield Wanted({}, each, buried)

    pieces: list[Piece[EntryKey | None]] = []
    for wanted, ours, theirs in sides.each(questions()):
        found = seen(ours, theirs)
        has_moved = has_moved or found is None
        if found is not None:
            assert wanted.entries is not None, "they were asked for"
            pieces.append(Piece(*wanted.entries, found))
    if has_moved:
        raise RangeMoved
    differing = [
        _entry_difference(leaf)
        for piece in pieces
        if not piece.found.agrees
        for leaf in narrow(piece, compare=compare, middle=middle, budget=budget)
    ]
    return EntriesAuditRead(
        supplier=together(piece.found.supplier for piece in pieces),
        consumer=together(piece.found.consumer for piece in pieces),
        agrees=all(piece.found.agrees for piece in pieces),
        differing=differing,
    )


def _entry_difference(leaf: Piece[EntryKey | None]) -> EntryDifferenceRead:
    return EntryDifferenceRead(
        kind=leaf.found.kind,
        after=None if leaf.low in (None, FIRST_KEY) else _place(leaf.low),
        upto=_place(leaf.high),
        supplier=leaf.found.supplier.count,
        consumer=leaf.found.consumer.count,
    )


def _place(key: EntryKey | None) -> EntryPlace | None:
    return None if key is None else EntryPlace(database=base64_text(key[0]), key=base64_text(key[1]))
