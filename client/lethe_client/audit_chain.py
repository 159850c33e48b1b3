"""The chain of audit rows: how a row is hashed, and the check that needs no service.

A row holds its place (`seq`, from 1 on, without gaps), the hash of the row before it and its own. What is
hashed is the prefix `CONTEXT` and then the row without its own hash as JSON: ASCII, keys sorted, no white
space, the time in UTC with six digits. A file of an export has one JSON document a line: a head line, the
rows by their places, and the chain's head at that time, signed by the service.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lethe_client.certificates import CertificateInvalid, canonical, decoded, key_id_of

FORMAT: Final = "lethe-audit/1"
HEAD_FORMAT: Final = "lethe-audit-head/1"
CONTEXT: Final = b"lethe audit row 1\n"
HEAD_CONTEXT: Final = b"lethe audit head 1\n"
GENESIS: Final = "0" * 64
"""What stands for the row before the first."""
LINE_BYTES_MAX: Final = 16 * 1024 * 1024
PROBLEMS_MAX: Final = 100
FORGET: Final = "audit.forget"
FIELDS: Final = (
    "seq",
    "id",
    "at",
    "token_id",
    "actor",
    "action",
    "subject_type",
    "subject_id",
    "store",
    "request_id",
    "detail",
    "previous_hash",
)


class FileInvalid(Exception):
    """It is no export of audit rows."""


@dataclass(frozen=True)
class Link:
    """A place in the chain and the hash of the row there."""

    seq: int
    hash: str


FIRST: Final = Link(0, GENESIS)


@dataclass(frozen=True)
class Fault:
    """What does not hold: a code, the place, one sentence."""

    code: str
    seq: int | None
    detail: str


def instant_text(at: datetime | str) -> str:
    """A time as it is hashed."""
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def row_hash(row: Mapping[str, Any]) -> str:
    """The hash that a row must have; fields beyond FIELDS are not looked at.

    Raises: KeyError, ValueError, TypeError: it is no audit row.
    """
    hashed = {name: row[name] for name in FIELDS} | {"at": instant_text(row["at"])}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(CONTEXT + text.encode("ascii")).hexdigest()


@dataclass
class ChainCheck:
    """Rows by their places, one after the other; holds one link and the first faults.

    Attributes:
        link: the row that was looked at last, as it says of itself.
    """

    link: Link = FIRST
    checked: int = 0
    faults: list[Fault] = field(default_factory=list)
    more_faults: int = 0

    def blame(self, code: str, seq: int | None, detail: str) -> None:
        """Note a fault; of very many only the number."""
        if len(self.faults) < PROBLEMS_MAX:
            self.faults.append(Fault(code, seq, detail))
        else:
            self.more_faults += 1

    def take(self, row: Mapping[str, Any]) -> None:
        """Look at the next row."""
        seq, said = row.get("seq"), row.get("hash")
        if not isinstance(seq, int) or not isinstance(said, str):
            self.blame("ROW_UNREADABLE", None, f"row {str(row.get('id'))[:60]} has no place in the chain")
            return
        self.checked += 1
        try:
            is_as_written = row_hash(row) == said
        except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
            is_as_written = False
        if not is_as_written:
            self.blame("ROW_CHANGED", seq, f"row {seq} ({str(row.get('id'))[:60]}) is not as it was written")
        if seq > self.link.seq + 1:
            first, last = self.link.seq + 1, seq - 1
            self.blame("ROWS_REMOVED", first, f"rows {first} to {last} are missing")
        elif seq <= self.link.seq:
            self.blame("ROW_INSERTED", seq, f"row {seq} stands after row {self.link.seq}")
        elif row.get("previous_hash") != self.link.hash:
            self.blame("CHAIN_BROKEN", seq, f"row {seq} does not follow the row before it")
        self.link = Link(seq, said)

    def end(self, head: Link) -> None:
        """Compare the last row with the head of the chain."""
        if self.link.seq < head.seq:
            first = self.link.seq + 1
            self.blame("ROWS_REMOVED", first, f"rows {first} to {head.seq} are missing at the end")
        elif self.link.seq > head.seq:
            self.blame("ROW_INSERTED", head.seq + 1, f"rows stand behind the head of the chain, {head.seq}")
        elif self.link.hash != head.hash:
            self.blame("HEAD_DIFFERS", head.seq, f"row {head.seq} is not the one that the head names")


def head_bytes(head: Mapping[str, Any]) -> bytes:
    """What the signature of a head is of."""
    return HEAD_CONTEXT + canonical(head)


@dataclass(frozen=True)
class VerifiedExport:
    """What an export says, and what does not hold of it.

    Attributes:
        key_id: whose signature the head has; None: it has none that holds.
        is_pinned: the key is one that the caller named.
    """

    anchor: Link
    head: Link
    checked: int
    faults: list[Fault]
    more_faults: int
    key_id: str | None
    is_pinned: bool
    exported_at: str


def verify_export(lines: Iterable[bytes], *, trusted: frozenset[str] = frozenset()) -> VerifiedExport:
    """Check the lines of an export, one at a time.

    Args:
        trusted: fingerprints of the keys that may have signed its head; empty: any.
    Raises: FileInvalid: it is none.
    """
    check: ChainCheck | None = None
    anchor, tail, forgotten = FIRST, None, FIRST
    for number, line in enumerate(lines, 1):
        if tail is not None:
            raise FileInvalid(f"line {number}: something follows the signed head, which is the last line")
        document = _document(line, number)
        if check is None:
            if document.get("format") != FORMAT:
                raise FileInvalid(f"line 1 is not the head line of {FORMAT}")
            anchor = _link(document.get("anchor"), number)
            check = ChainCheck(link=anchor)
        elif "head" in document:
            tail = document
        else:
            check.take(document)
            forgotten = (
                forgotten_of(document.get("detail")) if document.get("action") == FORGET else forgotten
            )
    if check is None:
        raise FileInvalid("it is empty")
    if tail is None:
        check.blame(
            "FILE_CUT", None, "the signed head is missing: the file was cut, or its export did not end"
        )
        return VerifiedExport(
            anchor, check.link, check.checked, check.faults, check.more_faults, None, False, ""
        )
    said = tail["head"] if isinstance(tail["head"], dict) else {}
    head = _link(said, None)
    check.end(head)
    check_anchor(check, anchor, forgotten)
    key_id = _signed_by(tail, trusted, check)
    exported_at = str(said.get("at", ""))
    return VerifiedExport(
        anchor,
        head,
        check.checked,
        check.faults,
        check.more_faults,
        key_id,
        bool(trusted) and key_id is not None,
        exported_at,
    )


def check_anchor(check: ChainCheck, anchor: Link, forgotten: Link) -> None:
    """Rows before the anchor were forgotten: the newest row that tells of forgetting must name it."""
    if anchor != forgotten:
        detail = f"the chain begins after row {anchor.seq}, but its newest {FORGET} row names {forgotten.seq}"
        check.blame("ROWS_REMOVED", 1, detail)


def forgotten_of(detail: object) -> Link:
    """Up to where rows were forgotten, as the detail of an `audit.forget` row says."""
    found = detail if isinstance(detail, dict) else {}
    seq = found.get("through_seq")
    return Link(seq if isinstance(seq, int) else -1, str(found.get("hash")))


def _document(line: bytes, number: int) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise FileInvalid(f"line {number} is longer than {LINE_BYTES_MAX} bytes")
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileInvalid(f"line {number} is no JSON") from error
    if not isinstance(found, dict):
        raise FileInvalid(f"line {number} is no JSON object")
    return found


def _link(found: object, number: int | None) -> Link:
    if isinstance(found, dict) and isinstance(found.get("seq"), int) and isinstance(found.get("hash"), str):
        return Link(found["seq"], found["hash"])
    raise FileInvalid("a place in the chain is `seq` and `hash`" + (f" (line {number})" if number else ""))


def _signed_by(tail: Mapping[str, Any], trusted: frozenset[str], check: ChainCheck) -> str | None:
    head, signature = tail["head"], tail.get("signature")
    try:
        if not isinstance(signature, dict):
            raise CertificateInvalid("it has no signature")
        public_key = decoded(signature, "public_key", length=32)
        value = decoded(signature, "value", length=64)
        key_id = key_id_of(public_key)
        Ed25519PublicKey.from_public_bytes(public_key).verify(value, head_bytes(head))
    except (CertificateInvalid, InvalidSignature, ValueError, KeyError, TypeError) as error:
        check.blame("SIGNATURE_INVALID", None, f"the signature of the head does not hold ({error})".strip())
        return None
    if trusted and key_id not in trusted:
        check.blame("KEY_NOT_TRUSTED", None, f"signed with {key_id}, which is none of the keys named")
        return None
    return key_id
