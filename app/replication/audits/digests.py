"""Counts and checksums of a replica, as one side of an audit gives them to the other."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema

from app.replication.consumer.models import RuvRead, shown_vector
from app.replication.replica.models import Base64Bytes
from app.replication.replica.replicas import require_readable
from spark.formats.csn import CSN_CHARS, Csn
from spark.formats.ruv import parse_rid
from spark.replication.replica.digest import FIRST_KEY, Digest, EntryKey, digest_changes, digest_entries
from spark.replication.replica.replica import read_vectors
from spark.targets.connection import Connection

RANGES_MAX: Final = 1_000
_CSN_SCHEMA: Final = {"type": "string", "pattern": f"^[0-9a-f]{{{CSN_CHARS}}}$"}
_RANGES_SCHEMA: Final = {
    "type": "object",
    "maxProperties": RANGES_MAX,
    "additionalProperties": {
        "type": "array",
        "prefixItems": [{"anyOf": [_CSN_SCHEMA, {"type": "null"}]}, _CSN_SCHEMA],
        "minItems": 2,
        "maxItems": 2,
    },
}
CsnRange = tuple[Csn | None, Csn]


def _range(rid: int, value: Any) -> CsnRange:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise ValueError(f"{rid}: a range is [after or null, upto]")
    after = None if value[0] is None else Csn(str(value[0]))
    upto = Csn(value[1])
    for csn in (after, upto):
        if csn is not None and csn.rid != rid:
            raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
    if after is not None and after > upto:
        raise ValueError(f"{rid}: the range ends before it begins")
    return after, upto


def read_ranges(value: Any) -> dict[int, CsnRange]:
    """Ranges of CSNs by replica id from JSON.

    Raises: ValueError: they are none.
    """
    if not isinstance(value, Mapping):
        raise ValueError("an object of ranges by RID")
    if len(value) > RANGES_MAX:
        raise ValueError(f"more than {RANGES_MAX} ranges")
    rids = [parse_rid(str(key)) for key in value]
    return {rid: _range(rid, found) for rid, found in zip(rids, value.values(), strict=True)}


RangesMap = Annotated[dict[int, CsnRange], PlainValidator(read_ranges), WithJsonSchema(_RANGES_SCHEMA)]


class EntryPoint(BaseModel):
    """A place among the entries, by standard base64."""

    model_config = ConfigDict(extra="forbid")

    database: Base64Bytes
    key: Base64Bytes

    @property
    def place(self) -> EntryKey:
        """As the lower floor compares it."""
        return self.database, self.key


class EntriesRange(BaseModel):
    """A stretch of the entries, behind `after`, up to and with `upto`; null: from the first, to the last."""

    model_config = ConfigDict(extra="forbid")

    after: EntryPoint | None = None
    upto: EntryPoint | None = None


class DigestRequest(BaseModel):
    """What to count and hash. Members that a later version adds are passed over."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"examples": [{"ranges": {"1": [None, "6aff000a000000010000"]}, "entries": False}]},
    )

    ranges: RangesMap = Field(
        default_factory=dict, description="RID to [after, upto]; `after` null: the first."
    )
    entries: bool = False
    entries_range: EntriesRange | None = Field(default=None, description="Only these entries; null: all.")


class RangeDigestRead(BaseModel):
    """The changes of one range."""

    count: int
    checksum: str
    whole: bool = Field(description="The changelog had all of the range while it was read.")


class EntriesDigestRead(BaseModel):
    """The entries, tombstones among them."""

    count: int
    checksum: str
    quiet: bool = Field(description="No change came while they were read.")


_DIGESTS_EXAMPLE: Final[dict[str, Any]] = {
    "rids": {
        "1": {
            "count": 1204,
            "checksum": "65e39e598fd3640d5acd1b35f689fcbbeff253062b0d08dbcb118a4f1b179aa9",
            "whole": True,
        }
    },
    "entries": None,
    "ruv": {"1": "6aff000a000000010000"},
    "purged": {},
}


class DigestsRead(BaseModel):
    """What a replica holds; the vectors are those after the reading."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DIGESTS_EXAMPLE]})

    rids: dict[str, RangeDigestRead]
    entries: EntriesDigestRead | None
    ruv: RuvRead
    purged: RuvRead


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to count and hash; `entries` is (after, upto), None: not at all."""

    ranges: Mapping[int, CsnRange]
    entries: tuple[EntryKey, EntryKey | None] | None = None

    @classmethod
    def of(cls, request: DigestRequest) -> "Wanted":
        """As a peer has asked."""
        if not request.entries:
            return cls(request.ranges)
        part = request.entries_range or EntriesRange()
        after = FIRST_KEY if part.after is None else part.after.place
        return cls(request.ranges, (after, None if part.upto is None else part.upto.place))

    def body(self) -> dict[str, Any]:
        """As a peer is asked."""
        ranges = {str(rid): list(found) for rid, found in self.ranges.items()}
        if self.entries is None:
            return {"ranges": ranges, "entries": False}
        after, upto = self.entries
        part = {
            "after": None if after == FIRST_KEY else _point(after),
            "upto": None if upto is None else _point(upto),
        }
        return {"ranges": ranges, "entries": True, "entries_range": part}


def compute_digests(conn: Connection, wanted: Wanted, *, should_stop: Callable[[], bool]) -> DigestsRead:
    """Count and hash, and look at the vectors before and after.

    Raises: DigestStopped; ReplicaInitializing; TargetError, ReplicationRefused.
    """
    require_readable(conn)
    before = read_vectors(conn)
    changes = {
        rid: digest_changes(conn, rid, after=after, upto=upto, should_stop=should_stop)
        for rid, (after, upto) in wanted.ranges.items()
    }
    entries = None
    if wanted.entries is not None:
        after, upto = wanted.entries
        entries = digest_entries(conn, after=after, upto=upto, should_stop=should_stop)
    behind = read_vectors(conn)
    require_readable(conn)  # a total initialisation may have emptied it meanwhile

    def shown(rid: int, found: Digest) -> RangeDigestRead:
        after, upto = wanted.ranges[rid]
        purged, known = behind.purged.get(rid), before.ruv.get(rid)
        is_whole = (purged is None or (after is not None and purged <= after)) and known is not None
        return RangeDigestRead(
            count=found.count, checksum=found.checksum, whole=is_whole and known is not None and upto <= known
        )

    return DigestsRead(
        rids={str(rid): shown(rid, found) for rid, found in sorted(changes.items())},
        entries=None
        if entries is None
        else EntriesDigestRead(
            count=entries.count, checksum=entries.checksum, quiet=before.ruv == behind.ruv
        ),
        ruv=shown_vector(behind.ruv),
        purged=shown_vector(behind.purged),
    )


def _point(place: EntryKey) -> dict[str, str]:
    return {"database": b64encode(place[0]).decode(), "key": b64encode(place[1]).decode()}
