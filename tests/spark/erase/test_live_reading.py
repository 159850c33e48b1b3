"""A log that moves while it is read: growing, torn, vanishing, and what has not begun yet."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark.erase.calls.calls import PlanCall, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogFileChanged, LogFileNotRegular, LogFileVanished
from spark.erase.reading import directory, live_reading
from spark.erase.unit import do
from tests.spark.erase.live_environments import NO_GRACE, held, plan, planned, write_environment

Happening = Callable[[], object]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A log without an end: whoever wrote it has stopped somewhere behind the last checkpoint."""
    written = write_environment(tmp_path)
    for key in range(20):
        written.put(None, "records", b"late-%03d" % key, b"value %030d" % key)
    written.crash()
    return tmp_path


@pytest.fixture
def while_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Happening], None]:
    """Lets something happen just before a file is read, when all are open and their sizes noted."""

    def arrange(name: str, happening: Happening) -> None:
        real = live_reading.read_file

        def read_file(file: Any, **options: Any) -> Any:
            if file.name == name:
                happening()
            return real(file, **options)

        monkeypatch.setattr(live_reading, "read_file", read_file)

    return arrange


def files(environment: Path) -> list[Path]:
    return sorted(environment.glob("*.jdb"))


@contextmanager
def in_use(environment: Path) -> Iterator[None]:
    with held(environment, 0, exclusive=True):
        yield


# The last file.


def test_last_file_cut_anywhere_changes_nothing_while_the_checkpoint_is_there(environment: Path) -> None:
    whole, last = plan(environment), files(environment)[-1]
    data = last.read_bytes()
    end_of_checkpoint = (whole.checkpoint.lsn & 0xFFFFFFFF) + 200
    assert whole.checkpoint.lsn >> 32 == int(last.name[:8], 16)
    for size in random.Random(3).sample(range(end_of_checkpoint, len(data)), 25):
        last.write_bytes(data[:size])
        found = plan(environment)
        assert (found.checkpoint, planned(found)) == (whole.checkpoint, planned(whole))
        assert found.torn_at is None or found.torn_at[0] == last.name


def test_last_file_is_read_up_to_the_first_bad_checksum(environment: Path) -> None:
    whole, last = plan(environment), files(environment)[-1]
    data = bytearray(last.read_bytes())
    at = (whole.checkpoint.lsn & 0xFFFFFFFF) + 400
    data[at] ^= 1
    last.write_bytes(data)
    found = plan(environment)
    assert planned(found) == planned(whole)
    assert found.torn_at is not None
    assert at - 100 < found.torn_at[1] <= at


@pytest.mark.parametrize("begun", [b"", bytes(20), bytes(4096)])
def test_file_that_has_no_header_yet_and_the_one_before_it_are_the_end(
    environment: Path, begun: bytes
) -> None:
    whole, last = plan(environment), files(environment)[-1]
    (environment / f"{int(last.name[:8], 16) + 1:08x}.jdb").write_bytes(begun)
    assert planned(plan(environment)) == planned(whole)
    last.write_bytes(last.read_bytes()[:-7])
    assert planned(plan(environment)) == planned(whole)


