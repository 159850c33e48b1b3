"""Certificates: what is signed, and that every change of it is noticed."""

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from lethe_client.certificates import (
    CertificateInvalid,
    canonical,
    key_id_of,
    signed_bytes,
    verify_certificate,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
CERTIFICATE = {
    "format": "lethe-erasure-certificate/1",
    "store": "orders-je",
    "files": [{"name": "00000000.jdb", "sha256_after": "ab" * 32, "reasons": {"SUPERSEDED": [12, 3456]}}],
    "remark": "Löschung, vollständig",
}


def document(certificate: dict[str, Any], *, key: Ed25519PrivateKey = KEY, **changed: str) -> bytes:
    public = key.public_key().public_bytes_raw()
    signature = {
        "algorithm": "Ed25519",
        "key_id": key_id_of(public),
        "public_key": base64.b64encode(public).decode(),
        "value": base64.b64encode(key.sign(signed_bytes(certificate))).decode(),
    }
    return json.dumps({"certificate": certificate, "signature": signature | changed}).encode()


def test_signed_document_is_verified_in_any_layout() -> None:
    data = document(CERTIFICATE)
    found = verify_certificate(data)
    assert (found.certificate, found.key_id, found.is_pinned) == (CERTIFICATE, key_id_of(PUBLIC), False)
    laid_out = json.dumps(json.loads(data), indent=4, sort_keys=True, ensure_ascii=False).encode()
    assert verify_certificate(laid_out, trusted=frozenset({key_id_of(PUBLIC)})).is_pinned


def test_canonical_form_is_one_for_all_layouts() -> None:
    assert canonical({"b": [1, None, True], "a": "ü"}) == '{"a":"ü","b":[1,null,true]}'.encode()


@given(st.data())
def test_single_bit_that_changes_is_noticed(data: st.DataObject) -> None:
    good = document(CERTIFICATE)
    at = data.draw(st.integers(0, len(good) * 8 - 1))
    bad = bytearray(good)
    bad[at // 8] ^= 1 << at % 8
    try:
        found = verify_certificate(bytes(bad), trusted=frozenset({key_id_of(PUBLIC)}))
    except CertificateInvalid:
        return
    # Only a blank between two members can have become another blank.
    assert found.certificate == CERTIFICATE
    assert good[at // 8 : at // 8 + 1].isspace()
    assert bytes(bad[at // 8 : at // 8 + 1]).isspace()


@given(st.integers(0, 10_000))
def test_document_that_is_cut_off_is_refused(length: int) -> None:
    good = document(CERTIFICATE)
    with pytest.raises(CertificateInvalid):
        verify_certificate(good[: min(length, len(good) - 1)])


def test_another_key_is_refused_where_one_is_named() -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    forged = document(CERTIFICATE, key=other)
    assert not verify_certificate(forged).is_pinned
    with pytest.raises(CertificateInvalid, match="none of the keys"):
        verify_certificate(forged, trusted=frozenset({key_id_of(PUBLIC)}))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"algorithm": "none"}, "only Ed25519"),
        ({"key_id": key_id_of(bytes(32))}, "fingerprint"),
        ({"public_key": base64.b64encode(bytes(32)).decode()}, "fingerprint"),
        ({"public_key": "AAAA"}, "32 bytes"),
        ({"value": "AAAA"}, "64 bytes"),
        ({"value": "%%"}, "no base64"),
        ({"value": base64.b64encode(bytes(64)).decode()}, "does not hold"),
        ({"more": "x"}, "signature"),
    ],
)
def test_signature_that_is_not_one_is_refused(changed: dict[str, str], text: str) -> None:
    with pytest.raises(CertificateInvalid, match=text):
        verify_certificate(document(CERTIFICATE, **changed))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"certificate":{},"certificate":{},"signature":{}}',
        b"1.5",
    ],
)
def test_something_else_is_refused(data: bytes) -> None:
    with pytest.raises(CertificateInvalid):
        verify_certificate(data)


def test_number_with_a_fraction_is_not_signed() -> None:
    with pytest.raises(ValueError, match="fraction"):
        canonical({"a": [{"b": 1.5}]})
    with pytest.raises(CertificateInvalid, match="fraction"):
        verify_certificate(b'{"certificate":{"a":1.0},"signature":{}}')


def test_unknown_format_is_refused() -> None:
    with pytest.raises(CertificateInvalid, match="format"):
        verify_certificate(document(CERTIFICATE | {"format": "lethe-erasure-certificate/2"}))
