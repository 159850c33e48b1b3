"""`lethe_certificates`: what a certificate says is shown where its signature holds, and nowhere else."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from lethe_client.certificates import ALGORITHM, FORMAT, CertificateInvalid, key_id_of, signed_bytes
from lethe_spark import CertificateSource, OptionInvalid

from tests.spark.sources.conftest import Reading

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
FINGERPRINT = key_id_of(KEY.public_key().public_bytes_raw())


def certificate(number: int, **fields: Any) -> dict[str, Any]:
    """What a certificate says."""
    return {
        "format": FORMAT,
        "store": f"store-{number}",
        "cycle": {
            "id": f"cyc_{number}",
            "state": "COMPLETE",
            "started_at": "2026-11-25T10:00:00Z",
            "ended_at": None,
        },
        "environment": {"path": "/var/lib/ledger"},
        "totals": {
            "files": 2,
            "files_erased_and_proved": 1,
            "entries_erased_and_proved": 30 + number,
            "files_remaining": 1,
        },
        "stays_readable": [{"code": "TAIL_OF_LOG"}],
        "files": [
            {"name": "00000000.jdb", "state": "ERASED", "proved": True, "bytes": 5, "sha256_after": "ab"},
            {"name": "00000001.jdb", "state": "NOT_ERASED", "proved": False, "bytes": 6},
        ],
    } | fields


def write(folder: Path, number: int, said: dict[str, Any], *, key: Ed25519PrivateKey = KEY) -> Path:
    """A signed file."""
    public = key.public_key().public_bytes_raw()
    signature = {
        "algorithm": ALGORITHM,
        "key_id": key_id_of(public),
        "public_key": base64.b64encode(public).decode(),
        "value": base64.b64encode(key.sign(signed_bytes(said))).decode(),
    }
    path = folder / f"{number}.json"
    path.write_text(json.dumps({"certificate": said, "signature": signature}))
    return path


def rows_of(path: Path, **options: str) -> list[dict[str, Any]]:
    """The rows of the source, without Spark."""
    source = CertificateSource({"path": str(path), **options})
    names = [each.split()[0] for each in source.schema().split(", ")]
    reader = source.reader(None)
    found = [row for part in reader.partitions() for row in reader.read(part)]
    return [dict(zip(names, row, strict=True)) for row in found]  # type: ignore[arg-type]


def test_small_certificates_are_read_together_and_one_that_is_gone_spoils_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [write(tmp_path, number, certificate(number)) for number in range(3)]
    reader = CertificateSource({"path": str(tmp_path)}).reader(None)
    [together] = reader.partitions()
    rows = list(reader.read(together))
    monkeypatch.setattr("lethe_spark.certificates.PART_BYTES", 1)
    single = reader.partitions()
    assert len(single) == 3
    assert [row for part in single for row in reader.read(part)] == rows
    paths[1].unlink()
    found = list(reader.read(together))
    assert [row[:2] for row in found] == [(str(path), path != paths[1]) for path in paths]
    assert "cannot be read" in str(found[1][2])
    assert [found[0], found[2]] == [rows[0], rows[2]]


def test_a_certificate_is_a_row_and_its_files_are_rows(reading: Reading, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path, number, certificate(number))
    rows = rows_of(tmp_path, trusted=FINGERPRINT)
    assert [row["entries_erased_and_proved"] for row in rows] == [30, 31, 32]
    first = rows[0]
    assert (first["valid"], first["problem"], first["key_id"]) == (True, None, FINGERPRINT)
    assert (first["key_was_named"], first["stays_readable"]) == (True, ["TAIL_OF_LOG"])
    assert first["started_at"] == datetime(2026, 11, 25, 10, tzinfo=UTC)
    assert json.loads(first["certificate"]) == certificate(0)
    files = rows_of(tmp_path, view="files")
    assert [(row["store"], row["name"], row["proved"], row["bytes"]) for row in files] == [
        (f"store-{number}", name, proved, size)
        for number in range(3)
        for name, proved, size in (("00000000.jdb", True, 5), ("00000001.jdb", False, 6))
    ]
    assert {row["key_was_named"] for row in files} == {False}
    for view, wanted in (("certificates", rows_of(tmp_path)), ("files", files)):
        found = reading.rows("lethe_certificates", path=tmp_path, view=view)
        for row in (*found, *wanted):
            row.pop("started_at", None)
        assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_what_an_invalid_certificate_says_is_not_shown(tmp_path: Path) -> None:
    changed = write(tmp_path, 0, certificate(0))
    changed.write_text(changed.read_text().replace("COMPLETE", "ABORTED"))
    write(tmp_path, 1, certificate(1), key=Ed25519PrivateKey.from_private_bytes(bytes(32)))
    write(tmp_path, 2, {"format": FORMAT})
    (tmp_path / "3.json").write_text("{")
    rows = rows_of(tmp_path, trusted=FINGERPRINT)
    assert [row["valid"] for row in rows] == [False] * 4
    for row, words in zip(
        rows,
        ("is not as it was signed", "none of the keys", "says not what its format", "no certificate"),
        strict=True,
    ):
        assert words in row["problem"]
        assert all(row[name] is None for name in row if name not in ("file", "valid", "problem"))
    with pytest.raises(CertificateInvalid, match=r"0\.json: the signature does not hold"):
        rows_of(tmp_path, view="files")


SAID = certificate(1)


@pytest.mark.parametrize(
    "fields",
    [
        {"totals": SAID["totals"] | {"files": 2**63}},
        {"totals": SAID["totals"] | {"files_remaining": "0"}},
        {"cycle": SAID["cycle"] | {"started_at": "0001-01-01T00:00:00+14:00"}},
        {"cycle": SAID["cycle"] | {"ended_at": "2026-11-25T10:00:00"}},
        {"store": ["a"]},
        {"stays_readable": {}},
    ],
)
def test_what_a_stranger_signs_spoils_no_other_row(tmp_path: Path, fields: dict[str, Any]) -> None:
    """One number too large failed the query, and named no file."""
    write(tmp_path, 1, SAID)
    write(tmp_path, 2, SAID | fields, key=Ed25519PrivateKey.from_private_bytes(bytes(32)))
    rows = rows_of(tmp_path)
    assert [row["valid"] for row in rows] == [True, False]
    assert "says not what its format asks for" in rows[1]["problem"]


@pytest.mark.parametrize("fields", [{"proved": "false"}, {"bytes": 2**63}, {"proved": None}])
def test_a_file_is_proved_only_where_the_certificate_says_true(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    write(tmp_path, 1, SAID | {"files": [SAID["files"][1] | fields]})
    with pytest.raises(CertificateInvalid, match=r"1\.json: .* says not what its format asks for"):
        rows_of(tmp_path, view="files")


def test_options_that_are_wrong_are_refused_by_name(tmp_path: Path) -> None:
    for options, words in (
        ({"path": str(tmp_path / "none")}, "there is no"),
        ({"path": str(tmp_path), "trusted": "ed25519:ab"}, "which is not ed25519: and 64 digits"),
        ({"path": str(tmp_path), "view": "rows"}, "give one of certificates, files"),
    ):
        with pytest.raises(OptionInvalid, match=words):
            CertificateSource(options).schema()
    with pytest.raises(OptionInvalid, match=r"has 0 files \*\.json"):
        rows_of(tmp_path)
