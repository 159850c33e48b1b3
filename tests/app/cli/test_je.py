"""`lethe je` on environments that JE wrote: what it prints, and how it refuses."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from spark.formats.je.log import LN_TYPES
from tests.je_data import unpack_all
from tests.spark.erase.damage import in_use, zero_out
from tests.spark.erase.hands_at_work import claim, erase


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_all("closed", tmp_path_factory.mktemp("je") / "closed")


def test_directory_may_be_named_by_a_link(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who types a path means what it leads to; only what was looked at before is opened without links."""
    (tmp_path / "here").symlink_to(closed)
    assert main(["je", "stat", str(tmp_path / "here"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"]


def test_stat_shows_files_databases_and_checkpoint(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["je", "stat", str(closed), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = json.loads((closed / "expected.json").read_text())
    assert [each["name"] for each in found["files"]] == list(expected["files"])
    for each in found["files"]:
        known = expected["files"][each["name"]]
        assert (each["bytes"], each["entries"]) == (known["size"], known["entries"])
        assert each["created_ms"] == known["created_ms"]
        assert 0 < each["utilisation"] < 1
    databases = {(each["id"], each["name"], each["dropped"]) for each in found["databases"]}
    assert {(each["id"], each["name"], each["deleted"]) for each in expected["databases"]} <= databases
    assert found["checkpoint"]["first_active"] == "0x3/0x12d89"
    assert found["vlsn"] is None
    assert found["refused"] is None


def test_stat_counts_erased_entries_as_obsolete(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in closed.glob("*.jdb"):
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def stat() -> list[dict[str, Any]]:
        assert main(["je", "stat", str(tmp_path), "--json"]) == 0
        files: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["files"]
        return files

    before = stat()
    claim(tmp_path)
    planned = erase(tmp_path).files
    after = stat()
    for was, now, plan in zip(before, after, planned, strict=True):
        assert now["erased"] - was["erased"] == plan.entry_count
        # Nothing that was in use was erased, and nothing that was erased counts as used.
        assert now["used_bytes"] == was["used_bytes"] <= now["bytes"] - now["erased_bytes"]
        items = sum(item_bytes for _, item_bytes in plan.erased.values())
        assert now["erased_bytes"] - was["erased_bytes"] == items + 14 * plan.entry_count
    # A record that is still in use: its bytes are no longer counted as such.
    zero_out(tmp_path, in_use(tmp_path, frozenset(LN_TYPES))[0])
    worse = stat()
    assert worse[0]["erased"] == after[0]["erased"] + 1
    moved = worse[0]["erased_bytes"] - after[0]["erased_bytes"]
    assert after[0]["used_bytes"] - worse[0]["used_bytes"] == moved > 14
    assert main(["je", "stat", str(tmp_path)]) == 0
    assert "erased bytes" in capsys.readouterr().out


def test_dump_prints_every_entry_once(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["je", "dump", str(closed), "--file", "0x2", "--json"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(entries) == 10838
    assert entries[0] == {
        "file": "00000002.jdb",
        "offset": 0,
        "type": "FILE_HEADER",
        "item_bytes": 24,
        "flags": [],
    }
    node = next(entry for entry in entries if entry["type"] == "BIN")
    assert (node["level"], node["flags"]) == (1, ["PROVISIONAL"])
    first = entries[1]
    assert bytes.fromhex(first["key"]) == b"dropkey:0004705"
    assert (first["type"], first["db"], first["txn"]) == ("INS_LN_TX", 8, 4717)
    assert main(["je", "dump", str(closed), "--file", "00000002.jdb"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10838
    assert "key='dropkey:0004705'" in lines[1]


@pytest.mark.parametrize("words", [["stat"], ["dump"]])
def test_directory_that_is_no_environment_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["je", *words, str(tmp_path), "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["code"] == "NOT_AN_ENVIRONMENT"
    assert "no log file" in err


def test_other_version_and_damage_name_file_and_offset(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in closed.glob("*.jdb"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    first = tmp_path / "00000000.jdb"
    good = first.read_bytes()
    first.write_bytes(good[:34] + struct.pack("<i", 19) + good[38:])
    assert main(["je", "stat", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "LOG_VERSION_UNSUPPORTED: 00000000.jdb, offset 34: log version 19" in err
    first.write_bytes(good[:3000] + b"\xff" + good[3001:])
    assert main(["je", "stat", str(tmp_path)]) == 1
    assert "LOG_CHECKSUM_WRONG: 00000000.jdb, offset 2958" in capsys.readouterr().err
    first.write_bytes(good[:-3])
    assert main(["je", "dump", str(tmp_path)]) == 1
    assert "LOG_ENTRY_TORN: 00000000.jdb" in capsys.readouterr().err


def test_torn_tail_is_shown_and_is_no_error(
    closed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in closed.glob("*.jdb"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    last = tmp_path / "00000003.jdb"
    last.write_bytes(last.read_bytes()[:-4])
    assert main(["je", "stat", str(tmp_path)]) == 0
    assert "00000003.jdb is torn off at offset 77898" in capsys.readouterr().err


def test_file_that_is_not_there_is_refused(closed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["je", "dump", str(closed), "--file", "9"]) == 1
    assert "has no file 00000009.jdb" in capsys.readouterr().err
    assert main(["je", "dump", str(closed), "--file", "nine"]) == 64


def test_helper_is_written_and_written_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "LetheJe.java"
    assert main(["je", "helper", "--write", str(target)]) == 0
    text = target.read_text()
    assert text.startswith("// LetheJe:")
    assert "class LetheJe" in text
    target.write_text("// LetheJe: an older copy")
    capsys.readouterr()
    assert main(["je", "helper", "--write", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(target)
    assert target.read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["LetheJe.java"]
    assert main(["je", "helper"]) == 0
    assert capsys.readouterr().out == text


def test_helper_leaves_other_files_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    (tmp_path / "folder").mkdir()
    assert main(["je", "helper", "--write", str(notes)]) == 64
    assert main(["je", "helper", "--write", str(tmp_path / "folder")]) == 64
    assert main(["je", "helper", "--write", str(tmp_path / "none" / "LetheJe.java")]) == 78
    assert notes.read_text() == "mine"
    assert "Name a new file" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "notes.txt"]
