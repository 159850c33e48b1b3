"""Reads one replica over LDAP: its RUV, its agreements, its clock. Five searches, nothing is written.

Sources: facts/replication-session, sections 2, 3, 12, 13; answers of 389-ds-base 2.3.1 in tests/data/ds389.
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from spark.formats.ruv import Ruv, RuvInvalid, parse_rid, parse_ruv
from spark.replication.ds389.records import Agreement, Generator, Reading, Role
from spark.targets.errors import TargetError
from spark.targets.ldap.connection import Entry, escaped

TREE: Final = "cn=mapping tree,cn=config"
BACKENDS: Final = "cn=ldbm database,cn=plugins,cn=config"
READ_ONLY_RID: Final = 65_535
"""What 389 gives to replicas that take no changes of their own."""
REPLICA: Final = (
    "nsDS5ReplicaId",
    "nsDS5ReplicaType",
    "nsDS5Flags",
    "nsDS5ReplicaName",
    "nsds50ruv",
    "nsState",
    "nsds5ReplicaChangeCount",
    "nsds5agmtmaxcsn",
)
AGREEMENT: Final = (
    "cn",
    "nsDS5ReplicaHost",
    "nsDS5ReplicaPort",
    "nsds5ReplicaEnabled",
    "nsds5replicaLastUpdateStart",
    "nsds5replicaLastUpdateEnd",
    "nsds5replicaLastUpdateStatus",
    "nsds5replicaLastUpdateStatusJSON",
    "nsds5replicaUpdateInProgress",
    "nsds5replicaChangesSentSinceStartup",
    "nsds5replicaLastInitStatus",
    "nsds5replicaLastInitStatusJSON",
    "nsds5BeginReplicaRefresh",
)
"""By name: an agreement has a password as well, which is never asked for."""
_GENERATOR: Final = struct.Struct("<H6xqqqH6x")
_AGE: Final = re.compile(rb"([0-9]{1,12})([smhdw]?)", re.IGNORECASE)
_SECONDS: Final = {b"": 1, b"s": 1, b"m": 60, b"h": 3600, b"d": 86_400, b"w": 604_800}
_NEVER: Final = "19700101000000Z"
_CODE: Final = re.compile(r"Error \((-?[0-9]{1,9})\)")
DIGITS_MAX: Final = 18


class ReplicaNotShown(TargetError):
    """There is no replica of the suffix, or the account may not read `cn=config`."""

    code = "DS389_REPLICA_NOT_SHOWN"


class ReplicaUnreadable(TargetError):
    """What the server tells of its replica cannot be understood."""

    code = "DS389_ANSWER_UNREADABLE"


class Searching(Protocol):
    """What is asked: a connection, or answers that were recorded."""

    def search(
        self, base: str, condition: str, attributes: Any, *, is_base: bool = False
    ) -> list[tuple[str, Entry]]: ...


@dataclass(frozen=True, slots=True)
class _Values:
    """The attributes of an entry, as texts."""

    entry: Entry

    def text(self, name: str) -> str:
        found = self.entry.get(name.lower(), ())
        return found[0].decode(errors="replace") if found else ""

    def texts(self, name: str) -> list[str]:
        return [value.decode(errors="replace") for value in self.entry.get(name.lower(), ())]

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None


def read_replica(directory: Searching, suffix: str, *, now: Callable[[], datetime]) -> Reading:
    """Read the replica of a suffix.

    Args:
        now: our clock.
    Raises: ReplicaNotShown, ReplicaUnreadable, TargetError.
    """
    condition = f"(&(objectClass=nsds5replica)(nsDS5ReplicaRoot={escaped(suffix)}))"
    found = directory.search(TREE, condition, REPLICA)
    at = now()
    if not found or "nsds5replicaid" not in found[0][1]:
        raise ReplicaNotShown(
            f"the server shows no replica of {suffix}: there is none, or bind_dn may not read cn=config"
        )
    dn, values = found[0][0], _Values(found[0][1])
    clock = _clock(directory)
    consumers = _consumer_rids(values.texts("nsds5agmtmaxcsn"))
    agreements = [
        _agreement(_Values(entry), consumers)
        for _, entry in directory.search(dn, "(objectClass=nsds5replicationagreement)", AGREEMENT)
    ]
    rid = values.number("nsDS5ReplicaId")
    if rid is None or rid > READ_ONLY_RID:
        raise ReplicaUnreadable(f"nsDS5ReplicaId is no number from 1 to {READ_ONLY_RID}")
    return Reading(
        rid=rid,
        role=_role(values, rid),
        identity=f"ds389:{values.text('nsDS5ReplicaName')[:100]}",
        version=_version(directory),
        at=at,
        clock=clock,
        ruv=_ruv(values.texts("nsds50ruv")),
        agreements=tuple(sorted(agreements, key=lambda each: each.name)),
        generator=_generator(values.entry.get("nsstate", [])),
        changelog_entries=values.number("nsds5ReplicaChangeCount"),
        changelog_age_s=_changelog_age(directory, suffix),
    )


def _role(values: _Values, rid: int) -> Role:
    if values.text("nsDS5ReplicaType") == "3" and rid != READ_ONLY_RID:
        return Role.SUPPLIER
    return Role.HUB if values.text("nsDS5Flags") == "1" else Role.CONSUMER


def _ruv(lines: list[str]) -> Ruv:
    try:
        return parse_ruv([line.strip() for line in lines])
    except RuvInvalid as error:
        raise ReplicaUnreadable(f"nsds50ruv, line {error.line}: {error.detail}") from error


def _version(directory: Searching) -> str:
    for _, entry in directory.search("", "(objectClass=*)", ["vendorVersion"], is_base=True):
        return _Values(entry).text("vendorVersion")[:200]
    return ""


def _clock(directory: Searching) -> datetime | None:
    for _, entry in directory.search("cn=monitor", "(objectClass=*)", ["currentTime"], is_base=True):
        return _instant(_Values(entry).text("currentTime"))
    return None


def _instant(text: str) -> datetime | None:
    if not text or text == _NEVER:
        return None
    try:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None


def _generator(values: list[bytes]) -> Generator | None:
    """Of a 64-bit server with the lower byte first, which all of today's are; another form tells nothing."""
    if not values or len(values[0]) != _GENERATOR.size:
        return None
    rid, sampled, local, remote, _ = _GENERATOR.unpack(values[0])
    if not 0 < sampled < 1 << 33:
        return None
    return Generator(rid=rid, sampled_s=sampled, local_offset_s=local, remote_offset_s=remote)


