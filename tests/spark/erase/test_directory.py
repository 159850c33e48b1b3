"""What is no environment, or none that may be worked on, is refused by name."""

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.errors import (
    LogFileChanged,
    LogFileNotRegular,
    LogHeaderInvalid,
    LogVersionUnsupported,
    NotAnEnvironment,
)
from spark.erase.plan.plan import plan_erasure
from spark.erase.reading.directory import file_names, opened
from spark.erase.reading.log import read_log

ROOT = Path(__file__).parents[3]


def test_directory_without_log_files_is_no_environment(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "00000000.del").write_text("x")
    with pytest.raises(NotAnEnvironment, match="no log file"):
        file_names(tmp_path)
    with pytest.raises(NotAnEnvironment, match="no directory"):
        file_names(tmp_path / "notes.txt")
    with pytest.raises(NotAnEnvironment, match="does not exist"):
        file_names(tmp_path / "away")


@pytest.mark.parametrize("version", [8, 12, 16, 19, 22, 25, 27, 0, -1])
def test_other_log_versions_are_refused_by_name(copy_of: Callable[[str], Path], version: int) -> None:
    directory = copy_of("replicated")
    with (directory / "00000001.jdb").open("r+b") as file:
        file.seek(34)
        file.write(struct.pack("<i", version))
    with pytest.raises(LogVersionUnsupported, match=f"log version {version}") as refused:
        plan_erasure(directory, PlanRequest())
    assert (refused.value.file, refused.value.offset) == ("00000001.jdb", 34)


def test_file_under_a_wrong_number_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("replicated")
    (directory / "00000001.jdb").rename(directory / "00000005.jdb")
    with pytest.raises(LogHeaderInvalid, match=r"says that it is 00000001.jdb"):
        plan_erasure(directory, PlanRequest())


def test_foreign_file_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("replicated")
    (directory / "00000000.jdb").write_bytes(b"SQLite format 3\0" * 100)
    with pytest.raises(LogHeaderInvalid) as refused:
        plan_erasure(directory, PlanRequest())
    assert (refused.value.file, refused.value.offset) == ("00000000.jdb", 0)


def test_links_pipes_and_directories_are_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("replicated")
    first = directory / "00000000.jdb"
    first.rename(directory / "elsewhere")
    for make in (lambda: first.symlink_to("elsewhere"), lambda: os.mkfifo(first), first.mkdir):
        make()
        with pytest.raises(LogFileNotRegular) as refused:
            plan_erasure(directory, PlanRequest())
        assert refused.value.file == first.name
        first.rmdir() if first.is_dir() and not first.is_symlink() else first.unlink()


def test_file_that_changes_while_it_is_read_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("replicated")
    with read_log(directory, verify=False) as log:
        log.open_files[0].look_again()
        with (directory / "00000000.jdb").open("ab") as file:
            file.write(b"x")
        with pytest.raises(LogFileChanged):
            log.open_files[0].look_again()
        os.replace(directory / "00000001.jdb", directory / "moved")
        (directory / "00000001.jdb").write_bytes((directory / "moved").read_bytes())
        with pytest.raises(LogFileChanged):
            log.open_files[1].look_again()
        with pytest.raises(LogFileChanged, match="shorter"):
            log.open_files[1].read(10**9, 1)


def test_descriptors_are_few_and_files_stay_the_same(tmp_path: Path) -> None:
    # JE's files have 10 MB by default: 10 GB are a thousand, and a process may often open only 1,024.
    for number in range(200):
        (tmp_path / f"{number:08x}.jdb").write_bytes(bytes([number]))
    before = len(os.listdir("/proc/self/fd"))
    with opened(tmp_path, file_names(tmp_path)) as files:
        assert [file.read(0, 1)[0] for file in files] == list(range(200))
        assert len(os.listdir("/proc/self/fd")) <= before + 64
        (tmp_path / "00000003.jdb").unlink()
        (tmp_path / "00000003.jdb").write_bytes(b"other")
        with pytest.raises(LogFileChanged):
            files[3].read(0, 1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_machine_code_is_not_kept_where_nothing_can_be_written(tmp_path: Path) -> None:
    # A read-only image without a home: the reader compiles in each process instead of failing.
    (tmp_path / "file").write_text("")
    program = (
        "from spark.erase.native import compiling, reading; import numpy as np;"
        "assert not compiling.KEPT; print(reading.packed(np.array([5], dtype=np.uint8), 0, 1, 4)[0])"
    )
    nowhere = str(tmp_path / "file" / "below")
    environment = {"NUMBA_CACHE_DIR": nowhere, "HOME": nowhere}
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "5\n", run.stderr
