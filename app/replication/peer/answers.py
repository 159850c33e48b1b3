"""What a consumer answers its supplier, read and checked; and what it is when it does not answer so.

PeerError
 +- PeerUnanswered      no connection, no answer in time, or one that broke off
 |   +- PeerTooSlow     it had begun, perhaps; the time of the whole request was over
 |   +- PeerAnswerDamaged   one that does not match its digest
 +- PeerCertificateInvalid  it is not known to be who it should be
 +- PeerRefused         a problem, with its status and code
 +- PeerAnswerInvalid   something else than this protocol's answer
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from spark.formats.csn import Csn, CsnInvalid
from spark.formats.part import Part
from spark.formats.ruv import parse_rid
from spark.replication.proofs.history_points import Point, Where
from spark.replication.proofs.values import History

DETAIL_MAX_CHARS: Final = 500
WORD_MAX_CHARS: Final = 64
COUNT_MAX: Final = 2**53 - 1
"""What every reader of JSON takes exactly; sums of such counts fit into a column and a float."""
_CODE: Final = re.compile(rf"[A-Z][A-Z0-9_]{{0,{WORD_MAX_CHARS - 1}}}")


class PeerError(Exception):
    """The consumer did not do what it was asked for, or nobody knows."""

    code = "PEER_ERROR"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = clean(detail)


class PeerUnanswered(PeerError):
    """No answer came: the request may have been carried out all the same."""

    code = "PEER_UNANSWERED"


class PeerHostRefused(PeerError):
    """The consumer's host leads, now, to no address that is allowed: nothing was sent."""

    code = "HOST_NOT_ALLOWED"


class PeerTooSlow(PeerUnanswered):
    """The time of the whole request was over, whatever trickled in."""

    code = "PEER_TOO_SLOW"


class PeerCertificateInvalid(PeerError):
    """Its certificate is not trusted here: time does not heal that."""

    code = "PEER_CERTIFICATE_INVALID"


class PeerAnswerDamaged(PeerUnanswered):
    """The answer is not the one that was sent: whether the request was carried out nobody knows."""

    code = "PEER_ANSWER_DAMAGED"


class PeerAnswerInvalid(PeerError):
    """The answer is none of this protocol."""

    code = "PEER_ANSWER_INVALID"


class PeerRefused(PeerError):
    """The consumer answered with a problem.

    Attributes:
        facts: the members of the problem document.
    """

    def __init__(
        self, status: int, code: str, detail: str, *, retry_after_s: float | None, facts: Mapping[str, Any]
    ) -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code if _CODE.fullmatch(code) else f"HTTP_{status}"
        self.retry_after_s = retry_after_s
        self.facts = dict(facts)


