"""Every entry is read as JE itself reads it, and as a reader in plain Python does."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.erase.reading.columns import FileColumns
from spark.erase.reading.directory import file_names, opened
from spark.erase.reading.files import Room, read_file
from spark.formats.je.items import CheckpointEnd, RareLn
from tests.oracles import je_log as oracle
from tests.spark.erase.conftest import Sample

SAMPLES = ["closed", "crash", "replicated"]


def read(directory: Path, *, room: Room | None = None, verify: bool = True) -> list[FileColumns]:
    names = file_names(directory)
    with opened(directory, names) as files:
        return [read_file(file, is_last=file is files[-1], verify=verify, room=room) for file in files]


def rows_like_je(columns: FileColumns) -> list[list[str]]:
    """Our columns in the form of JE's rows; what JE prints of a checkpoint is compared apart."""
    lns = {row["entry"]: row for row in columns.lns.to_pylist()}
    nodes = {row["entry"]: row for row in columns.nodes.to_pylist()}
    ends = {row["entry"]: row for row in columns.ends.to_pylist()}
    rare = dict(columns.rare)
    rows = []
    for number, entry in enumerate(columns.entries.to_pylist()):
        kind, flags = entry["type"], entry["flags"]
        header = 22 if flags & 0x28 else 14
        row = [columns.number, entry["offset"], kind, header, entry["item_bytes"], entry["previous"]]
        row += [entry["checksum"], "YES" if flags & 0x80 else "BEFORE_CKPT_END" if flags & 0x40 else "NO"]
        row += [flags >> 5 & 1, flags >> 4 & 1, entry["vlsn"], -1 if kind == 25 else 26]
        if number in lns:
            row += ln_like_je(lns[number], rare.get(number))
        elif number in nodes:
            row += ["IN", nodes[number]["db"], nodes[number]["node"], int(kind == 37)]
        elif number in ends:
            row += ["TXN", ends[number]["txn"]]
        rows.append([str(each) for each in row])
    return rows


def ln_like_je(ln: dict[str, Any], rare: object) -> list[Any]:
    row = ["LN", ln["db"], ln["txn"], ln["key"].hex(), ln["value_bytes"], ln["flags"] >> 1 & 1]
    row += [ln["abort_lsn"], ln["flags"] & 1, ln["abort_data_bytes"], ln["expiration"], ln["txn_previous"]]
    if isinstance(rare, RareLn) and rare.database is not None:
        deleted = "deleted " if rare.deleted else ""
        row.append(f"MAP {rare.database.id} {deleted}{rare.database.name}")
    elif isinstance(rare, RareLn) and rare.named_id is not None:
        row.append(f"NAME {rare.named_id} {'deleted ' if rare.deleted else ''}{ln['key'].decode()}")
    return row


@pytest.mark.parametrize("name", SAMPLES)
def test_every_entry_of_a_real_log_reads_as_je_reads_it(samples: dict[str, Sample], name: str) -> None:
    je = samples[name].entries()
    ours = [row for columns in read(samples[name].path) for row in rows_like_je(columns)]
    assert len(ours) == len(je)
    different = [
        (mine, theirs)
        for mine, theirs in zip(ours, je, strict=True)
        if mine != (theirs[:12] if theirs[12:13] == ["CKPT"] else theirs)
    ]
    assert different == []


@pytest.mark.parametrize("name", SAMPLES)
def test_every_checkpoint_of_a_real_log_reads_as_je_reads_it(samples: dict[str, Sample], name: str) -> None:
    je = [row[14] for row in samples[name].entries() if row[12:13] == ["CKPT"]]
    ours = [
        each
        for columns in read(samples[name].path)
        for _, each in columns.rare
        if isinstance(each, CheckpointEnd)
    ]
    assert len(ours) == len(je) > 0
    for mine, theirs in zip(ours, je, strict=True):
        for tag, lsn in (
            ("ckptStart", mine.start_lsn),
            ("root", mine.root_lsn),
            ("firstActive", mine.first_active_lsn),
        ):
            assert f'<{tag}><DbLsn val="{lsn >> 32:#x}/{lsn & 0xFFFFFFFF:#x}"/></{tag}>' in theirs
        assert f'invoker="{mine.invoker}"' in theirs
        assert f' id="{mine.id}"' in theirs


def like_oracle(columns: FileColumns) -> list[dict[str, Any]]:
    lns = {row.pop("entry"): row for row in columns.lns.to_pylist()}
    nodes = {row.pop("entry"): row for row in columns.nodes.to_pylist()}
    ends = {row.pop("entry"): row for row in columns.ends.to_pylist()}
    types = columns.entries["type"].to_pylist()
    # The oracle reads an ExtinctScanLN as any other LN.
    rare = {n for n, each in columns.rare if isinstance(each, RareLn) and types[n] not in (41, 42)}
    found = []
    for number, entry in enumerate(columns.entries.to_pylist()):
        if number in lns and number not in rare:
            entry["ln"] = {key: each for key, each in lns[number].items() if not key.startswith("hash")}
        if number in nodes:
            entry["node"] = nodes[number]
        if number in ends:
            entry["end"] = ends[number]
        found.append(entry)
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_compiled_reader_agrees_with_one_in_plain_python(samples: dict[str, Sample], name: str) -> None:
    for columns, file in zip(read(samples[name].path), samples[name].files(), strict=True):
        theirs = []
        for entry in oracle.walk(file.read_bytes()):
            del entry["header"]
            if "ln" in entry:
                for more in ("value", "abort_key", "abort_data"):
                    del entry["ln"][more]
            if "node" in entry:
                entry["node"]["slots"] = len(entry["node"]["slots"])
            theirs.append(entry)
        assert like_oracle(columns) == theirs


@pytest.mark.parametrize("unit_bytes", [64, 4096, 100_003])
def test_units_of_any_size_give_the_same_columns(samples: dict[str, Sample], unit_bytes: int) -> None:
    # The smallest is smaller than almost every entry: buffers grow, and entries lie across their ends.
    whole = read(samples["replicated"].path)[2]
    parts = read(samples["replicated"].path, room=Room.make(unit_bytes))[2]
    for ours, theirs in ((parts.entries, whole.entries), (parts.lns, whole.lns), (parts.nodes, whole.nodes)):
        assert isinstance(ours, pa.Table)
        assert ours.equals(theirs)
    assert parts.rare == whole.rare


def test_each_unit_is_counted_as_one_read_of_its_real_bytes(samples: dict[str, Sample]) -> None:
    room = Room.make()
    read(samples["closed"].path, room=room)
    assert room.reads.count == 4
    assert room.reads.byte_count == sum(file.stat().st_size for file in samples["closed"].files())
