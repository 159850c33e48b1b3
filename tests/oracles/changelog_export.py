"""Reads what 389 exports of a changelog (LDIF): two vectors, then the changes in the order of their CSNs.

389 forgets the line end after its comment, so the first `clpurgeruv:` stands in the comment's line.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from spark.formats.csn import Csn
from spark.formats.ruv import Ruv, parse_purge_vector, parse_ruv

DATA = Path(__file__).parents[1] / "data" / "replication"
_PURGED = "clpurgeruv"
_MAXIMA = "clmaxruv"


@dataclass(frozen=True)
class ChangelogRecord:
    """One change; `change` is its LDIF, `attributes` what stands beside it."""

    csn: Csn
    changetype: str
    dn: str
    nsuniqueid: str
    change: bytes
    attributes: dict[str, str]


@dataclass(frozen=True)
class ChangelogExport:
    """A whole export: what was purged, the greatest CSNs, and the changes that are left."""

    purged: Ruv
    maxima: Ruv
    records: tuple[ChangelogRecord, ...]

    @property
    def csns(self) -> list[Csn]:
        return [record.csn for record in self.records]


def read_export(name: str) -> ChangelogExport:
    """Read one of the recorded exports by its file name."""
    raw = (DATA / name).read_bytes()
    return parse_export((gzip.decompress(raw) if name.endswith(".gz") else raw).decode())


def parse_export(text: str) -> ChangelogExport:
    """Read the text of an export."""
    head, *blocks = [block for block in text.split("\n\n") if block.strip()]
    head = head.replace(_PURGED, f"\n{_PURGED}", 1) if head.startswith("#") else head
    vectors = [_pair(line) for line in _unfolded(head) if not line.startswith("#")]
    return ChangelogExport(
        purged=parse_purge_vector([value for name, value in vectors if name == _PURGED]),
        maxima=parse_ruv([value for name, value in vectors if name == _MAXIMA]),
        records=tuple(_record(block) for block in blocks),
    )


def _record(block: str) -> ChangelogRecord:
    found = dict(_pair(line) for line in _unfolded(block))
    change = found.pop("change", "")
    return ChangelogRecord(
        csn=Csn(found["csn"]),
        changetype=found["changetype"],
        dn=found["dn"],
        nsuniqueid=found["nsuniqueid"],
        change=base64.b64decode(change),
        attributes=found,
    )


def _unfolded(block: str) -> Iterator[str]:
    yield from (line for line in re.sub(r"\n ", "", block).split("\n") if line)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.removeprefix(":").strip()