def _changelog_age(directory: Searching, suffix: str) -> int | None:
    """How long changes stay in the changelog of the suffix's backend."""
    condition = f"(&(objectClass=nsBackendInstance)(nsslapd-suffix={escaped(suffix)}))"
    for dn, _ in directory.search(BACKENDS, condition, ["cn"]):
        for _, entry in directory.search(
            f"cn=changelog,{dn}", "(objectClass=*)", ["nsslapd-changelogmaxage"], is_base=True
        ):
            found = _AGE.fullmatch(_Values(entry).text("nsslapd-changelogmaxage").encode())
            seconds = 0 if found is None else int(found.group(1)) * _SECONDS[found.group(2).lower()]
            return seconds or None
    return None


def _consumer_rids(lines: list[str]) -> dict[str, int]:
    """`suffix;agreement;host;port;rid;maxcsn`, or `...;unavailable` where the consumer's RID is not known."""
    found: dict[str, int] = {}
    for line in lines:
        parts = line.split(";")
        if len(parts) < 5:
            continue
        try:
            found[parts[1]] = parse_rid(parts[4])
        except ValueError:
            continue
    return found


def _agreement(values: _Values, consumers: Mapping[str, int]) -> Agreement:
    name = values.text("cn")
    state, code, status = _status(values, "nsds5replicaLastUpdateStatus")
    init_state, _, init_status = _status(values, "nsds5replicaLastInitStatus")
    sent, skipped = _sent(values.text("nsds5replicaChangesSentSinceStartup"))
    return Agreement(
        name=name,
        host=values.text("nsDS5ReplicaHost").strip("[]").lower(),
        port=values.number("nsDS5ReplicaPort") or 389,
        consumer_rid=consumers.get(name),
        is_enabled=values.text("nsds5ReplicaEnabled").lower() != "off",
        is_updating=values.text("nsds5replicaUpdateInProgress").upper() == "TRUE",
        state=state,
        repl_rc=code,
        status=status,
        init_state=init_state,
        init_status=init_status,
        is_initialising=bool(values.text("nsds5BeginReplicaRefresh")),
        started_at=_instant(values.text("nsds5replicaLastUpdateStart")),
        ended_at=_instant(values.text("nsds5replicaLastUpdateEnd")),
        sent=sent,
        skipped=skipped,
    )


def _status(values: _Values, name: str) -> tuple[str, int | None, str]:
    """(state, code, words), by JSON where the server writes it, else by the text."""
    text = values.text(name)
    try:
        told = json.loads(values.text(f"{name}JSON"))
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict) and told.get("state") in ("green", "amber", "red"):
        code = str(told.get("repl_rc", ""))
        number = int(code) if re.fullmatch(r"-?[0-9]{1,9}", code) else None
        return str(told["state"]), number, _words(told.get("message", text))
    found = _CODE.search(text)
    if found is None:
        return "", None, text[:500]
    number = int(found.group(1))
    return {0: "green", 1: "amber", 18: "amber"}.get(number, "red"), number, text[:500]


def _words(value: Any) -> str:
    """A text of JSON, which may have halves of characters: nothing could be made of them again."""
    return str(value)[:500].encode(errors="replace").decode()


def _sent(text: str) -> tuple[int, int]:
    """`1:205/0 3:202/0 `: what consumers took, and what they refused or did not need."""
    pairs = re.findall(r"\b[0-9]{1,5}:([0-9]{1,15})/([0-9]{1,15})\b", text)
    return sum(int(sent) for sent, _ in pairs), sum(int(skipped) for _, skipped in pairs)
