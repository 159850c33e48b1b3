"""Which records of a log extinctions cover.

Only rows of databases that some extinction names are looked at, and of these only those whose keys may lie
between the lowest start and the highest end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark.erase.calls.request import ExtinctionTerms, LogExtinction
from spark.erase.native.types import Table
from spark.erase.reading.databases import Databases
from spark.erase.reading.log import Lns, Mask
from spark.formats.extinction import Extinction, ExtinctionIndex
from spark.formats.je.packed import ItemMalformed, ItemReader

LOG_ID_PREFIX: Final = "ext_" + "0" * 10
"""Of extinctions that JE has noted: they stand behind those of calls, which begin with the time."""
PREFIX_BYTES: Final = 8
ROWS_AT_ONCE: Final = 1 << 18
_PACKED_ONE_BYTE_MAX: Final = 119
Numbers = NDArray[np.int32]


def primary_key(two_part: bytes) -> bytes:
    """The data of a record in a database with duplicates, which is a primary key.

    Raises: ItemMalformed, IndexError: it is no such key.
    """
    return _parts(two_part)[1]


def _parts(two_part: bytes) -> tuple[bytes, bytes]:
    """Key and data of a record in a database with duplicates: key, data, length of key.

    Raises: ItemMalformed, IndexError: it is no such key.
    """
    # The length is packed backwards: its first byte is the last one here.
    width = max(two_part[-1] - _PACKED_ONE_BYTE_MAX, 0) + 1
    length = ItemReader(two_part[: -width - 1 : -1]).packed_int()
    return two_part[:length], two_part[length : len(two_part) - width]


@dataclass(frozen=True, slots=True)
class Extinct:
    """What extinctions say of rows: of LNs first, and then of entries.

    Attributes:
        ids: of the extinctions that are numbered.
        number: of the extinction that covers a row, from 1 on; 0: none does.
        beyond: it reaches also what live slots point at.
        waits: an extinction covers it of which it is not known whether it holds.
    """

    ids: tuple[str, ...]
    number: Numbers
    beyond: Mask
    waits: Mask

    def of_entries(self, rows: Table, count: int) -> "Extinct":
        """The same of entries, of which `rows` are those of the LNs."""
        number = np.zeros(count, dtype=np.int32)
        beyond, waits = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        number[rows], beyond[rows], waits[rows] = self.number, self.beyond, self.waits
        return Extinct(self.ids, number, beyond, waits)

    def part(self, begin: int, end: int) -> "Extinct":
        """The same of some entries that follow each other."""
        rows = slice(begin, end)
        return Extinct(self.ids, self.number[rows], self.beyond[rows], self.waits[rows])


@dataclass(frozen=True, slots=True)
class Asked:
    """Extinctions ready to be asked: those that reach beyond the veto, all that hold, and those in doubt."""

    beyond: ExtinctionIndex
    holding: ExtinctionIndex
    reserved: ExtinctionIndex

    @classmethod
    def of(
        cls,
        beyond: Sequence[Extinction],
        holding: Sequence[Extinction],
        reserved: Sequence[Extinction],
        *,
        only: Callable[[Extinction], bool],
    ) -> "Asked":
        """Make those ready that are wanted."""
        return cls(
            *(ExtinctionIndex([each for each in some if only(each)]) for some in (beyond, holding, reserved))
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """All extinctions, and apart from each other those of calls and those that JE has discarded.

    In a database with duplicates a call speaks of primary keys, as an ExtinctionFilter does; JE's own discard
    is a range of the database's own keys.
    """

    all: Asked
    of_calls: Asked
    of_je: Asked
    ids: tuple[str, ...]
    bounds: Mapping[bytes, tuple[bytes, bytes | None]]

    @classmethod
    def of(cls, terms: ExtinctionTerms, in_log: Sequence[LogExtinction]) -> "Coverage | None":
        """Make them ready; None where nothing can be covered.

        An extinction with a Java filter, which only the log knows, covers nothing.
        """
        if not terms.is_asked:
            return None
        told = [(Extinction.parse(each.payload), each.attested) for each in terms.holding]
        noted = [Extinction.parse(each.payload) for each in in_log if not each.has_filter]
        by_log = {each.id for each in noted}
        # One that the log has is also told of, once it is known: it counts as the log has it.
        told = [(each, attested) for each, attested in told if each.id not in by_log]
        beyond = [*noted, *(each for each, attested in told if attested)]
        holding = [*noted, *(each for each, _ in told)]
        reserved = [Extinction.parse(each) for each in terms.reserved]
        bounds = _bounds([*holding, *reserved])
        if not bounds:
            return None
        made = partial(Asked.of, beyond, holding, reserved)
        return cls(
            made(only=lambda _: True),
            made(only=lambda each: not is_of_je(each)),
            made(only=is_of_je),
            tuple(dict.fromkeys(each.id for each in holding)),
            bounds,
        )

    def judge(self, lns: Lns, asked: Mask, databases: Databases, names: Mapping[int, str]) -> Extinct:
        """Judge those LNs that are asked for."""
        count = len(lns.entry)
        found = Extinct(
            self.ids,
            np.zeros(count, dtype=np.int32),
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=bool),
        )
        numbers = {name: number for number, name in enumerate(self.ids, start=1)}
        for db, name in names.items():
            database = name.encode()
            if database not in self.bounds or db in databases.dropped:
                continue
            has_dups = db in databases.known and databases.known[db].dups
            rows = np.flatnonzero(asked & (lns.db == db))
            if not has_dups:
                rows = _between(lns, rows, *self.bounds[database])
            for row in rows.tolist():
                for asked_of, key in self._questions(lns.key(row), has_dups=has_dups):
                    _judge(asked_of, found, numbers, row, database, key)
        return found

    def _questions(self, key: bytes, *, has_dups: bool) -> Sequence[tuple[Asked, bytes]]:
        """Which extinctions are asked, and for which key; none for a key that cannot be read: it stays."""
        if not has_dups:
            return [(self.all, key)]
        try:
            own, primary = _parts(key)
        except (ItemMalformed, IndexError):
            return []
        return [(self.of_calls, primary), (self.of_je, own)]


def is_of_je(extinction: Extinction) -> bool:
    """Whether JE's own log is where it comes from."""
    return extinction.id.startswith(LOG_ID_PREFIX)


