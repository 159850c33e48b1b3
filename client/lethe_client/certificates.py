"""Certificates of erasure: canonical bytes, fingerprints, and the check that needs no service.

A certificate is a JSON document `{"certificate": {...}, "signature": {...}}`. What is signed is the prefix
`CONTEXT` and then the canonical form of `certificate`: UTF-8, keys sorted, no white space, no fractions. How
a file is laid out does not matter, what it says does.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ALGORITHM: Final = "Ed25519"
CONTEXT: Final = b"lethe erasure certificate 1\n"
FORMAT: Final = "lethe-erasure-certificate/1"
DOCUMENT_BYTES_MAX: Final = 512 * 1024 * 1024
SIGNATURE_FIELDS: Final = frozenset({"algorithm", "key_id", "public_key", "value"})


class CertificateInvalid(Exception):
    """The document is no certificate, or not as it was signed."""


@dataclass(frozen=True)
class VerifiedCertificate:
    """A document whose signature holds.

    Attributes:
        key_id: fingerprint of the key that signed it.
        is_pinned: the key is one that the caller named; else it is only the one that the document brings.
    """

    certificate: Mapping[str, Any]
    key_id: str
    is_pinned: bool


def canonical(value: Mapping[str, Any]) -> bytes:
    """The one form of a document that is signed.

    Raises: ValueError: it holds a number with a fraction, or something that JSON has not.
    """
    _refuse_fractions(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "strict")


def _refuse_fractions(value: object) -> None:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, float):
            raise ValueError("a certificate has no number with a fraction: programs print them differently")
        if isinstance(each, Mapping):
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            pending.extend(each)


def key_id_of(public_key: bytes) -> str:
    """The fingerprint of a raw public key (32 bytes)."""
    return "ed25519:" + hashlib.sha256(public_key).hexdigest()


def signed_bytes(certificate: Mapping[str, Any]) -> bytes:
    """What the signature is of."""
    return CONTEXT + canonical(certificate)


def verify_certificate(data: bytes, *, trusted: frozenset[str] = frozenset()) -> VerifiedCertificate:
    """Check a certificate's signature.

    Args:
        data: the document as a file has it.
        trusted: fingerprints of the keys that may have signed it; empty: any, and `is_pinned` says so.
    Raises: CertificateInvalid: a sentence says what is wrong.
    """
    document = _parse(data)
    certificate, signature = document["certificate"], document["signature"]
    public_key = decoded(signature, "public_key", length=32)
    value = decoded(signature, "value", length=64)
    if signature["algorithm"] != ALGORITHM:
        raise CertificateInvalid(f"signed by {str(signature['algorithm'])[:40]!r}; only {ALGORITHM} is known")
    key_id = key_id_of(public_key)
    if signature["key_id"] != key_id:
        raise CertificateInvalid("the fingerprint in the document is not that of its key")
    if trusted and key_id not in trusted:
        raise CertificateInvalid(f"signed with {key_id}, which is none of the keys that were named")
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(value, signed_bytes(certificate))
    except (InvalidSignature, ValueError) as error:
        raise CertificateInvalid(
            "the signature does not hold: the document is not as it was signed"
        ) from error
    if certificate.get("format") != FORMAT:
        raise CertificateInvalid(f"a format that is not known: {str(certificate.get('format'))[:60]!r}")
    return VerifiedCertificate(certificate, key_id, bool(trusted))


def _parse(data: bytes) -> dict[str, Any]:
    if len(data) > DOCUMENT_BYTES_MAX:
        raise CertificateInvalid(f"larger than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_float=_no_fraction)
    except (ValueError, RecursionError) as error:
        raise CertificateInvalid(f"no certificate: {str(error)[:200]}") from error
    if not isinstance(document, dict) or set(document) != {"certificate", "signature"}:
        raise CertificateInvalid("no certificate: it has not just `certificate` and `signature`")
    signature = document["signature"]
    if not isinstance(document["certificate"], dict) or not isinstance(signature, dict):
        raise CertificateInvalid("no certificate: `certificate` and `signature` are objects")
    if set(signature) != SIGNATURE_FIELDS or not all(isinstance(each, str) for each in signature.values()):
        raise CertificateInvalid(f"no certificate: `signature` has {', '.join(sorted(SIGNATURE_FIELDS))}")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_fraction(_text: str) -> float:
    raise ValueError("a number with a fraction")


def decoded(signature: Mapping[str, str], name: str, *, length: int) -> bytes:
    """Bytes of a signature's field. Raises: CertificateInvalid."""
    text = signature[name]
    try:
        value = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CertificateInvalid(f"`{name}` is no base64") from error
    if len(value) != length or base64.b64encode(value).decode() != text:
        raise CertificateInvalid(f"`{name}` is not {length} bytes in base64")
    return value
