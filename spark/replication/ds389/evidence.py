"""What servers have left in files: exports of changelogs, sessions, results of operations. Read line by line.

    changelog   of `dsconf ... replication dump-changelog` (clpurgeruv, clmaxruv, csn), or of `dbscan`
    sessions    one JSON object a line: agreement, consumer_ruv, supplier_ruv, sent, start, end
    error log   of a supplier, with nsslapd-errorlog-level 8192: the same sessions, in 389's own words
    access log  of a consumer: `RESULT err=0 ... csn=...`

389 forgets the line end after the comment of an export: the first `clpurgeruv:` stands in the comment's line.
Sources: facts/replication-session sections 3, 9 and 12; files of 389-ds-base 2.3.1 in tests/data.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

from spark.formats.csn import Csn, CsnInvalid
from spark.formats.ruv import Ruv, RuvInvalid, parse_purge_vector, parse_ruv

T = TypeVar("T")
CSNS_MAX: Final = 5_000_000
"""Of one file: what is larger is given in parts of time."""
SESSIONS_MAX: Final = 200_000
_HEAD: Final = re.compile(r"(clpurgeruv|clmaxruv):\s*(\{.*\S)")
_CSN: Final = re.compile(r"^\s*csn:\s*([0-9a-f]{20})\s*$")
_RESULT: Final = re.compile(r" RESULT err=(-?[0-9]+) .*\bcsn=([0-9a-f]{20})\b")
_STAMP: Final = re.compile(r"^\[?([0-9]{2}/[A-Z][a-z]{2}/[0-9]{4}:[0-9:]{8})(\.[0-9]+)? ([+-][0-9]{4})")
_AGMT: Final = re.compile(r'agmt="cn=((?:[^"\\]|\\.)*)" \(([^()]*)\)')
_SENDING: Final = re.compile(r"Sending [a-z ]+operation \(dn=.* csn=([0-9a-f]{20})\)")
_RUV_LINE: Final = re.compile(r"(\{(?:replicageneration|replica [0-9]+[^}]*)\}.*\S)\s*$", re.IGNORECASE)


class EvidenceUnreadable(ValueError):
    """A file that is not what it is given for."""


@dataclass(frozen=True)
class History:
    """A changelog: what was cut off below, what it ends at, and the changes that it holds."""

    purged: Mapping[int, Csn]
    maxima: Mapping[int, Csn]
    csns: frozenset[Csn]
    generation: str | None = None
    minima: Mapping[int, Csn] = field(default_factory=dict)

    def holds(self, csn: Csn) -> bool | None:
        """Whether a change is in it; None: it does not go as far back, or not as far on."""
        if csn in self.csns:
            return True
        first, last = self._spans.get(csn.rid, (None, None))
        if first is None or last is None:
            return None
        low = max(first, self.purged.get(csn.rid, first))
        return False if low < csn < last else None

    @cached_property
    def _spans(self) -> Mapping[int, tuple[Csn, Csn]]:
        """The first and the last change of each replica."""
        found: dict[int, tuple[Csn, Csn]] = {}
        for csn in self.csns:
            first, last = found.get(csn.rid, (csn, csn))
            found[csn.rid] = min(first, csn), max(last, csn)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of a supplier: both vectors as they were compared, and what was sent.

    Attributes:
        consumer: the RID of the consumer, which tells itself first in its RUV; None: it has none.
        skipped: changes that the session read and did not send, as far as they are named.
        ended: whether it came to its own end (state 5), and not to an error.
    """

    agreement: str
    at: datetime | None
    consumer: int | None
    seen: Mapping[int, Csn]
    known: Mapping[int, Csn]
    sent: tuple[Csn, ...]
    skipped: tuple[Csn, ...] = ()
    generations: tuple[str | None, str | None] = (None, None)
    ended: bool = True
    minima: tuple[Csn, ...] = ()