def _judge(
    asked: Asked, found: Extinct, numbers: Mapping[str, int], row: int, database: bytes, key: bytes
) -> None:
    covering = asked.beyond.find(database, key)
    if covering is not None:
        found.number[row], found.beyond[row] = numbers[covering.id], True
        return
    if found.beyond[row]:
        return
    covering = asked.holding.find(database, key)
    if covering is not None:
        found.number[row] = numbers[covering.id]
    elif asked.reserved.find(database, key) is not None:
        found.waits[row] = True


def judged_key(key: bytes, *, has_dups: bool) -> bytes | None:
    """The key that an extinction is about; None for one that cannot be read: it stays."""
    if not has_dups:
        return key
    try:
        return primary_key(key)
    except (ItemMalformed, IndexError):
        return None


def _bounds(extinctions: Iterable[Extinction]) -> dict[bytes, tuple[bytes, bytes | None]]:
    """The lowest start and the highest end in each database; None: open."""
    found: dict[bytes, tuple[bytes, bytes | None]] = {}
    for each in extinctions:
        start, end = each.start_key or b"", each.end_key
        for database in each.databases:
            low, high = found.get(database, (start, end))
            high = None if high is None or end is None else max(high, end)
            found[database] = (min(low, start), high)
    return found


def _between(lns: Lns, rows: Table, low: bytes, high: bytes | None) -> Table:
    """Leave out rows whose keys lie outside, as far as their first bytes tell."""
    kept = []
    low_number, high_number = _prefix(low), None if high is None else _prefix(high)
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[begin : begin + ROWS_AT_ONCE]
        numbers = _prefixes(lns, some)
        inside = numbers >= low_number
        if high_number is not None:
            inside &= numbers <= high_number
        kept.append(some[inside])
    return np.concatenate(kept) if kept else rows


def _prefix(key: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(key[:PREFIX_BYTES].ljust(PREFIX_BYTES, b"\0"), "big"))


def _prefixes(lns: Lns, rows: Table) -> NDArray[np.uint64]:
    """The first bytes of keys as numbers: keys that ascend have numbers that do not descend."""
    begins, ends = lns.key_bounds[rows], lns.key_bounds[rows + 1]
    found = np.zeros(len(rows), dtype=np.uint64)
    for place in range(PREFIX_BYTES):
        at = begins + place
        byte = np.zeros(len(rows), dtype=np.uint64)
        there = at < ends
        byte[there] = lns.keys[at[there]]
        found = (found << np.uint64(8)) | byte
    return found
