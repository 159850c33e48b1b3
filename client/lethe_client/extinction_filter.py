"""The extinction filter of a store, evaluated without the service: a verdict in microseconds a key.

A bundle is what `GET /v1/stores/{s}/extinctions/filter` answers. Whatever of it this version cannot read
makes the keys that it could cover MAYBE_EXTINCT, never NOT_EXTINCT: a wrong NOT_EXTINCT fails integrity
checks of the engine that asks.
"""

import base64
import binascii
import bisect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

EXTINCT: Final = "EXTINCT"
NOT_EXTINCT: Final = "NOT_EXTINCT"
MAYBE_EXTINCT: Final = "MAYBE_EXTINCT"

FORMAT: Final = 1
_EXTINCTION_FIELDS: Final = frozenset({"id", "databases", "start_key", "end_key", "filter", "label"})
_DEPTH_MAX: Final = 64

Matcher = Callable[[bytes], bool]


class _Unknown(ValueError):
    """A part of a bundle that this version cannot read."""


class _Piece:
    """Neighbouring keys of a database that the same extinctions reach."""

    __slots__ = ("extinct", "filters", "maybe", "maybe_filters")

    def __init__(self) -> None:
        self.extinct = False
        self.maybe = False
        self.filters: list[Matcher] = []
        self.maybe_filters: list[Matcher] = []

    def status(self, key: bytes) -> str:
        if self.extinct or any(matches(key) for matches in self.filters):
            return EXTINCT
        if self.maybe or any(matches(key) for matches in self.maybe_filters):
            return MAYBE_EXTINCT
        return NOT_EXTINCT


class ExtinctionBundle:
    """A store's extinctions as they stood at `version`, a number that only grows.

    Attributes:
        complete: False where a part could not be read; the keys it could cover are MAYBE_EXTINCT.
    """

    def __init__(self, *, store: str, version: int, everything_maybe: bool) -> None:
        self.store = store
        self.version = version
        self.everything_maybe = everything_maybe
        self.complete = True
        self._maybe_databases: set[bytes] = set()
        self._pieces: dict[bytes, tuple[list[bytes], list[_Piece]]] = {}

    @classmethod
    def parse(cls, body: str | bytes | Mapping[str, Any]) -> "ExtinctionBundle":
        """Read a bundle; nothing of it can fail, but what is not understood makes keys MAYBE_EXTINCT."""
        found: object = body
        if isinstance(body, str | bytes):
            try:
                found = json.loads(body)
            except (ValueError, RecursionError):
                found = None
        if not isinstance(found, Mapping) or not _is_known(found):
            bundle = cls(store="", version=0, everything_maybe=True)
            bundle.complete = False
            return bundle
        bundle = cls(
            store=found["store"], version=found["version"], everything_maybe=found["everything_maybe"]
        )
        bundle._read(found)
        return bundle

    def status(self, database: bytes | str, key: bytes) -> str:
        """Judge one key.

        Args:
            database: its name; a text stands for its UTF-8 bytes.
            key: of a database with duplicates the primary key, which is the record's data.
        Returns: EXTINCT, NOT_EXTINCT or MAYBE_EXTINCT.
        """
        return self.status_many(database, (key,))[0]

    def status_many(self, database: bytes | str, keys: Sequence[bytes]) -> list[str]:
        """Judge keys of one database, in their order."""
        name = database.encode() if isinstance(database, str) else database
        if self.everything_maybe:
            return [MAYBE_EXTINCT] * len(keys)
        otherwise = MAYBE_EXTINCT if name in self._maybe_databases else NOT_EXTINCT
        if name not in self._pieces:
            return [otherwise] * len(keys)
        bounds, pieces = self._pieces[name]
        found = [pieces[bisect.bisect_right(bounds, key)].status(key) for key in keys]
        if otherwise == MAYBE_EXTINCT:
            return [MAYBE_EXTINCT if status == NOT_EXTINCT else status for status in found]
        return found

    def _read(self, found: Mapping[str, Any]) -> None:
        in_base64 = found["databases_are"] == "BASE64"
        reaching: dict[bytes, list[tuple[bytes, bytes | None, Matcher | None, bool]]] = {}
        for name in ("extinctions", "maybe"):
            for row in found[name]:
                databases = _databases(row, in_base64=in_base64)
                if databases is None:  # of which databases nobody knows
                    self.everything_maybe, self.complete = True, False
                    return
                try:
                    start, end = _range(row)
                except _Unknown:
                    self.complete = False
                    self._maybe_databases.update(databases)
                    continue
                matches, holds = None, name == "extinctions"
                try:
                    matches = None if row["filter"] is None else _matcher(row["filter"], _DEPTH_MAX)
                except _Unknown:
                    self.complete = holds = False  # some of the range's keys, nobody knows which
                for database in databases:
                    reaching.setdefault(database, []).append((start, end, matches, holds))
        self._pieces = {database: _cut(rows) for database, rows in reaching.items()}


