"""`lethe_je`: every row is that of `lethe je dump`, whatever JE does meanwhile."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from lethe_spark import OptionInvalid
from lethe_spark.je import JeReader, JeSource, asked
from lethe_spark.je_parts import LogPart

from spark.erase.errors import LogChecksumWrong, LogFileChanged, LogFileVanished, LogRefused
from spark.erase.plan.describe import FLAG_NAMES, each_entry
from spark.formats.je.log import NULL_LSN, show_lsn
from tests.spark.erase.conftest import Sample
from tests.spark.erase.data_directories import spread_over
from tests.spark.erase.random_environments import random_environment
from tests.spark.sources.conftest import Reading

SEEDS = [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 200))]
SAMPLES = ["closed", "comparator", "crash", "halted", "indexed", "replicated", "swept"]
# What Spark adds is the same for each of them; these two are small, and one has VLSNs.
ON_SPARK = ("halted", "replicated")


def dumped(directory: Path) -> list[dict[str, Any]]:
    """The lines of `lethe je dump --json`."""
    return list(each_entry(directory, number=None, verify=True))


def as_dumped(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the source as the line of a dump that says the same."""
    line = {name: row[name] for name in ("file", "offset", "type", "item_bytes")}
    line["flags"] = [text for flag, text in FLAG_NAMES if row["flags"] & flag]
    assert row["lsn"] == (int(row["file"][:8], 16) << 32) + row["offset"]
    assert row["invisible"] == ("INVISIBLE" in line["flags"])
    for name in ("vlsn", "all_zero", "txn", "expiration"):
        if row[name] is not None:
            line[name] = row[name]
    if row["key"] is not None:
        line |= {"db": row["db"], "key": row["key"].hex(), "value_bytes": row["value_bytes"]}
        if row["abort_lsn"] is not None:
            line["abort_lsn"] = show_lsn(row["abort_lsn"])
        if row["embedded"]:
            line["embedded"] = True
    if row["node"] is not None:
        line |= {name: row[name] for name in ("db", "node", "level", "slots")}
        line["last_full"] = _lsn(row["last_full"])
    if row["type"] == "CKPT_END":
        line |= {"first_active": _lsn(row["first_active"]), "start": _lsn(row["start"])}
    if row["deleted"] is not None:
        line |= {"name": row["name"], "deleted": row["deleted"]}
        line |= {"root": _lsn(row["root"])} if row["id"] is None else {"id": row["id"]}
    return line


def _lsn(lsn: int | None) -> str:
    return show_lsn(NULL_LSN if lsn is None else lsn)


def direct(directory: Path, **options: Any) -> JeReader:
    """The reader of a source, without Spark."""
    return JeReader(asked({"path": str(directory), **options}))


def rows_of(reader: JeReader, parts: Any = None) -> list[dict[str, Any]]:
    parts = reader.partitions() if parts is None else parts
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def alone(parts: Any, name: str) -> list[LogPart]:
    """A part of only one of the files that were planned."""
    return [LogPart((file,)) for part in parts for file in part.files if file.path.name == name]


def check_sample(sample: Sample, rows: list[dict[str, Any]]) -> None:
    assert {row["environment"] for row in rows} == {str(sample.path)}
    assert [as_dumped(row) for row in sorted(rows, key=lambda row: row["lsn"])] == dumped(sample.path)


def test_every_row_of_every_sample_is_that_of_a_dump(samples: dict[str, Sample]) -> None:
    assert sorted(samples) == SAMPLES
    for sample in samples.values():
        check_sample(sample, rows_of(direct(sample.path)))


