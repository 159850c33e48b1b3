"""A directory with a control file, and hands that damage it."""

import os
from pathlib import Path

from spark.targets.files import control_record
from spark.targets.files.control_file import NAME
from spark.targets.files.control_record import COUNTER, SLOT_OFFSETS, ControlRecord, ProtectedRange

BACKUP = ProtectedRange("prt_backup", "BACKUP", 0, 4)
SCAN = ProtectedRange("prt_scan", "SCAN", 2, None)


def make_environment(directory: Path) -> Path:
    """A directory that has a log file, which is all that a control file asks for."""
    directory.mkdir(exist_ok=True)
    log_file = directory / "00000000.jdb"
    log_file.write_bytes(b"log")
    log_file.chmod(0o640)
    return directory


def write_at(directory: Path, offset: int, data: bytes) -> None:
    with open(directory / NAME, "r+b") as file:
        file.seek(offset)
        file.write(data)


def slot(directory: Path, index: int) -> ControlRecord | None:
    raw = (directory / NAME).read_bytes()
    return control_record.decode(raw[SLOT_OFFSETS[index] :][: control_record.SLOT_BYTES])


def put_slot(directory: Path, index: int, record: ControlRecord) -> None:
    write_at(directory, SLOT_OFFSETS[index], control_record.encode(record))


def counter(directory: Path) -> int:
    value = COUNTER.unpack((directory / NAME).read_bytes()[: COUNTER.size])[0]
    assert isinstance(value, int)
    return value


def put_counter(directory: Path, value: int) -> None:
    write_at(directory, 0, COUNTER.pack(value))


def newest_slot(directory: Path) -> int:
    found = [slot(directory, index) for index in (0, 1)]
    return max((0, 1), key=lambda index: -1 if found[index] is None else found[index].generation)


def tear(directory: Path, index: int) -> None:
    """As a crash in the middle of a write leaves it: new bytes at the front, old ones behind."""
    write_at(directory, SLOT_OFFSETS[index] + 20, b"\xff" * 10)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))