def _is_known(found: Mapping[Any, Any]) -> bool:
    return (
        found.get("format") == FORMAT
        and isinstance(found.get("store"), str)
        and isinstance(found.get("version"), int)
        and isinstance(found.get("everything_maybe"), bool)
        and found.get("databases_are") in {"BASE64", "UTF8"}
        and all(isinstance(found.get(name), list) for name in ("extinctions", "maybe"))
    )


def _databases(row: object, *, in_base64: bool) -> set[bytes] | None:
    names = row.get("databases") if isinstance(row, Mapping) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return None
    try:
        return {_bytes(name) if in_base64 else name.encode() for name in names}
    except ValueError:
        return None


def _range(row: Mapping[str, Any]) -> tuple[bytes, bytes | None]:
    """The range of one extinction; raises _Unknown."""
    if not set(row) <= _EXTINCTION_FIELDS or not {"start_key", "end_key", "filter"} <= set(row):
        raise _Unknown("fields")
    start = b"" if row["start_key"] is None else _bytes(row["start_key"])
    return start, None if row["end_key"] is None else _bytes(row["end_key"])


def _cut(
    rows: list[tuple[bytes, bytes | None, Matcher | None, bool]],
) -> tuple[list[bytes], list[_Piece]]:
    """Cut a database's keys at every start and end; a piece holds what reaches all of its keys."""
    bounds = sorted({bound for start, end, _, _ in rows for bound in (start, end) if bound is not None})
    pieces = [_Piece() for _ in range(len(bounds) + 1)]
    for start, end, matches, holds in rows:
        if end is not None and start >= end:
            continue
        first = bisect.bisect_right(bounds, start)
        last = len(pieces) if end is None else bisect.bisect_right(bounds, end)
        for piece in pieces[first:last]:
            if matches is not None:
                (piece.filters if holds else piece.maybe_filters).append(matches)
            elif holds:
                piece.extinct = True
            else:
                piece.maybe = True
    return bounds, pieces


def _bytes(text: object) -> bytes:
    if not isinstance(text, str):
        raise _Unknown("no bytes")
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Unknown("no base64") from error
    if base64.b64encode(decoded).decode() != text:
        raise _Unknown("no canonical base64")
    return decoded


def _matcher(found: object, depth: int) -> Matcher:
    """Compile a filter; raises _Unknown for what this version does not know."""
    if depth == 0 or not isinstance(found, Mapping) or len(found) != 1:
        raise _Unknown("filter")
    word, inner = next(iter(found.items()))
    if word in {"all", "any"}:
        if not isinstance(inner, list) or not inner:
            raise _Unknown(word)
        parts = [_matcher(part, depth - 1) for part in inner]
        together = all if word == "all" else any
        return lambda key: together(matches(key) for matches in parts)
    if word == "not":
        negated = _matcher(inner, depth - 1)
        return lambda key: not negated(key)
    if word == "prefix":
        prefix = _bytes(inner)
        return lambda key: key.startswith(prefix)
    if word == "range":
        fields = _fields(inner, set(), {"start", "end"})
        start = _bytes(fields["start"]) if "start" in fields else b""
        end = _bytes(fields["end"]) if "end" in fields else None
        return lambda key: start <= key and (end is None or key < end)
    if word == "modulo":
        return _modulo(_fields(inner, {"offset", "width", "divisor", "remainder"}, set()))
    if word == "field":
        return _field(_fields(inner, {"offset", "width", "op", "value"}, set()))
    raise _Unknown(str(word))


def _fields(found: object, needed: set[str], optional: set[str]) -> Mapping[str, Any]:
    if not isinstance(found, Mapping) or not needed <= set(found) or not set(found) <= needed | optional:
        raise _Unknown("fields")
    return found


def _integer(fields: Mapping[str, Any], name: str, *, least: int) -> int:
    value = fields[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _Unknown(name)
    return value


def _modulo(fields: Mapping[str, Any]) -> Matcher:
    offset, width = _integer(fields, "offset", least=0), _integer(fields, "width", least=1)
    divisor, remainder = _integer(fields, "divisor", least=1), _integer(fields, "remainder", least=0)
    stop = offset + width
    return lambda key: len(key) >= stop and int.from_bytes(key[offset:stop], "big") % divisor == remainder


def _field(fields: Mapping[str, Any]) -> Matcher:
    offset, width = _integer(fields, "offset", least=0), _integer(fields, "width", least=1)
    value, stop = _bytes(fields["value"]), offset + width
    holds = _OPERATORS.get(str(fields["op"]))
    if holds is None or len(value) != width:
        raise _Unknown("field")
    return lambda key: len(key) >= stop and holds(key[offset:stop], value)


_OPERATORS: Final[Mapping[str, Callable[[bytes, bytes], bool]]] = {
    "EQ": bytes.__eq__,
    "NE": bytes.__ne__,
    "LT": bytes.__lt__,
    "LE": bytes.__le__,
    "GT": bytes.__gt__,
    "GE": bytes.__ge__,
}