@pytest.mark.parametrize(
    "name", [name if name in ON_SPARK else pytest.param(name, marks=pytest.mark.long) for name in SAMPLES]
)
def test_every_row_of_a_sample_on_spark_is_that_of_a_dump(
    reading: Reading, samples: dict[str, Sample], name: str
) -> None:
    check_sample(samples[name], reading.arrow("lethe_je", path=samples[name].path))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_row_of_a_random_log_is_that_of_a_dump(tmp_path: Path, seed: int) -> None:
    random_environment(tmp_path, seed, size=100 + 70 * (seed % 10))
    rows = rows_of(direct(tmp_path))
    assert [as_dumped(row) for row in sorted(rows, key=lambda row: row["lsn"])] == dumped(tmp_path)


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(20, 40))])
def test_a_random_log_on_spark_has_the_same_rows(reading: Reading, tmp_path: Path, seed: int) -> None:
    random_environment(tmp_path, seed, size=600)
    rows = sorted(reading.rows("lethe_je", path=tmp_path), key=lambda row: row["lsn"])
    assert [as_dumped(row) for row in rows] == dumped(tmp_path)
    keys = sorted(reading.rows("lethe_je", path=tmp_path, view="keys"), key=_place)
    assert keys == sorted(rows_of(direct(tmp_path, view="keys")), key=_place)


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["lsn"], -1 if row["slot"] is None else row["slot"]


def test_columns_types_and_files_leave_out_what_is_not_asked_for(samples: dict[str, Sample]) -> None:
    path = samples["closed"].path
    every = rows_of(direct(path))
    some = rows_of(
        direct(path, columns="key, lsn", types="INS_LN_TX,DEL_LN_TX", files="00000001.jdb,00000002.jdb")
    )
    assert some == [
        {"key": row["key"], "lsn": row["lsn"]}
        for row in every
        if row["type"] in ("INS_LN_TX", "DEL_LN_TX") and row["file"] in ("00000001.jdb", "00000002.jdb")
    ]
    assert 0 < len(some) < len(every)


