"""Logs that must not be worked on: refused by a stable code, with file and offset, and nothing is written.

Each case wounds a small whole environment in one place. The plan is asked for twice: inline, and by a call as
the hands get it.
"""

import os
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.erase.calls.calls import PlanAnswer, PlanCall, RefusalCode
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.plan.plan import plan_erasure
from spark.erase.unit import do
from tests.oracles.je_liveness_reader import Entry, Log, read_environment
from tests.oracles.je_log_bytes import TIME_MS, LogBytes, packed
from tests.oracles.je_small_engine import SmallEngine

NOBODY = 65534


@pytest.fixture(scope="module")
def grown() -> SmallEngine:
    engine = SmallEngine(11)
    engine.live(30)
    engine.close()
    assert len(engine.log.files) > 4
    return engine


@pytest.fixture
def environment(grown: SmallEngine, tmp_path: Path) -> Path:
    directory = tmp_path / "environment"
    grown.log.write(directory)
    assert plan_erasure(directory, PlanRequest()).files
    return directory


def state(directory: Path) -> dict[str, tuple[bytes, int]]:
    found = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found[path.name] = (path.read_bytes(), path.stat().st_mtime_ns)
    return found


def refused(directory: Path) -> LogRefused:
    """The refusal of a plan, after a look that nothing was written, inline and by a call."""
    before = state(directory)
    with pytest.raises(LogRefused) as caught:
        plan_erasure(directory, PlanRequest())
    answer = do(PlanCall(str(directory), PlanRequest()))
    assert isinstance(answer, PlanAnswer)
    assert answer.refusal is not None
    assert answer.files == ()
    assert answer.refusal.code == RefusalCode.LOG_REFUSED
    assert answer.refusal.detail.startswith(caught.value.code)
    assert (answer.refusal.file, answer.refusal.offset) == (caught.value.file, caught.value.offset)
    assert state(directory) == before
    return caught.value


def place_of(refusal: LogRefused) -> tuple[str, str | None, int | None]:
    return refusal.code, refusal.file, refusal.offset


def rewrite(path: Path, at: int, value: bytes, *, entry: int | None = None) -> None:
    """Change bytes; with `entry`, the offset of an entry, its checksum is made right again."""
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    if entry is not None:
        _, kind, flags, _, size = struct.unpack_from("<IBBIi", data, entry)
        covered = data[entry + 4 : entry + (22 if flags & 0x28 and kind != 25 else 14) + size]
        covered[1] &= 0xEF
        struct.pack_into("<I", data, entry, zlib.adler32(bytes(covered)))
    path.write_bytes(data)


def file_of(directory: Path, number: int) -> Path:
    return directory / f"{number:08x}.jdb"