def read_changelog(lines: Iterable[str]) -> History:
    """Read the export of a changelog.

    Raises: EvidenceUnreadable: neither a vector nor a change is in it, a vector is wrong, the end is missing.
    """
    heads, csns = changelog_parts(lines)
    try:
        purged = parse_purge_vector(heads["clpurgeruv"])
        maxima = parse_ruv(heads["clmaxruv"])
    except RuvInvalid as error:
        raise EvidenceUnreadable(f"a vector of the changelog: {error.detail}") from error
    if not csns and not maxima.elements:
        raise EvidenceUnreadable("no change and no vector: not the export of a changelog")
    top = _ends(csns)
    for rid, last in maxima.maxima.items():
        if top.setdefault(rid, last) < last:
            raise EvidenceUnreadable(
                f"it is cut off: clmaxruv says that RID {rid} goes to {last}, and here it ends at {top[rid]};"
                " export the changelog again"
            )
    generation = maxima.generation or purged.generation
    return History(
        purged.maxima, top, frozenset(csns), None if generation is None else str(generation), maxima.minima
    )


def changelog_parts(lines: Iterable[str]) -> tuple[Mapping[str, list[str]], set[Csn]]:
    """The lines of the vectors clpurgeruv and clmaxruv, and the changes, of an export that nobody has judged.

    Raises: EvidenceUnreadable: a CSN is wrong, there are too many.
    """
    heads: dict[str, list[str]] = {"clpurgeruv": [], "clmaxruv": []}
    csns: set[Csn] = set()
    for line in lines:
        if (found := _CSN.match(line)) is not None:
            csns.add(_csn(found.group(1)))
            if len(csns) > CSNS_MAX:
                raise EvidenceUnreadable(f"more than {CSNS_MAX} changes in one file")
        elif (head := _HEAD.search(line)) is not None and not csns:
            heads[head.group(1)].append(head.group(2))
    return heads, csns


def _ends(csns: Iterable[Csn]) -> dict[int, Csn]:
    """The last change of each replica."""
    found: dict[int, Csn] = {}
    for csn in csns:
        found[csn.rid] = max(found.get(csn.rid, csn), csn)
    return found


def read_results(lines: Iterable[str]) -> dict[Csn, int]:
    """Read an access log: by CSN, 0 where it was taken once, else the error that it was refused with."""
    found: dict[Csn, int] = {}
    for line in lines:
        result = _RESULT.search(line)
        if result is None:
            continue
        csn, code = _csn(result.group(2)), int(result.group(1))
        found[csn] = 0 if found.get(csn) == 0 else code
        if len(found) > CSNS_MAX:
            raise EvidenceUnreadable(f"more than {CSNS_MAX} changes in one file")
    if not found:
        raise EvidenceUnreadable("no RESULT with a csn: not an access log of replicated changes")
    return found


def read_sessions(lines: Iterable[str]) -> list[Session]:
    """Read sessions as JSON lines, or an error log of the level of replication.

    Raises: EvidenceUnreadable.
    """
    return _sessions(lines, lambda line: session_of(_recorded(line)), _closed)


