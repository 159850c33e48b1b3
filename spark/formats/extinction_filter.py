"""Filters of record extinction: small, total expressions over the bytes of a key.

    {"prefix": b64}                                                 the key begins with these bytes
    {"range": {"start"?: b64, "end"?: b64}}                         start <= key < end, bytewise
    {"modulo": {"offset", "width", "divisor", "remainder"}}         of a big-endian unsigned integer
    {"field": {"offset", "width", "op", "value": b64}}              bytes at a place, compared bytewise
    {"all": [..]}   {"any": [..]}   {"not": ..}

A key that is shorter than offset + width: that modulo or field is false. Nothing that is wrong with a key can
fail, so the same filter says the same in Python, in SQL, in Spark and at a client.
Source: je-extinction-filter ("along with an optional filter").
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

DEPTH_MAX: Final = 8
NODES_MAX: Final = 64
BYTES_MAX: Final = 2_000
"""Of each value in a filter, decoded."""
OFFSET_MAX: Final = 65_535
MODULO_WIDTH_MAX: Final = 8
FIELD_WIDTH_MAX: Final = 64
DIVISOR_MAX: Final = (1 << 53) - 1
"""The greatest integer that every JSON keeps; 256 times of it still fits SQL's 64 bits, sign and all."""
_SHOWN_MAX: Final = 60

Matcher = Callable[[bytes], bool]


