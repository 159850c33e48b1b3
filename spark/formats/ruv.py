"""Replica update vectors in 389's text forms, both ways; what a vector means is decided elsewhere.

    {replicageneration} <csn>
    {replica <rid>[ <purl>]}[ <mincsn> <maxcsn>[ <last modified, 8 digits>]]     a RUV: both CSNs or none
    {replica <rid>[ <purl>]}[ <csn>]                                             a purge vector of a changelog

An element without CSNs is a replica that is known and of which no change was seen. Prefixes are read in any
case and written in lower case. 389 writes the one-CSN form for vectors without minima; its own reader of RUVs
does not take it.
Source: facts/replication-session, section 3; data/replication/ruv-lines.txt and the two changelog exports.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark.formats.csn import RID_MAX, RID_MIN, SHOWN_MAX_CHARS, Csn, CsnInvalid

ELEMENTS_MAX: Final = RID_MAX
LINES_MAX: Final = ELEMENTS_MAX + 1
PURL_MAX_CHARS: Final = 1_000

_GENERATION = re.compile(r"\{replicageneration\} (.*)", re.IGNORECASE | re.DOTALL)
_REPLICA = re.compile(r"\{replica ([^ }]*)(?: ([^ }]+))?\}(.*)", re.IGNORECASE | re.DOTALL)
_RID = re.compile(r"[1-9][0-9]{0,4}")
_MODIFIED = re.compile(r"[0-9a-f]{8}")


class RuvInvalid(ValueError):
    """A vector that cannot be read: what is wrong, in which line and at which character of it (from 0)."""

    def __init__(self, detail: str, *, line: int, position: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.position = position


@dataclass(frozen=True, slots=True)
class RuvElement:
    """What is known of one replica.

    Attributes:
        min_csn: the first change of it that was ever logged here; trimming never moves it.
        max_csn: every change of it up to here is committed here.
        last_modified: seconds since 1970; 0 where it was never told.
    """

    rid: int
    purl: str = ""
    min_csn: Csn | None = None
    max_csn: Csn | None = None
    last_modified: int | None = None

    def __post_init__(self) -> None:
        assert self.min_csn is None or self.max_csn is not None, "no text form has a first CSN alone"


@dataclass(frozen=True, slots=True)
class Ruv:
    """A vector with its elements in the order of its lines."""

    generation: Csn | None
    elements: tuple[RuvElement, ...] = ()

    @property
    def maxima(self) -> dict[int, Csn]:
        """The greatest CSN of each replica that has any."""
        return {each.rid: each.max_csn for each in self.elements if each.max_csn is not None}

    @property
    def minima(self) -> dict[int, Csn]:
        """The first CSN of each replica that has any."""
        return {each.rid: each.min_csn for each in self.elements if each.min_csn is not None}


def parse_rid(text: str) -> int:
    """Read a replica id: decimal without leading zeros, 1 to 65534.

    Raises: ValueError: it is none.
    """
    if _RID.fullmatch(text) is None or not RID_MIN <= int(text) <= RID_MAX:
        raise ValueError(f"{text[:SHOWN_MAX_CHARS]!r} is no replica id ({RID_MIN} to {RID_MAX})")
    return int(text)


def parse_ruv(lines: Sequence[str]) -> Ruv:
    """Read the lines of a RUV; replicageneration may be missing.

    Raises: RuvInvalid: a line of another form, a malformed or foreign CSN, a replica or the generation twice.
    """
    return _parse(lines, csn_counts=(0, 2))


def parse_purge_vector(lines: Sequence[str]) -> Ruv:
    """Read a changelog's purge vector: one CSN an element, or none; of two the greater one counts.

    Raises: RuvInvalid: as for parse_ruv.
    """
    return _parse(lines, csn_counts=(0, 1, 2))


def format_ruv(ruv: Ruv) -> list[str]:
    """Write the lines that parse_ruv or parse_purge_vector reads, the generation first."""
    lines = [] if ruv.generation is None else [f"{{replicageneration}} {ruv.generation}"]
    return lines + [_element_line(each) for each in ruv.elements]


def _head(element: RuvElement) -> str:
    return f"{{replica {element.rid}{' ' if element.purl else ''}{element.purl}}}"


def _element_line(element: RuvElement) -> str:
    parts = [_head(element), *(csn for csn in (element.min_csn, element.max_csn) if csn is not None)]
    # A time without CSNs has no place in this form.
    if element.last_modified is not None and element.max_csn is not None:
        parts.append(f"{element.last_modified:08x}")
    return " ".join(parts)


def _parse(lines: Sequence[str], *, csn_counts: tuple[int, ...]) -> Ruv:
    if len(lines) > LINES_MAX:
        raise RuvInvalid(f"{len(lines)} lines where at most {LINES_MAX} can be", line=LINES_MAX)
    generation: Csn | None = None
    elements: dict[int, RuvElement] = {}
    for number, line in enumerate(lines):
        found = _GENERATION.fullmatch(line)
        if found is not None:
            if generation is not None:
                raise RuvInvalid("replicageneration stands twice", line=number)
            generation = _csn(found.group(1), number, found.start(1))
            continue
        element = _element(line, number, csn_counts=csn_counts)
        if element.rid in elements:
            raise RuvInvalid(f"replica {element.rid} stands twice", line=number)
        elements[element.rid] = element
    return Ruv(generation, tuple(elements.values()))


def _split_replica(line: str, number: int) -> tuple[int, str, str, int]:
    """(rid, purl, what follows the brace, where that begins)."""
    found = _REPLICA.fullmatch(line)
    if found is None:
        shown = line[:SHOWN_MAX_CHARS]
        raise RuvInvalid(f"{shown!r} is neither {{replicageneration}} nor {{replica ...}}", line=number)
    purl = found.group(2) or ""
    if len(purl) > PURL_MAX_CHARS or not purl.isprintable():
        raise RuvInvalid("the address of the replica is no address", line=number, position=found.start(2))
    try:
        rid = parse_rid(found.group(1))
    except ValueError as error:
        raise RuvInvalid(str(error), line=number, position=found.start(1)) from None
    return rid, purl, found.group(3), found.start(3)


def _element(line: str, number: int, *, csn_counts: tuple[int, ...]) -> RuvElement:
    rid, purl, rest, at = _split_replica(line, number)
    if rest == "":
        return RuvElement(rid, purl)
    if not rest.startswith(" "):
        raise RuvInvalid("no blank after the brace", line=number, position=at)
    words = rest[1:].split(" ")
    places = [at + 1 + sum(len(word) + 1 for word in words[:index]) for index in range(len(words))]
    last_modified = None
    if len(words) > 1 and _MODIFIED.fullmatch(words[-1]) is not None:
        last_modified = int(words.pop(), 16)
    csns = [_csn(word, number, place) for word, place in zip(words, places, strict=False)]
    if len(csns) not in csn_counts:
        raise RuvInvalid(f"{len(csns)} CSN(s) where {_counts(csn_counts)} stand", line=number, position=at)
    for csn, place in zip(csns, places, strict=False):
        if csn.rid != rid:
            detail = f"{csn} is a change of replica {csn.rid}, not of {rid}"
            raise RuvInvalid(detail, line=number, position=place)
    least, greatest = (csns[0] if len(csns) == 2 else None), csns[-1]
    if least is not None and least > greatest:
        raise RuvInvalid("the first CSN is above the second", line=number, position=places[0])
    return RuvElement(rid, purl, least, greatest, last_modified)


def _counts(csn_counts: tuple[int, ...]) -> str:
    return "both or none" if csn_counts == (0, 2) else "none, one or two"


def _csn(text: str, line: int, position: int) -> Csn:
    try:
        return Csn(text)
    except CsnInvalid as error:
        raise RuvInvalid(error.detail, line=line, position=position + error.position) from None