def test_file_that_grows_is_read_up_to_the_size_that_was_noted(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    whole, last = plan(environment), files(environment)[-1]

    def grow() -> None:
        with last.open("ab") as log:
            log.write(bytes(1000))

    while_reading(last.name, grow)
    found = plan(environment)
    assert planned(found) == planned(whole)
    assert found.torn_at is None


def test_files_that_begin_meanwhile_are_not_read(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    whole, last = plan(environment), files(environment)[-1]
    following = environment / f"{int(last.name[:8], 16) + 1:08x}.jdb"
    while_reading(last.name, lambda: following.write_bytes(b"of a log that is none"))
    found = plan(environment)
    assert (planned(found), len(found.files)) == (planned(whole), len(whole.files))


def test_last_file_that_is_cut_off_meanwhile_ends_the_pass(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    last = files(environment)[-1]
    while_reading(last.name, lambda: last.write_bytes(last.read_bytes()[:-40]))
    with pytest.raises(LogFileChanged):
        plan(environment)


# Files that vanish.


@pytest.mark.parametrize("gone", [0, 2])
def test_file_that_vanishes_meanwhile_is_dropped_and_the_others_are_planned_as_if_it_were_there(
    environment: Path, while_reading: Callable[[str, Happening], None], gone: int
) -> None:
    whole = do(PlanCall(str(environment), PlanRequest(), NO_GRACE))
    path = files(environment)[gone]
    while_reading(files(environment)[1].name, lambda: path.unlink(missing_ok=True))
    with in_use(environment):
        answer = do(PlanCall(str(environment), PlanRequest(), NO_GRACE))
    assert answer.refusal is None
    left = [each for each in whole.files if each.number != int(path.name[:8], 16)]
    assert [(each.number, each.entries) for each in answer.files] == [
        (each.number, each.entries) for each in left
    ]
    assert sum(each.entry_count for each in left)
    assert (answer.checkpoint_lsn, answer.witness) == (whole.checkpoint_lsn, whole.witness)


def test_log_whose_newest_file_is_taken_away_is_another(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    """JE deletes no newest file. What proves that the log is the one that was read is gone with it."""
    path = files(environment)[-1]
    while_reading(files(environment)[1].name, lambda: path.unlink(missing_ok=True))
    with in_use(environment), pytest.raises(Refused) as refused:
        plan(environment)
    assert (refused.value.refusal.code, refused.value.refusal.file) == (RefusalCode.LOG_MOVED, path.name)


def test_file_that_vanished_before_it_was_opened_again_ends_the_pass(
    environment: Path,
    while_reading: Callable[[str, Happening], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_reading, "room_for", lambda _count: 2)
    assert planned(plan(environment))
    first, second = files(environment)[:2]
    while_reading(second.name, first.unlink)
    with pytest.raises(LogFileVanished) as vanished:
        plan(environment)
    assert vanished.value.file == first.name


def test_file_that_came_and_went_while_the_list_was_made_is_no_matter(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, lists = directory.file_names, 0

    def file_names(where: Path) -> list[str]:
        nonlocal lists
        lists += 1
        names = real(where)
        # The first list lacks the newest file, and still has one that was deleted since.
        return ["00000000.jdb", *names[1:-1]] if lists == 1 else names

    whole = plan(environment)
    monkeypatch.setattr(directory, "file_names", file_names)
    assert planned(plan(environment)) == planned(whole)
    assert lists == 3


def test_list_that_never_stands_still_ends_the_pass(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [path.name for path in files(environment)]
    lists = itertools.cycle([names, names[1:]])
    monkeypatch.setattr(directory, "file_names", lambda where: next(lists))
    with pytest.raises(LogFileChanged):
        plan(environment)


def test_file_replaced_meanwhile_ends_the_pass(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    path = files(environment)[2]

    def replace() -> None:
        copy = path.with_suffix(".new")
        copy.write_bytes(path.read_bytes())
        copy.rename(path)

    while_reading(files(environment)[1].name, replace)
    with pytest.raises(LogFileChanged) as changed:
        plan(environment)
    assert changed.value.file == path.name


def test_sealed_file_that_grows_ends_the_pass(
    environment: Path, while_reading: Callable[[str, Happening], None]
) -> None:
    path = files(environment)[0]

    def grow() -> None:
        with path.open("ab") as log:
            log.write(bytes(10))

    while_reading(files(environment)[1].name, grow)
    with pytest.raises(LogFileChanged):
        plan(environment)


def test_symbolic_link_is_refused(environment: Path) -> None:
    path = files(environment)[0]
    path.rename(environment / "elsewhere")
    path.symlink_to(environment / "elsewhere")
    with pytest.raises(LogFileNotRegular):
        plan(environment)


def test_all_that_was_read_is_synced_before_anything_is_decided(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    for name in ("read_file", "make_durable"):
        real = getattr(live_reading, name)

        def noted(*arguments: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            happened.append(name)
            return real(*arguments, **options)

        monkeypatch.setattr(live_reading, name, noted)
    plan(environment)
    assert happened == ["read_file"] * len(files(environment)) + ["make_durable"]
