"""Extinctions: what one says, how it travels, and the verdict about a key.

An extinction says once that the keys of a range (start inclusive, end exclusive, None: open) in a set of
databases, those of them that pass its filter, will never be used again. It is one record:

    {"v": 1, "id", "databases": [b64], "start_key": b64|null, "end_key": b64|null,
     "filter": {..}|null, "label"}

Rules:
1. A key that a known extinction covers is never NOT_EXTINCT.
2. A payload that this version cannot read whole is refused; nothing is guessed of it.
Source: je-extinction-filter.
"""

import bisect
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from spark.formats.extinction_filter import Filter, FilterInvalid, Matcher, decode_base64, encode_base64
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES

VERSION: Final = 1
KIND: Final = "EXTINCTION"
"""The kind of its record in a changelog."""
ID_MAX_CHARS: Final = 40
LABEL_MAX_CHARS: Final = 200
DATABASES_MAX: Final = 1_000
PAYLOAD_MAX_BYTES: Final = 1 << 20
_FIELDS: Final = ("v", "id", "databases", "start_key", "end_key", "filter", "label")


class ExtinctionStatus(StrEnum):
    """What is known of a key."""

    EXTINCT = "EXTINCT"
    NOT_EXTINCT = "NOT_EXTINCT"
    MAYBE_EXTINCT = "MAYBE_EXTINCT"