@dataclass(frozen=True, slots=True)
class PeerReplica:
    """A consumer as it describes itself; `ruv` is None where it has none.

    Attributes:
        capabilities, history: without a session; in one they stand in the answer to acquire.
        points: places of CSNs that were asked for.
        part: which keys it holds; None: all.
    """

    rid: int
    status: str
    generation: str | None
    ruv: Mapping[int, Csn] | None
    purged: Mapping[int, Csn] = field(default_factory=dict)
    capabilities: frozenset[str] = frozenset()
    history: History | None = None
    points: Mapping[int, Point] = field(default_factory=dict)
    part: Part | None = None


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What a consumer takes at once."""

    batch_rows: int
    batch_bytes: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Acquired:
    """A session that a consumer has granted.

    Attributes:
        resume_after: TOTAL: the last entry that was copied already, (database, key).
        is_copied: TOTAL: all entries are there.
        copied: TOTAL: of each replica id the greatest CSN among the entries that it has.
        entries: TOTAL: how many of them it has; None: it does not say.
        buried: TOTAL: up to where tombstones may be missing among them; None: nowhere, or it does not say.
        history: None: the consumer's version proves nothing.
        unproven: replica ids of which it could not compare the histories.
    """

    epoch: int
    expires_at: datetime
    consumer: PeerReplica
    capabilities: frozenset[str]
    limits: PeerLimits
    resume_after: tuple[bytes, bytes] | None = None
    is_copied: bool = False
    copied: Mapping[int, Csn] = field(default_factory=dict)
    entries: int | None = None
    buried: Csn | None = None
    history: History | None = None
    unproven: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the consumer refused."""

    rid: int
    csn: Csn
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The answer to a batch; `ruv` holds what came before it too.

    Attributes:
        extinct: by RID, changes of extinct keys that were applied and show in no entry.
    """

    batch_seq: int
    applied: int
    covered: int
    ruv: Mapping[int, Csn]
    rejected: Sequence[Rejected] = ()
    replayed: bool = False
    extinct: Mapping[int, int] = field(default_factory=dict)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn what an unexpected answer breaks into PeerAnswerInvalid."""
    try:
        yield
    except KeyError as error:
        raise PeerAnswerInvalid(f"{what} lacks {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise PeerAnswerInvalid(f"{what}: {error}") from error


def read_acquired(answer: Mapping[str, Any]) -> Acquired:
    """The answer to acquire.

    Raises: PeerAnswerInvalid.
    """
    with reading("the answer to acquire"):
        total = answer.get("total") or {}
        limits = answer["limits"]
        return Acquired(
            epoch=_whole(answer["epoch"]),
            expires_at=datetime.fromisoformat(answer["expires_at"]),
            consumer=read_replica(answer["consumer"]),
            capabilities=frozenset(map(str, answer.get("capabilities", ()))),
            limits=PeerLimits(
                batch_rows=max(1, _whole(limits["batch_rows"])),
                batch_bytes=max(1, _whole(limits["batch_bytes"])),
                in_flight=max(1, _whole(limits["in_flight"])),
            ),
            resume_after=_position(total.get("resume_after")),
            is_copied=total.get("is_copied") is True,
            copied=read_ruv(total.get("copied") or {}),
            entries=None if total.get("entries") is None else _whole(total["entries"]),
            buried=None if total.get("buried") is None else Csn(total["buried"]),
            history=None if answer.get("history") is None else History.of(answer["history"]),
            unproven=frozenset(_whole(rid) for rid in answer.get("unproven", ())),
        )


def read_acknowledged(answer: Mapping[str, Any]) -> Acknowledged:
    """The answer to a batch.

    Raises: PeerAnswerInvalid.
    """
    with reading("the answer to a batch"):
        return Acknowledged(
            batch_seq=_whole(answer["batch_seq"]),
            applied=_whole(answer["applied"]),
            covered=_whole(answer["covered"]),
            ruv=read_ruv(answer["ruv"]),
            rejected=[_rejected(each) for each in answer.get("rejected", ())],
            replayed=answer.get("replayed") is True,
            extinct={parse_rid(rid): _whole(count) for rid, count in answer.get("extinct", {}).items()},
        )


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise ValueError(f"{value!r:.60} is no count")
    return value


def read_ruv(document: Any) -> dict[int, Csn]:
    """A vector from its JSON form.

    Raises: ValueError: it is none.
    """
    if not isinstance(document, dict):
        raise ValueError("a vector is an object of CSNs by RID")
    found: dict[int, Csn] = {}
    for key, text in document.items():
        rid = parse_rid(key)
        if not isinstance(text, str):
            raise CsnInvalid("a CSN is a text", position=0)
        csn = Csn(text)
        if csn.rid != rid:
            raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
        found[rid] = csn
    return found


def shown_ruv(ruv: Mapping[int, str]) -> dict[str, str]:
    """A vector as JSON has it, by ascending RID."""
    return {str(rid): str(ruv[rid]) for rid in sorted(ruv)}


def read_replica(document: Any) -> PeerReplica:
    """A replica as it describes itself, in acquire and without a session; within `reading`."""
    if not isinstance(document, dict):
        raise ValueError("a replica is an object")
    generation, ruv = document["generation"], document["ruv"]
    if generation is not None:
        generation = str(Csn(generation))
    return PeerReplica(
        rid=_whole(document["rid"]),
        status=clean(str(document["status"]), WORD_MAX_CHARS),
        generation=generation,
        ruv=None if ruv is None else read_ruv(ruv),
        purged=read_ruv(document.get("purged") or {}),
        capabilities=frozenset(map(str, document.get("capabilities", ()))),
        history=None if document.get("history") is None else History.of(document["history"]),
        points={parse_rid(rid): _point(each) for rid, each in (document.get("points") or {}).items()},
        part=None if document.get("part") is None else Part.read(document["part"]),
    )


def _rejected(document: Any) -> Rejected:
    csn = Csn(document["csn"])
    code = str(document["code"])
    if _CODE.fullmatch(code) is None:
        raise ValueError("a code is a word in capitals")
    return Rejected(csn.rid, csn, code, clean(str(document["detail"])))


def _point(document: Any) -> Point:
    chain = document["chain"]
    return Point(Where(document["place"]), None if chain is None else bytes.fromhex(chain))


def _position(document: Any) -> tuple[bytes, bytes] | None:
    if document is None:
        return None
    return b64decode(document["database"], validate=True), b64decode(document["key"], validate=True)


def shown_position(key: tuple[bytes, bytes]) -> dict[str, str]:
    """An entry's place, (database, key), as JSON has it."""
    return {"database": b64encode(key[0]).decode(), "key": b64encode(key[1]).decode()}


def clean(text: str, chars_max: int = DETAIL_MAX_CHARS) -> str:
    """A peer's words as every database and terminal takes them: bounded, and nothing that is not seen."""
    return "".join(char if char.isprintable() else " " for char in text[:chars_max])