def test_a_log_that_grows_is_read_as_it_was_when_planned(samples: dict[str, Sample], tmp_path: Path) -> None:
    whole = samples["closed"].files()
    for file in whole[:2]:
        shutil.copyfile(file, tmp_path / file.name)
    last = whole[1].read_bytes()
    half = [row for row in dumped(tmp_path) if row["file"] == whole[1].name]
    cut = half[len(half) // 2]["offset"] + 5  # in the middle of an entry, as JE's buffers end
    (tmp_path / whole[1].name).write_bytes(last[:cut])
    reader = direct(tmp_path)
    parts = reader.partitions()
    before = dumped(tmp_path)
    with (tmp_path / whole[1].name).open("ab") as file:
        file.write(last[cut:])
    shutil.copyfile(whole[2], tmp_path / whole[2].name)
    assert [as_dumped(row) for row in rows_of(reader, parts)] == before
    assert before[-1]["offset"] < cut


def test_the_end_of_a_file_counts_as_torn_until_the_next_one_has_begun(
    samples: dict[str, Sample], tmp_path: Path
) -> None:
    first, second = samples["closed"].files()[:2]
    shutil.copyfile(first, tmp_path / first.name)
    (tmp_path / first.name).write_bytes(first.read_bytes()[:-3])
    (tmp_path / second.name).write_bytes(bytes(38))
    [part] = direct(tmp_path).partitions()
    assert [file.is_last for file in part.files] == [True, True]  # type: ignore[attr-defined]
    (tmp_path / second.name).write_bytes(second.read_bytes())
    with pytest.raises(LogRefused):
        rows_of(direct(tmp_path))


def test_a_file_that_was_cleaned_or_replaced_since_the_plan_is_named(
    samples: dict[str, Sample], tmp_path: Path
) -> None:
    for file in samples["closed"].files():
        shutil.copyfile(file, tmp_path / file.name)
    reader = direct(tmp_path)
    parts = reader.partitions()
    gone, other = tmp_path / "00000000.jdb", tmp_path / "00000001.jdb"
    gone.unlink()
    with pytest.raises(LogFileVanished, match=r"00000000\.jdb.*read again"):
        rows_of(reader, alone(parts, gone.name))
    data = other.read_bytes()
    with tempfile.NamedTemporaryFile(dir=tmp_path, delete=False) as made:
        made.write(data)
    os.replace(made.name, other)
    with pytest.raises(LogFileChanged, match="another file has its name"):
        rows_of(reader, alone(parts, other.name))
    with pytest.raises(LogFileVanished):
        rows_of(reader, parts)


def test_small_files_are_read_together_and_batches_that_are_kept_stay_as_they_were(
    samples: dict[str, Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_environment(tmp_path, 7, size=400)
    reader = direct(tmp_path)
    [together] = reader.partitions()
    kept = list(reader.read(together))
    monkeypatch.setattr("lethe_spark.je.PART_BYTES", 1)
    single = direct(tmp_path).partitions()
    assert [part.files for part in single] == [(file,) for file in together.files]  # type: ignore[attr-defined]
    assert len(single) > 2
    assert [row for batch in kept for row in batch.to_pylist()] == rows_of(reader, single)


def test_damage_in_the_middle_of_the_last_file_is_no_torn_end(
    samples: dict[str, Sample], tmp_path: Path
) -> None:
    for file in samples["closed"].files():
        shutil.copyfile(file, tmp_path / file.name)
    last = tmp_path / samples["closed"].files()[-1].name
    data = bytearray(last.read_bytes())
    data[len(data) // 2] ^= 0x40
    last.write_bytes(data)
    with pytest.raises(LogRefused, match=last.name):
        rows_of(direct(tmp_path))


def test_a_wrong_checksum_fails_the_query_and_names_the_place(
    reading: Reading, samples: dict[str, Sample], tmp_path: Path
) -> None:
    for file in samples["closed"].files():
        shutil.copyfile(file, tmp_path / file.name)
    place = next(row for row in each_entry(tmp_path, number=None, verify=True) if row["type"] == "INS_LN_TX")
    file = tmp_path / place["file"]
    data = bytearray(file.read_bytes())
    data[place["offset"]] ^= 1
    file.write_bytes(data)
    assert LogChecksumWrong.__name__ in reading.refused("lethe_je", path=tmp_path)
    unverified = rows_of(direct(tmp_path, columns="lsn", verify="false"))
    assert unverified == rows_of(direct(samples["closed"].path, columns="lsn"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'path' is missing: the directory of the environment"),
        ({"path": "je"}, "path='je' is no absolute path"),
        ({"path": "/je", "colums": "key"}, "there is no option 'colums'; give columns, files"),
        ({"path": "/je", "columns": "key,kye"}, "columns names 'kye'; give one or more of environment"),
        ({"path": "/je", "columns": "key,,lsn"}, "is no list of words"),
        ({"path": "/je", "types": "INS"}, "types names 'INS'"),
        ({"path": "/je", "files": "../x.jdb"}, "give names such as 00000002.jdb"),
        ({"path": "/je", "view": "rows"}, "view='rows' is unknown; give one of entries, keys"),
        ({"path": "/je", "view": "keys", "columns": "key"}, "view=keys has neither"),
        ({"path": "/je", "verify": "perhaps"}, "neither true nor false"),
        ({"path": " "}, "'path' is empty"),
    ],
)
def test_options_that_are_wrong_are_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionInvalid) as refused:
        JeSource(options).schema()
    assert words in str(refused.value)
    assert str(refused.value).startswith("lethe_je: ")


def test_a_folder_without_a_log_is_refused(reading: Reading, tmp_path: Path) -> None:
    assert "holds no log file" in reading.refused("lethe_je", path=tmp_path)
    (tmp_path / "00000000.jdb").write_bytes(b"")
    with pytest.raises(LogRefused, match=r"has no file 00000009\.jdb"):
        direct(tmp_path, files="00000009.jdb").partitions()


@pytest.mark.parametrize("count", [1, 3])
def test_rows_of_a_log_in_data_directories_are_those_of_a_dump(tmp_path: Path, count: int) -> None:
    random_environment(tmp_path, 5, size=400)
    before = rows_of(direct(tmp_path))
    spread_over(tmp_path, count)
    reader = direct(tmp_path)
    parts = reader.partitions()
    rows = sorted(rows_of(reader, parts), key=lambda row: row["lsn"])
    assert len({row["file"] for row in rows}) > count
    assert [as_dumped(row) for row in rows] == dumped(tmp_path)
    assert rows == sorted(before, key=lambda row: row["lsn"])
    last = rows[-1]["file"]
    assert {row["file"] for row in rows_of(direct(tmp_path, files=last))} == {last}
    assert len(rows_of(direct(tmp_path, view="keys"))) > 0
    next(tmp_path.glob("data001/*.jdb")).unlink()
    with pytest.raises(LogFileVanished, match="read again"):
        rows_of(reader, parts)
