"""Secrets that a command prints: only the operator's, bounded, and gone with all that it has started."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.secrets.errors import SecretUnavailable
from app.secrets.models import SecretCreate
from app.secrets.reading import SECRET_MAX_BYTES, check_place, forget_reading, problem_of, read_reference
from app.settings import Settings
from app.starting import Misconfigured, check_places
from tests.app.jobs.workbench import in_threads

DEADLINE_S = 30.0


class Shelf:
    """Commands of an operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commands: dict[str, list[str]] = {}
        self.timeout_s = DEADLINE_S
        self.fresh_s = 0.0

    def add(self, name: str, script: str, *arguments: str) -> str:
        """A program of a shell script; returns the reference."""
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        self.commands[name] = [str(program), *arguments]
        return f"exec:{name}"

    @property
    def settings(self) -> Settings:
        return Settings(
            data_dir=self.folder / "data",
            exec_secrets=self.commands,
            exec_secret_timeout_s=self.timeout_s,
            secrets_fresh_s=self.fresh_s,
        )

    def read(self, reference: str) -> str:
        return read_reference(reference, name="shop", settings=self.settings)

    def fault(self, reference: str) -> str:
        with pytest.raises(SecretUnavailable) as refused:
            self.read(reference)
        assert "hunter2" not in refused.value.detail
        return refused.value.detail


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_what_a_command_prints_is_the_value(shelf: Shelf) -> None:
    reference = shelf.add("one", 'printf "%s-%s\\n" "$1" "$2"', "hunter2", "a b;$(id)")
    assert shelf.read(reference) == "hunter2-a b;$(id)"
    assert problem_of(reference, name="shop", settings=shelf.settings) is None


def test_command_gets_nothing_of_ours(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SECRET_OTHER", "hunter2")
    reference = shelf.add(
        "env", "env | sort | tr '\\n' ' '; ls /proc/self/fd | tr '\\n' ' '; pwd; read x; echo $x"
    )
    with (shelf.folder / "open").open("w") as ours:
        os.set_inheritable(ours.fileno(), True)
        found = shelf.read(reference)
    assert "hunter2" not in found
    assert "LETHE" not in found
    assert "0 1 2 3 /" in found.replace("\n", " ")  # 3 is what ls reads


def test_only_commands_of_the_settings_run(shelf: Shelf) -> None:
    shelf.add("one", "echo hunter2")
    assert "names no command two" in shelf.fault("exec:two")
    for wrong in ("exec:/bin/cat", "exec:../one", "exec:one two", "exec:", "exec:One", "exec:one;id"):
        with pytest.raises(ValidationError):
            SecretCreate(name="a", reference=wrong, stores=["shop"], hosts=["h"])
    with pytest.raises(ValueError, match="names no command"):
        check_place("exec:two", shelf.settings)


def test_program_that_others_can_change_is_refused(shelf: Shelf) -> None:
    reference = shelf.add("one", "echo hunter2")
    program = Path(shelf.commands["one"][0])
    check_places(shelf.settings)
    for mode, words in ((0o777, "changed by others"), (0o775, "changed by others"), (0o644, "no program")):
        program.chmod(mode)
        assert words in shelf.fault(reference)
        with pytest.raises(Misconfigured, match=words):
            check_places(shelf.settings)
    program.unlink()
    assert "No such file" in shelf.fault(reference)
    shelf.commands["one"] = ["sh", "-c", "echo hunter2"]
    assert "absolute path" in shelf.fault(reference)


def test_command_that_fails_or_says_too_much(shelf: Shelf) -> None:
    for script, words in (
        ("echo hunter2; exit 3", "ended with 3"),
        ("echo hunter2 >&2", "it is empty"),
        ("kill -9 $$", "ended with -9"),
        (f"head -c {SECRET_MAX_BYTES + 1} /dev/zero", f"more than {SECRET_MAX_BYTES} bytes"),
        ("yes hunter2", f"more than {SECRET_MAX_BYTES} bytes"),
        ("printf '\\377'", "not UTF-8"),
    ):
        assert words in shelf.fault(shelf.add("bad", script))


def test_command_that_hangs_is_killed_with_its_children(shelf: Shelf) -> None:
    shelf.timeout_s = 1.0
    note = shelf.folder / "pids"
    script = f"sleep 600 & echo $! > {note}; trap '' TERM; echo hunter2; sleep 600"
    assert "longer than 1 s" in shelf.fault(shelf.add("hangs", script))
    assert _is_gone(int(note.read_text()))


def test_who_is_left_behind_is_not_waited_for(shelf: Shelf) -> None:
    note = shelf.folder / "pids"
    reference = shelf.add("leaves", f"sleep 600 & echo $! > {note}; echo hunter2")
    assert shelf.read(reference) == "hunter2"
    assert _is_gone(int(note.read_text()))


def test_a_crowd_has_a_command_run_once(shelf: Shelf) -> None:
    shelf.fresh_s = 300.0
    count = shelf.folder / "count"
    reference = shelf.add("slow", f"echo x >> {count}; sleep 0.3; echo hunter2")
    settings = shelf.settings

    def read(_number: int) -> None:
        assert read_reference(reference, name="shop", settings=settings) == "hunter2"

    assert in_threads(8, read) == [None] * 8
    assert count.read_text() == "x\n"
    forget_reading(reference, settings)
    read(0)
    assert count.read_text() == "x\nx\n"


def test_a_hanging_command_is_waited_for_once_by_a_crowd(shelf: Shelf) -> None:
    shelf.timeout_s = 1.0
    count = shelf.folder / "count"
    reference = shelf.add("hangs", f"echo x >> {count}; sleep 600")
    settings = shelf.settings
    begin = threading.Barrier(6)

    def read(_number: int) -> None:
        begin.wait()
        with pytest.raises(SecretUnavailable):
            read_reference(reference, name="shop", settings=settings)

    assert in_threads(6, read) == [None] * 6
    assert len(count.read_text().split()) <= 2
    assert "longer than" in str(problem_of(reference, name="shop", settings=settings))


def test_a_list_of_secrets_runs_no_command(shelf: Shelf) -> None:
    count = shelf.folder / "count"
    reference = shelf.add("one", f"echo x >> {count}; echo hunter2")
    assert problem_of(reference, name="shop", settings=shelf.settings) is None
    assert not count.exists()


def test_python_is_a_program_too(shelf: Shelf) -> None:
    program = os.path.realpath(sys.executable)
    if os.stat(program).st_uid in (0, os.geteuid()) and not os.stat(program).st_mode & 0o022:
        shelf.commands["python"] = [program, "-c", "print('hunter2')"]
        assert shelf.read("exec:python") == "hunter2"
