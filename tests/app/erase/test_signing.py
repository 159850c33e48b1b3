"""The key of a data directory: made once, whole on the disk before it is used, and replaced on demand."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

import pytest
from lethe_client.certificates import key_id_of, verify_certificate

from app.db import Database
from app.erase.certificates.rows import SigningKey
from app.erase.certificates.signing import FOLDER, KEY_FILE, Signer, register, retire, rotate, signer_of
from app.erase.errors import SigningKeyUnusable
from tests.app.fake_clock import FakeClock

SAID = {"format": "lethe-erasure-certificate/1", "store": "ä"}


def test_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first = signer_of(tmp_path)
    assert signer_of(tmp_path).public_key == first.public_key
    key = tmp_path / FOLDER / KEY_FILE
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == ["key", "lock"]
    assert key.read_bytes() == first.private.private_bytes_raw()


def test_what_a_key_signs_is_verified_by_the_client(tmp_path: Path) -> None:
    signer = signer_of(tmp_path)
    found = verify_certificate(json.dumps(signer.envelope(SAID)).encode(), trusted=frozenset({signer.key_id}))
    assert (found.certificate, found.is_pinned) == (SAID, True)


def test_two_that_begin_at_once_have_one_key(tmp_path: Path) -> None:
    found: list[Signer] = []
    threads = [threading.Thread(target=lambda: found.append(signer_of(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({signer.key_id for signer in found}) == 1
    assert len(found) == 8


def test_replaced_key_is_another_one(tmp_path: Path) -> None:
    before = signer_of(tmp_path)
    former, new = rotate(tmp_path)
    assert former.key_id == before.key_id != new.key_id
    assert signer_of(tmp_path).key_id == new.key_id


def test_key_that_was_left_half_written_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "key.new").write_bytes(b"half")
    signer = signer_of(tmp_path)
    assert (folder / KEY_FILE).read_bytes() == signer.private.private_bytes_raw()
    assert not (folder / "key.new").exists()


@pytest.mark.parametrize("content", [b"", b"x" * 31, b"x" * 33])
def test_file_that_is_no_key_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / KEY_FILE).write_bytes(content)
    with pytest.raises(SigningKeyUnusable, match="32 bytes"):
        signer_of(tmp_path)
    with pytest.raises(SigningKeyUnusable):
        rotate(tmp_path)
    assert (folder / KEY_FILE).read_bytes() == content


def test_data_directory_that_is_none_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SigningKeyUnusable, match="file"):
        signer_of(tmp_path / "file")
    (tmp_path / FOLDER / KEY_FILE).mkdir(parents=True)
    with pytest.raises(SigningKeyUnusable, match="directory"):
        signer_of(tmp_path)


def test_public_key_is_known_once_and_a_retired_one_stays(
    database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    signer, now = signer_of(tmp_path), clock.now()
    for _ in range(2):
        with database.transaction() as db:
            register(db, signer, instance_id="ins_a", now=clock.now())
        clock.advance(60)
    with database.transaction() as db:
        retire(db, signer, now=clock.now())
    retired = clock.now()
    clock.advance(60)
    with database.transaction() as db:
        retire(db, signer, now=clock.now())
        register(db, signer, instance_id="ins_b", now=clock.now())
    with database.reading() as db:
        row = db.get_one(SigningKey, signer.key_id)
    assert (row.created_at, row.retired_at, row.instance) == (now, retired, "ins_a")
    assert key_id_of(base64.b64decode(row.public_key)) == row.id