class ExtinctionInvalid(ValueError):
    """No extinction: what is wrong, and where (a JSON pointer into the record)."""

    def __init__(self, detail: str, *, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class ExtinctionNewer(ExtinctionInvalid):
    """A later version has written it: what it covers is not known here."""


@dataclass(frozen=True, slots=True)
class Extinction:
    """One call of discardExtinctRecords.

    Attributes:
        start_key: inclusive; None: from the first key on. end_key: exclusive; None: to the last key.
            Equal ones are allowed and cover nothing.
        filter: None: every key of the range.

    Raises: ExtinctionInvalid: the start lies after the end; no database, or one beyond the bounds.
    """

    id: str
    databases: frozenset[bytes]
    start_key: bytes | None = None
    end_key: bytes | None = None
    filter: Filter | None = None
    label: str = ""

    def __post_init__(self) -> None:
        if not 1 <= len(self.id) <= ID_MAX_CHARS:
            raise ExtinctionInvalid(f"an id has 1 to {ID_MAX_CHARS} characters", pointer="/id")
        if not 1 <= len(self.databases) <= DATABASES_MAX:
            raise ExtinctionInvalid(f"1 to {DATABASES_MAX} databases", pointer="/databases")
        if any(not 1 <= len(database) <= DATABASE_MAX_BYTES for database in self.databases):
            raise ExtinctionInvalid(f"a database has 1 to {DATABASE_MAX_BYTES} bytes", pointer="/databases")
        for name, key in (("start_key", self.start_key), ("end_key", self.end_key)):
            if key is not None and len(key) > KEY_MAX_BYTES:
                raise ExtinctionInvalid(f"a key has at most {KEY_MAX_BYTES} bytes", pointer=f"/{name}")
        if self.start_key is not None and self.end_key is not None and self.start_key > self.end_key:
            raise ExtinctionInvalid("start_key lies after end_key", pointer="/start_key")
        if len(self.label) > LABEL_MAX_CHARS:
            raise ExtinctionInvalid(f"a label has at most {LABEL_MAX_CHARS} characters", pointer="/label")

    @classmethod
    def parse(cls, payload: bytes) -> "Extinction":
        """Read a record's payload.

        Raises: ExtinctionNewer: of a later version. ExtinctionInvalid: no extinction.
        """
        if len(payload) > PAYLOAD_MAX_BYTES:
            raise ExtinctionInvalid(f"more than {PAYLOAD_MAX_BYTES} bytes")
        try:
            found = json.loads(payload.decode(), object_pairs_hook=_without_twins)
        except (ValueError, RecursionError) as error:
            raise ExtinctionInvalid(f"no JSON: {str(error)[:200]}") from error
        return _extinction(found)

    def to_json(self) -> bytes:
        """The record's payload: the same bytes for the same extinction, wherever it is written."""
        fields = {"v": VERSION, **self.fields()}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    def fields(self) -> dict[str, Any]:
        """The fields of the payload, without its version, databases and keys in base64."""
        return {
            "id": self.id,
            "databases": [encode_base64(database) for database in sorted(self.databases)],
            "start_key": None if self.start_key is None else encode_base64(self.start_key),
            "end_key": None if self.end_key is None else encode_base64(self.end_key),
            "filter": None if self.filter is None else self.filter.to_json(),
            "label": self.label,
        }

    def covers(self, database: bytes, key: bytes) -> bool:
        """Whether it says that this key is extinct; of a database with duplicates, the primary key."""
        return (
            database in self.databases
            and (self.start_key is None or key >= self.start_key)
            and (self.end_key is None or key < self.end_key)
            and (self.filter is None or self.filter.matches(key))
        )


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands twice in an object")
    return found


def _extinction(found: object) -> Extinction:
    if not isinstance(found, dict):
        raise ExtinctionInvalid("no JSON object")
    version = found.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ExtinctionInvalid("no version", pointer="/v")
    if version > VERSION:
        raise ExtinctionNewer(f"of version {version}; this program knows {VERSION}", pointer="/v")
    if set(found) != set(_FIELDS):
        odd = ", ".join(sorted(repr(str(name)[:60]) for name in set(found) ^ set(_FIELDS)))
        raise ExtinctionInvalid(f"fields that are missing or unknown: {odd[:200]}")
    databases, label, name = found["databases"], found["label"], found["id"]
    if not isinstance(databases, list) or not isinstance(label, str) or not isinstance(name, str):
        raise ExtinctionInvalid("databases is a list, id and label are texts")
    if len(databases) > DATABASES_MAX:
        raise ExtinctionInvalid(f"1 to {DATABASES_MAX} databases", pointer="/databases")
    try:
        if any("\ud800" <= char <= "\udfff" for char in name + label):
            raise ExtinctionInvalid("half a character in id or label")
        if "\0" in name + label:  # PostgreSQL's text holds every character but this one
            raise ExtinctionInvalid("a NUL in id or label")
        return Extinction(
            name,
            frozenset(decode_base64(each, f"/databases/{n}") for n, each in enumerate(databases)),
            start_key=_key(found["start_key"], "/start_key"),
            end_key=_key(found["end_key"], "/end_key"),
            filter=None if found["filter"] is None else Filter.parse(found["filter"]),
            label=label,
        )
    except FilterInvalid as error:
        pointer = error.pointer
        inside = pointer.startswith(("/databases", "/start_key", "/end_key"))
        raise ExtinctionInvalid(error.detail, pointer=pointer if inside else f"/filter{pointer}") from error


def _key(found: object, pointer: str) -> bytes | None:
    return None if found is None else decode_base64(found, pointer, bytes_max=KEY_MAX_BYTES)


@dataclass(frozen=True, slots=True)
class _Segment:
    """Neighbouring keys that the same extinctions reach.

    Attributes:
        extinct: an extinction without a filter; then nothing else matters.
        filters: of those with one, equal filters once, the first that has it.
        maybe: one without a filter may reach these keys. maybe_filters: or those that pass one of these.
    """

    extinct: Extinction | None
    filters: tuple[tuple[Matcher, Extinction], ...]
    maybe: bool
    maybe_filters: tuple[Matcher, ...]


_NOTHING: Final = _Segment(None, (), False, ())


class ExtinctionIndex:
    """The verdict about keys, by interval search in each database.

    A database's keys are cut at every start and end; a key's piece is found by bisection, and only the
    filters of that piece are tried. Many overlapping extinctions with different filters cost each piece
    each of them; those without a filter cost nothing.
    """

    def __init__(
        self,
        extinctions: Iterable[Extinction],
        *,
        maybe: Iterable[Extinction] = (),
        everything_maybe: bool = False,
    ) -> None:
        """Build the index.

        Args:
            extinctions: those that hold.
            maybe: those of which it is not known yet whether they hold.
            everything_maybe: no key can be judged now.
        """
        self.everything_maybe = everything_maybe
        self._databases = _segments(tuple(extinctions), tuple(maybe))

    def status(self, database: bytes, key: bytes) -> ExtinctionStatus:
        """Judge one key; of a database with duplicates, the primary key."""
        return self.status_many(database, (key,))[0]

    def status_many(self, database: bytes, keys: Sequence[bytes]) -> list[ExtinctionStatus]:
        """Judge keys of one database, in their order."""
        extinct, maybe = ExtinctionStatus.EXTINCT, ExtinctionStatus.MAYBE_EXTINCT
        if self.everything_maybe:
            return [maybe] * len(keys)
        not_extinct = ExtinctionStatus.NOT_EXTINCT
        if database not in self._databases:
            return [not_extinct] * len(keys)
        bounds, segments = self._databases[database]
        find = bisect.bisect_right
        found = []
        for key in keys:
            segment = segments[find(bounds, key)]
            if segment.extinct is not None:
                found.append(extinct)
            elif segment is _NOTHING:
                found.append(not_extinct)
            elif _passes(segment.filters, key) is not None:
                found.append(extinct)
            elif segment.maybe or any(matches(key) for matches in segment.maybe_filters):
                found.append(maybe)
            else:
                found.append(not_extinct)
        return found

    def find(self, database: bytes, key: bytes) -> Extinction | None:
        """An extinction that holds and covers the key, or None; what may hold is not looked at."""
        if database not in self._databases:
            return None
        bounds, segments = self._databases[database]
        segment = segments[bisect.bisect_right(bounds, key)]
        return segment.extinct or _passes(segment.filters, key)

    def __bool__(self) -> bool:
        """Whether any key could be anything but NOT_EXTINCT."""
        return self.everything_maybe or bool(self._databases)


def _passes(filters: tuple[tuple[Matcher, Extinction], ...], key: bytes) -> Extinction | None:
    for matches, extinction in filters:
        if matches(key):
            return extinction
    return None


_Databases = dict[bytes, tuple[list[bytes], list[_Segment]]]


def _segments(extinct: tuple[Extinction, ...], maybe: tuple[Extinction, ...]) -> _Databases:
    """Cut each database's keys; `segments[bisect_right(bounds, key)]` is a key's."""
    by_database: dict[bytes, list[tuple[Extinction, bool]]] = {}
    for extinction, holds in [(each, True) for each in extinct] + [(each, False) for each in maybe]:
        if extinction.end_key is not None and (extinction.start_key or b"") >= extinction.end_key:
            continue  # covers nothing
        for database in extinction.databases:
            by_database.setdefault(database, []).append((extinction, holds))
    return {database: _cut(found) for database, found in by_database.items()}


def _cut(found: list[tuple[Extinction, bool]]) -> tuple[list[bytes], list[_Segment]]:
    """Sweep over the bounds; a key below the first bound is reached by those without a start only."""
    begins: dict[bytes, list[int]] = {}
    ends: dict[bytes, list[int]] = {}
    for number, (extinction, _) in enumerate(found):
        begins.setdefault(extinction.start_key or b"", []).append(number)
        if extinction.end_key is not None:
            ends.setdefault(extinction.end_key, []).append(number)
    bounds = sorted({*begins, *ends})
    active: dict[int, None] = {}
    segments = [_NOTHING]  # no key is less than b"", so nothing that begins there is missed
    for bound in bounds:
        for number in ends.get(bound, ()):
            del active[number]
        active.update(dict.fromkeys(begins.get(bound, ())))
        segments.append(_segment(found[number] for number in active))
    return bounds, segments


def _segment(active: Iterator[tuple[Extinction, bool]]) -> _Segment:
    filters: dict[Filter, Extinction] = {}
    maybe = False
    maybe_filters: dict[Filter, None] = {}
    for extinction, holds in active:
        if extinction.filter is None:
            if holds:
                return _Segment(extinction, (), False, ())
            maybe = True
        elif holds:
            filters.setdefault(extinction.filter, extinction)
        else:
            maybe_filters[extinction.filter] = None
    if not filters and not maybe and not maybe_filters:
        return _NOTHING
    tried = tuple((each.matches, extinction) for each, extinction in filters.items())
    return _Segment(None, tried, maybe, () if maybe else tuple(each.matches for each in maybe_filters))
