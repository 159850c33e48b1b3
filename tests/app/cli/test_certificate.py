"""`lethe certificate`: fetched byte for byte, and checked without a service or a token."""

import base64
import hashlib
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from lethe_client.certificates import key_id_of, signed_bytes

from app.cli.main import main

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY_ID = key_id_of(KEY.public_key().public_bytes_raw())
OTHER_ID = "ed25519:" + "0" * 64
NAMES = ("00000000.jdb", "00000001.jdb", "00000002.jdb")
CYCLE = "cyc_01m7wyy27paves70w6wtkbqy9h"
URL = f"GET /v1/stores/orders/erasure-cycles/{CYCLE}/certificate"


def content_of(number: int) -> bytes:
    return bytes([number]) * (1000 + number)


def certificate() -> dict[str, object]:
    files = [
        {
            "name": name,
            "state": "ERASED",
            "proved": True,
            "bytes": 1000 + number,
            "sha256_after": hashlib.sha256(content_of(number)).hexdigest(),
        }
        for number, name in enumerate(NAMES)
    ]
    return {
        "format": "lethe-erasure-certificate/1",
        "store": "orders",
        "cycle": {"id": CYCLE, "state": "COMPLETE", "started_at": "2026-11-20T10:00:00Z", "ended_at": None},
        "environment": {"path": "/srv/je/orders"},
        "totals": {
            "files": 4,
            "files_erased_and_proved": 3,
            "entries_erased_and_proved": 12,
            "files_remaining": 0,
        },
        "files": [*files, {"name": "00000003.jdb", "state": "NOT_SELECTED", "proved": None}],
        "stays_readable": [{"code": "SEPARATORS", "what": "Keys."}],
    }


def signed(said: dict[str, object]) -> bytes:
    public = KEY.public_key().public_bytes_raw()
    signature = {
        "algorithm": "Ed25519",
        "key_id": KEY_ID,
        "public_key": base64.b64encode(public).decode(),
        "value": base64.b64encode(KEY.sign(signed_bytes(said))).decode(),
    }
    return json.dumps({"certificate": said, "signature": signature}).encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.certificate.json"
    path.write_bytes(signed(certificate()))
    return path


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "environment"
    made.mkdir()
    for number, name in enumerate(NAMES):
        (made / name).write_bytes(content_of(number))
    return made


def test_certificate_is_fetched_byte_for_byte(lethe, service, tmp_path: Path) -> None:
    document = signed(certificate())
    service.on(URL, (200, document, {"Content-Type": "application/json"}))
    target = tmp_path / "out.json"
    run = lethe("certificate", "get", "orders", CYCLE, "-o", str(target))
    assert (run.code, target.read_bytes()) == (0, document)
    run = lethe("certificate", "get", "orders", CYCLE)
    assert (run.code, run.out.encode()) == (0, document)
    run = lethe("certificate", "get", "orders", CYCLE, "-o", str(tmp_path / "no" / "where"), "--json")
    assert (run.code, json.loads(run.out)["code"]) == (1, "FILE_UNWRITABLE")


def test_keys_are_listed(lethe, service) -> None:
    key = {"id": KEY_ID, "public_key": "x", "instance": "ins_1", "created_at": "2026-11-20T10:00:00Z"}
    service.on("GET /v1/signing-keys", (200, {"items": [key], "next_page_token": ""}))
    run = lethe("certificate", "keys")
    assert (run.code, KEY_ID in run.out) == (0, True)


def test_environment_is_read_again_by_a_job(lethe, service) -> None:
    job = {"id": "job_1", "kind": "ERASURE_VERIFY", "store": "orders", "state": "QUEUED"}
    service.on("POST /v1/stores/orders/erasure-cycles/current:verify", (202, job))
    run = lethe("certificate", "recheck", "orders", "--no-wait", "--json")
    assert (run.code, json.loads(run.out)["id"]) == (0, "job_1")


def test_check_says_whether_the_key_was_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certificate", "verify", str(file)]) == 0
    shown = capsys.readouterr()
    assert "only the one inside the file" in shown.out
    assert "--fingerprint" in shown.err
    assert main(["certificate", "verify", str(file), "--fingerprint", KEY_ID, "--json"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["valid"], found["key_was_named"], found["key_id"]) == (True, True, KEY_ID)
    assert found["facts"]["entries_erased_and_proved"] == 12
    assert shown.err == ""


def test_other_key_and_changed_document_do_not_hold(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certificate", "verify", str(file), "--fingerprint", OTHER_ID]) == 1
    assert "none of the keys" in capsys.readouterr().err
    file.write_bytes(file.read_bytes().replace(b'"files": 4', b'"files": 5'))
    assert main(["certificate", "verify", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "CERTIFICATE_INVALID"
    file.unlink()
    assert main(["certificate", "verify", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "FILE_UNREADABLE"
    assert main(["certificate", "verify", str(file), "--fingerprint", "abc"]) == 64


@pytest.mark.parametrize("missing", ["totals", "cycle", "environment", "stays_readable"])
def test_signed_document_that_lacks_something_does_not_hold(
    file: Path, capsys: pytest.CaptureFixture[str], missing: str
) -> None:
    said = certificate()
    del said[missing]
    file.write_bytes(signed(said))
    assert main(["certificate", "verify", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["code"] == "CERTIFICATE_INVALID"


def test_files_on_the_disk_are_compared(
    file: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["certificate", "verify", str(file), "--directory", str(directory), "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files_are_as_proved"]
    assert [each["outcome"] for each in found["files"]] == ["SAME"] * 3
    (directory / NAMES[0]).unlink()
    with (directory / NAMES[1]).open("ab") as log:
        log.write(b"more")
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in found["files"]] == ["GONE", "GROWN", "SAME"]
    (directory / NAMES[2]).write_bytes(b"other")
    (directory / NAMES[0]).mkdir()
    assert main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["outcome"] for each in found["files"]] == ["UNREADABLE", "GROWN", "DIFFERENT"]
    assert main(words[:-1]) == 1
    assert "a later cycle has erased in it again" in capsys.readouterr().out
    assert main(["certificate", "verify", str(file), "--directory", str(directory / "none")]) == 64


def test_name_that_leads_elsewhere_is_not_read(
    file: Path, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = certificate()
    said["files"][0]["name"] = "../environment/00000000.jdb"  # type: ignore[index]
    file.write_bytes(signed(said))
    assert main(["certificate", "verify", str(file), "--directory", str(directory), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["files"][0]["outcome"] == "UNREADABLE"