class FilterInvalid(ValueError):
    """A filter that cannot be read: what is wrong, and where (a JSON pointer into the filter)."""

    def __init__(self, detail: str, *, pointer: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class Op(StrEnum):
    """How a field is compared with a value of its own width."""

    EQ = "EQ"
    NE = "NE"
    LT = "LT"
    LE = "LE"
    GT = "GT"
    GE = "GE"


@dataclass(frozen=True, slots=True)
class Prefix:
    """The key begins with `value`."""

    value: bytes


@dataclass(frozen=True, slots=True)
class Range:
    """`start` <= key < `end`; None: open."""

    start: bytes | None
    end: bytes | None


@dataclass(frozen=True, slots=True)
class Modulo:
    """The unsigned big-endian integer of `width` bytes at `offset`, modulo `divisor`, is `remainder`."""

    offset: int
    width: int
    divisor: int
    remainder: int


@dataclass(frozen=True, slots=True)
class FieldCompare:
    """The `width` bytes at `offset` stand in relation `op` to `value`."""

    offset: int
    width: int
    op: Op
    value: bytes


@dataclass(frozen=True, slots=True)
class All:
    """Every part is true."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part is true."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part is false."""

    part: "Node"


Node = Prefix | Range | Modulo | FieldCompare | All | AnyOf | Not


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter that was read; equal filters have equal nodes.

    Attributes:
        matches: whether the filter is true of a key; defined for every key, and never raises.
    """

    root: Node
    matches: Matcher = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", _matcher(self.root))

    def __reduce__(self) -> tuple[type["Filter"], tuple[Node]]:
        return Filter, (self.root,)  # what was compiled is no data: a process that gets it compiles it anew

    @classmethod
    def parse(cls, found: object) -> "Filter":
        """Read a filter as JSON gives it.

        Raises: FilterInvalid: with a pointer into `found` to the first fault.
        """
        return cls(_Reader().node(found, "", 1))

    def to_json(self) -> dict[str, Any]:
        """The filter in its one form: what `parse` reads, with every field that has a value."""
        return _json(self.root)


def decode_base64(found: object, pointer: str, *, bytes_max: int = BYTES_MAX) -> bytes:
    """Read bytes in standard base64, padded, one text for one value.

    Raises: FilterInvalid: at this pointer.
    """
    if not isinstance(found, str):
        raise FilterInvalid("bytes as a text in base64", pointer=pointer)
    try:
        decoded = base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FilterInvalid("not base64", pointer=pointer) from error
    if base64.b64encode(decoded).decode() != found:  # bits behind the last byte: two texts for one value
        raise FilterInvalid("not the canonical base64 of its bytes", pointer=pointer)
    if len(decoded) > bytes_max:
        raise FilterInvalid(f"{len(decoded)} bytes, more than {bytes_max}", pointer=pointer)
    return decoded


def encode_base64(value: bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(value).decode()


class _Reader:
    """Reads one filter and counts its nodes."""

    def __init__(self) -> None:
        self._nodes = 0

    def node(self, found: object, pointer: str, depth: int) -> Node:
        self._nodes += 1
        if depth > DEPTH_MAX:
            raise FilterInvalid(f"deeper than {DEPTH_MAX}", pointer=pointer)
        if self._nodes > NODES_MAX:
            raise FilterInvalid(f"more than {NODES_MAX} expressions", pointer=pointer)
        if not isinstance(found, dict) or len(found) != 1:
            raise FilterInvalid(f"an object with exactly one of {', '.join(_WORDS)}", pointer=pointer)
        word, inner = next(iter(found.items()))
        here = f"{pointer}/{_escaped(word)}"
        match word:
            case "prefix":
                value = decode_base64(inner, here)
                if not value:
                    raise FilterInvalid("a prefix has at least one byte", pointer=here)
                return Prefix(value)
            case "range":
                return _range(inner, here)
            case "modulo":
                return _modulo(inner, here)
            case "field":
                return _field(inner, here)
            case "all":
                return All(self._parts(inner, here, depth))
            case "any":
                return AnyOf(self._parts(inner, here, depth))
            case "not":
                return Not(self.node(inner, here, depth + 1))
        raise FilterInvalid(
            f"unknown word {str(word)[:_SHOWN_MAX]!r}: one of {', '.join(_WORDS)}", pointer=pointer
        )

    def _parts(self, found: object, pointer: str, depth: int) -> tuple[Node, ...]:
        if not isinstance(found, list) or not found:
            raise FilterInvalid("a list of at least one expression", pointer=pointer)
        return tuple(self.node(part, f"{pointer}/{number}", depth + 1) for number, part in enumerate(found))


_WORDS: Final = ("prefix", "range", "modulo", "field", "all", "any", "not")


def _escaped(word: object) -> str:
    # Half a character can stand in no answer.
    shown = str(word)[:_SHOWN_MAX].encode(errors="backslashreplace").decode()
    return shown.replace("~", "~0").replace("/", "~1")


def _object(found: object, pointer: str, *, needed: set[str], optional: set[str]) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise FilterInvalid("an object", pointer=pointer)
    for name in found:
        if name not in needed | optional:
            raise FilterInvalid(
                f"unknown field {str(name)[:_SHOWN_MAX]!r}", pointer=f"{pointer}/{_escaped(name)}"
            )
    for name in sorted(needed):
        if name not in found:
            raise FilterInvalid(f"{name} is missing", pointer=pointer)
    return found


def _integer(found: Mapping[str, Any], name: str, pointer: str, *, least: int, most: int) -> int:
    value = found[name]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FilterInvalid(f"an integer from {least} to {most}", pointer=f"{pointer}/{name}")
    return value


def _range(found: object, pointer: str) -> Range:
    fields = _object(found, pointer, needed=set(), optional={"start", "end"})
    if not fields:
        raise FilterInvalid("a start or an end, or both", pointer=pointer)
    start, end = (
        decode_base64(fields[name], f"{pointer}/{name}") if name in fields else None
        for name in ("start", "end")
    )
    if start is not None and end is not None and start > end:
        raise FilterInvalid("start lies after end", pointer=f"{pointer}/start")
    return Range(start, end)


def _modulo(found: object, pointer: str) -> Modulo:
    fields = _object(found, pointer, needed={"offset", "width", "divisor", "remainder"}, optional=set())
    divisor = _integer(fields, "divisor", pointer, least=1, most=DIVISOR_MAX)
    return Modulo(
        _integer(fields, "offset", pointer, least=0, most=OFFSET_MAX),
        _integer(fields, "width", pointer, least=1, most=MODULO_WIDTH_MAX),
        divisor,
        _integer(fields, "remainder", pointer, least=0, most=divisor - 1),
    )


def _field(found: object, pointer: str) -> FieldCompare:
    fields = _object(found, pointer, needed={"offset", "width", "op", "value"}, optional=set())
    width = _integer(fields, "width", pointer, least=1, most=FIELD_WIDTH_MAX)
    if not isinstance(fields["op"], str) or fields["op"] not in set(Op):
        raise FilterInvalid(f"one of {', '.join(Op)}", pointer=f"{pointer}/op")
    value = decode_base64(fields["value"], f"{pointer}/value")
    if len(value) != width:
        raise FilterInvalid(f"{len(value)} bytes, where the width is {width}", pointer=f"{pointer}/value")
    offset = _integer(fields, "offset", pointer, least=0, most=OFFSET_MAX)
    return FieldCompare(offset, width, Op(fields["op"]), value)


def _json(node: Node) -> dict[str, Any]:
    match node:
        case Prefix(value):
            return {"prefix": encode_base64(value)}
        case Range(start, end):
            sides = {"start": start, "end": end}
            return {"range": {name: encode_base64(side) for name, side in sides.items() if side is not None}}
        case Modulo(offset, width, divisor, remainder):
            return {"modulo": {"offset": offset, "width": width, "divisor": divisor, "remainder": remainder}}
        case FieldCompare(offset, width, op, value):
            return {
                "field": {"offset": offset, "width": width, "op": op.value, "value": encode_base64(value)}
            }
        case All(parts):
            return {"all": [_json(part) for part in parts]}
        case AnyOf(parts):
            return {"any": [_json(part) for part in parts]}
        case Not(part):
            return {"not": _json(part)}


def _matcher(node: Node) -> Matcher:
    """Compile a node into closures, so that a key costs no look at the tree."""
    match node:
        case Prefix(value):
            return lambda key: key.startswith(value)
        case Range(start, end):
            return _range_matcher(start, end)
        case Modulo(offset, width, divisor, remainder):
            stop = offset + width
            number = int.from_bytes
            return lambda key: len(key) >= stop and number(key[offset:stop], "big") % divisor == remainder
        case FieldCompare(offset, width, op, value):
            return _field_matcher(offset, offset + width, op, value)
        case All(parts):
            every = [_matcher(part) for part in parts]
            return lambda key: all(matches(key) for matches in every)
        case AnyOf(parts):
            some = [_matcher(part) for part in parts]
            return lambda key: any(matches(key) for matches in some)
        case Not(part):
            inner = _matcher(part)
            return lambda key: not inner(key)


def _range_matcher(start: bytes | None, end: bytes | None) -> Matcher:
    if start is None:
        assert end is not None, "_range has read a start or an end"
        return lambda key: key < end
    if end is None:
        return lambda key: key >= start
    return lambda key: start <= key < end


def _field_matcher(offset: int, stop: int, op: Op, value: bytes) -> Matcher:
    match op:
        case Op.EQ:
            return lambda key: key[offset:stop] == value  # a shorter key has a shorter field
        case Op.NE:
            return lambda key: len(key) >= stop and key[offset:stop] != value
        case Op.LT:
            return lambda key: len(key) >= stop and key[offset:stop] < value
        case Op.LE:
            return lambda key: len(key) >= stop and key[offset:stop] <= value
        case Op.GT:
            return lambda key: len(key) >= stop and key[offset:stop] > value
        case Op.GE:
            return lambda key: len(key) >= stop and key[offset:stop] >= value