def inner_entry(log: Log, file: int) -> Entry:
    """Some entry in the middle of a file, with an item."""
    found = [entry for entry in log.entries if entry.file == file and entry.type in {33, 34, 35, 13}]
    return found[len(found) // 2]


@pytest.mark.parametrize("version", [*range(8, 26), 27])
def test_other_log_version_is_refused_in_whichever_file_it_is(environment: Path, version: int) -> None:
    for path in (sorted(environment.glob("*.jdb"))[at] for at in (0, 2, -1)):
        whole = path.read_bytes()
        rewrite(path, 34, struct.pack("<i", version), entry=0)
        assert place_of(refused(environment)) == ("LOG_VERSION_UNSUPPORTED", path.name, 34)
        path.write_bytes(whole)


def test_flipped_bit_of_an_item_is_refused_with_its_entry(environment: Path) -> None:
    entry = inner_entry(read_environment(environment), 1)
    path = file_of(environment, 1)
    at = entry.offset + entry.header + entry.size // 2
    rewrite(path, at, bytes([path.read_bytes()[at] ^ 4]))
    assert place_of(refused(environment)) == ("LOG_CHECKSUM_WRONG", path.name, entry.offset)


def test_file_that_ends_within_an_entry_is_refused_before_the_last(environment: Path) -> None:
    entry = [each for each in read_environment(environment).entries if each.file == 1][-1]
    path = file_of(environment, 1)
    whole = path.read_bytes()
    for size in (entry.offset + 3, entry.offset + entry.header, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert place_of(refused(environment)) == ("LOG_ENTRY_TORN", path.name, entry.offset)


def test_file_without_its_last_entries_is_refused_by_the_next_one(environment: Path) -> None:
    entry = [each for each in read_environment(environment).entries if each.file == 1][-1]
    path = file_of(environment, 1)
    path.write_bytes(path.read_bytes()[: entry.offset])
    assert place_of(refused(environment)) == ("LOG_CHAIN_BROKEN", "00000002.jdb", 26)


def test_empty_file_before_the_last_is_refused(environment: Path) -> None:
    file_of(environment, 1).write_bytes(b"")
    refusal = refused(environment)
    assert (refusal.file, refusal.offset) == ("00000001.jdb", 0)
    assert refusal.code in {"LOG_HEADER_INVALID", "LOG_ENTRY_TORN"}


def test_wrong_file_number_is_refused(environment: Path) -> None:
    rewrite(file_of(environment, 1), 22, struct.pack("<I", 5), entry=0)
    refusal = refused(environment)
    assert (refusal.code, refusal.file) == ("LOG_HEADER_INVALID", "00000001.jdb")
    assert refusal.offset in {0, 22}


def test_wrong_previous_offset_is_refused_although_the_checksum_is_right(environment: Path) -> None:
    entry = inner_entry(read_environment(environment), 1)
    rewrite(file_of(environment, 1), entry.offset + 6, struct.pack("<I", 38), entry=entry.offset)
    refusal = refused(environment)
    assert (refusal.code, refusal.file) == ("LOG_CHAIN_BROKEN", "00000001.jdb")
    assert refusal.offset in {entry.offset, entry.offset + 6}


def test_item_that_is_not_used_up_is_refused_although_the_checksum_is_right(environment: Path) -> None:
    # A flag announces one field more than there is.
    entry = inner_entry(read_environment(environment), 1)
    path, at = file_of(environment, 1), entry.offset + entry.header
    flags = path.read_bytes()[at + 1]
    rewrite(path, at + 1, bytes([flags ^ 0x02]), entry=entry.offset)
    assert place_of(refused(environment)) == ("LOG_ITEM_MALFORMED", path.name, entry.offset)


@pytest.mark.parametrize("kind", ["link", "link to nowhere", "pipe", "directory"])
def test_file_that_is_no_regular_one_is_refused(environment: Path, kind: str) -> None:
    path = file_of(environment, 1)
    path.rename(environment / "aside")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("aside" if kind == "link" else "nowhere")
    refusal = refused(environment)
    assert (refusal.code, refusal.file) == ("LOG_FILE_NOT_REGULAR", path.name)


def test_what_is_no_environment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "00000000.del").write_text("x")
    for path in (tmp_path / "empty", tmp_path, tmp_path / "absent", tmp_path / "00000000.del"):
        with pytest.raises(LogRefused) as caught:
            plan_erasure(path, PlanRequest())
        assert caught.value.code == "NOT_AN_ENVIRONMENT"


@contextmanager
def without_rights() -> Iterator[None]:
    """Be nobody for a while, for root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_file_that_may_not_be_read_is_refused(grown: SmallEngine) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        Path(root).chmod(0o755)
        grown.log.write(Path(root))
        file_of(Path(root), 1).chmod(0)
        with without_rights(), pytest.raises(LogRefused) as caught:
            plan_erasure(Path(root), PlanRequest())
        assert (caught.value.code, caught.value.file) == ("ENVIRONMENT_UNREADABLE", "00000001.jdb")


def test_directory_that_may_not_be_read_is_refused(grown: SmallEngine) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        grown.log.write(Path(root) / "environment")
        Path(root).chmod(0o755)
        (Path(root) / "environment").chmod(0o311)
        with without_rights(), pytest.raises(LogRefused) as caught:
            plan_erasure(Path(root) / "environment", PlanRequest())
        assert caught.value.code == "ENVIRONMENT_UNREADABLE"


def appended(directory: Path, *entries: tuple[int, bytes]) -> list[int]:
    """Append entries to the last file; their offsets."""
    path = sorted(directory.glob("*.jdb"))[-1]
    last = [entry for entry in read_environment(directory).entries if entry.file == int(path.stem, 16)][-1]
    log = LogBytes()
    log.files[0], log.last = bytearray(path.read_bytes()), last.offset
    places = [log.append(kind, item) for kind, item in entries]
    path.write_bytes(log.files[0])
    return places


def test_restore_that_is_required_is_refused(environment: Path) -> None:
    places = appended(environment, (39, b"\x01A\x01\x01B"))
    last = sorted(environment.glob("*.jdb"))[-1].name
    assert place_of(refused(environment)) == ("RESTORE_REQUIRED", last, places[0])


def test_rollback_without_its_end_is_refused(environment: Path) -> None:
    last = sorted(environment.glob("*.jdb"))[-1]
    whole, begin = last.read_bytes(), int(last.stem, 16) << 32
    start = (28, packed(1) + packed(begin + 38) + packed(TIME_MS) + packed(0))
    place = appended(environment, start)[0]
    assert place_of(refused(environment)) == ("ROLLBACK_UNFINISHED", last.name, place)
    appended(environment, (29, packed(begin + 38) + packed(begin + place) + packed(TIME_MS)))
    assert plan_erasure(environment, PlanRequest()).torn_at is None
    # The end of another rollback ends none.
    last.write_bytes(whole)
    appended(environment, start, (29, packed(begin + 38) + packed(begin + 38) + packed(TIME_MS)))
    assert place_of(refused(environment)) == ("ROLLBACK_UNFINISHED", last.name, place)


def test_log_without_the_end_of_a_checkpoint_is_refused(tmp_path: Path) -> None:
    log = LogBytes()
    log.map(2, "users", -1)
    log.checkpoint_start(1)
    log.next_file()
    log.write(tmp_path / "environment")
    assert refused(tmp_path / "environment").code == "NO_CHECKPOINT"


@pytest.mark.parametrize("content", [b"", b"restore", None])
def test_marker_file_of_a_restore_is_refused(environment: Path, content: bytes | None) -> None:
    # JE leaves 7fffffff.jdb behind while a network restore is not finished; it opens no such environment.
    log = LogBytes(0x7FFFFFFF)
    log.append(39, b"\x01A\x01\x01B")
    written = bytes(log.files[0x7FFFFFFF]) if content is None else content
    (environment / "7fffffff.jdb").write_bytes(written)
    refusal = refused(environment)
    assert (refusal.code, refusal.file) == ("RESTORE_REQUIRED", "7fffffff.jdb")
