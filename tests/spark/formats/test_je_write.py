"""The writer of logs: what it writes is read back, and what JE wrote comes out of it again byte for byte."""

import struct
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.je_log import EntryType
from tests.spark.formats.je_items_parsing import rewrite

DATA = Path(__file__).parents[2] / "data" / "je"


def real_files(name: str) -> list[bytes]:
    """The files of an environment that JE wrote; a torn tail is cut off."""
    with tarfile.open(DATA / f"{name}.tar.xz") as packed:
        members = [member for member in packed.getmembers() if member.name.endswith(".jdb")]
        return [packed.extractfile(member).read() for member in sorted(members, key=lambda each: each.name)]  # type: ignore[union-attr]


def entries(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Offset, type and item of each entry of a file."""
    at = 0
    while at < len(data):
        kind, flags, size = struct.unpack_from("<BB4xi", data, at + 4)
        start = at + (22 if flags & 0x28 and kind != EntryType.FILE_HEADER else 14)
        if start + size > len(data):
            return
        yield at, kind, data[start : start + size]
        at = start + size


@pytest.mark.parametrize("name", ["closed", "comparator", "crash", "halted", "replicated", "swept"])
def test_entries_that_je_wrote_come_out_again_byte_for_byte(name: str) -> None:
    written: Counter[int] = Counter()
    for data in real_files(name):
        for offset, kind, raw in entries(data):
            again = rewrite(raw, kind)
            if again is not None:
                assert again == raw, f"type {kind} at {offset:#x}"
                written[kind] += 1
    common = {EntryType.IN, EntryType.BIN, EntryType.COMMIT, EntryType.MAP_LN, EntryType.INS_LN_TX}
    assert common | {EntryType.CKPT_END, EntryType.DB_TREE} <= written.keys()