def session_documents(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The sessions of the same files as JSON that `session_of` reads; nobody has judged them.

    Raises: EvidenceUnreadable: there is none, or too many, or a line is no JSON.
    """
    return _sessions(lines, _recorded, _document)


def _sessions(lines: Iterable[str], recorded: Callable[[str], T], logged: Callable[["_Open"], T]) -> list[T]:
    source = iter(lines)
    first = next((line for line in source if line.strip()), "")
    if first.lstrip().startswith('{"'):
        found = [recorded(line) for line in _with(first, source) if line.strip()]
    else:
        found = [logged(one) for one in _logged(_with(first, source))]
    if not found:
        raise EvidenceUnreadable(
            "no session in it; an error log tells of them with nsslapd-errorlog-level 8192 alone"
        )
    if len(found) > SESSIONS_MAX:
        raise EvidenceUnreadable(f"more than {SESSIONS_MAX} sessions in one file")
    return found


def session_of(document: Mapping[str, Any]) -> Session:
    """A session from JSON.

    Raises: EvidenceUnreadable.
    """
    try:
        seen, known = parse_ruv(document["consumer_ruv"]), parse_ruv(document["supplier_ruv"])
        sent = tuple(Csn(text) for text in document["sent"])
        skipped = tuple(Csn(text) for text in document.get("skipped_consumer_rid") or ())
        end = document.get("end") or {}
        at = _instant(str(document.get("start", "")))
    except (KeyError, TypeError, AttributeError, RuvInvalid, CsnInvalid) as error:
        raise EvidenceUnreadable(f"no session: {error!r}"[:300]) from error
    return _session(
        str(document.get("agreement", "")), at, seen, known, sent, skipped, ended=end.get("state", 5) == 5
    )


def _recorded(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise EvidenceUnreadable(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise EvidenceUnreadable("no session: not an object")
    return found


def _session(
    agreement: str,
    at: datetime | None,
    seen: Ruv,
    known: Ruv,
    sent: tuple[Csn, ...],
    skipped: tuple[Csn, ...] = (),
    *,
    ended: bool,
) -> Session:
    generations = tuple(None if one.generation is None else str(one.generation) for one in (seen, known))
    return Session(
        agreement=agreement,
        at=at,
        consumer=seen.elements[0].rid if seen.elements else None,
        seen=seen.maxima,
        known=known.maxima,
        sent=sent,
        skipped=skipped,
        generations=(generations[0], generations[1]),
        ended=ended,
        minima=(*seen.minima.values(), *known.minima.values()),
    )


@dataclass(slots=True)
class _Open:
    """A session of an error log, from its first line on."""

    agreement: str
    start: str
    is_ended: bool = False
    seen: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    sent: list[Csn] = field(default_factory=list)
    into: list[str] | None = None


def _logged(lines: Iterable[str]) -> Iterator[_Open]:
    """The sessions of an error log: lines of several agreements stand mixed."""
    open_: dict[str, _Open] = {}
    for line in lines:
        found = _AGMT.search(line)
        if found is None:
            continue
        name = found.group(1)
        if "Consumer RUV:" in line:
            if (broken := open_.pop(name, None)) is not None and broken.sent:
                yield broken  # the server died in it: its end is in no log, and what it sent is
            stamp = _STAMP.match(line)
            open_[name] = fresh = _Open(name, "" if stamp is None else stamp.group(0).lstrip("["))
            fresh.into = fresh.seen
            continue
        now = open_.get(name)
        if now is None:
            continue
        if "Supplier RUV:" in line:
            now.into = now.known
        elif (sending := _SENDING.search(line)) is not None:
            now.sent.append(_csn(sending.group(1)))
        elif "session end: state=" in line:
            now.is_ended = "state=5" in line
            yield open_.pop(name)
        elif now.into is not None and (vector := _RUV_LINE.search(line)) is not None:
            now.into.append(vector.group(1))
    yield from (left for left in open_.values() if left.sent)


def _closed(one: _Open) -> Session:
    try:
        seen, known = parse_ruv(one.seen), parse_ruv(one.known)
    except RuvInvalid as error:
        raise EvidenceUnreadable(f"a vector of {one.agreement}: {error.detail}") from error
    at = _instant(one.start)
    return _session(one.agreement, at, seen, known, tuple(one.sent), ended=one.is_ended)


def _document(one: _Open) -> dict[str, Any]:
    return {
        "agreement": one.agreement,
        "start": one.start,
        "consumer_ruv": one.seen,
        "supplier_ruv": one.known,
        "sent": one.sent,
        "end": {"state": 5 if one.is_ended else 0},
    }


def _instant(text: str) -> datetime | None:
    """`20/Nov/2026:08:01:20.630255104 +0000`, with a bracket before it or not."""
    found = _STAMP.match(text)
    if found is None:
        return None
    day, fraction, zone = found.groups()
    try:
        at = datetime.strptime(f"{day} {zone}", "%d/%b/%Y:%H:%M:%S %z")
    except ValueError:
        return None
    return at.astimezone(UTC).replace(microsecond=int((fraction or ".0")[1:7].ljust(6, "0")))


def _csn(text: str) -> Csn:
    try:
        return Csn(text)
    except CsnInvalid as error:
        raise EvidenceUnreadable(error.detail) from error


def _with(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
