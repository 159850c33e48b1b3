"""`lethe backup`: exit codes, lists of files, lost leases, signals, and session files after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lethe_client import BackupFile, ConfigurationInvalid

from app.cli.backup import lease as backup_lease
from app.cli.backup.child_command import ChildCommand
from app.cli.backup.files import Kept, list_of, read_kept, write_kept
from tests.app.cli.conftest import Run, Service

BEGIN = "POST /v1/stores/orders/backup-sessions"
ONE = "/v1/stores/orders/backup-sessions/bks_1"
END, RENEW, GET = f"POST {ONE}:end", f"POST {ONE}:renew", f"GET {ONE}"
FILE = {
    "name": "00000000.jdb",
    "path": "/srv/je/00000000.jdb",
    "size": 10,
    "device": 1,
    "inode": 2,
    "mtime": "2026-11-20T10:54:39Z",
}
SESSION: dict[str, Any] = {
    "id": "bks_1",
    "store": "orders",
    "state": "ACTIVE",
    "lease": "PT10M",
    "erase_abort_timeout": "PT30S",
    "protection_id": "prt_1",
    "file_count": 2,
    "total_bytes": 20,
}
BEGUN = SESSION | {"files": [FILE, FILE | {"name": "00000001.jdb", "path": "/srv/je/with space.jdb"}]}
VALID = SESSION | {"state": "ENDED", "valid": True, "changed": []}
INVALID = SESSION | {
    "state": "INVALID",
    "valid": False,
    "changed": [{"name": "00000001.jdb", "fault": "TOUCHED"}],
}
GONE = {
    "code": "BACKUP_SESSION_EXPIRED",
    "detail": "the lease ran out",
    "retryable": False,
    "valid": False,
}
Lethe = Callable[..., Run]


@pytest.fixture
def ready(service: Service) -> Service:
    service.on(BEGIN, (201, BEGUN))
    service.on(END, (200, VALID))
    service.on(RENEW, (200, SESSION))
    service.on(GET, (200, SESSION))
    return service


def run(lethe: Lethe, *command: str, **options: str) -> Run:
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    return lethe("backup", "run", "--store", "orders", *given, "--json", "--", *command)


def test_command_gets_lists_of_the_files(ready: Service, lethe: Lethe, tmp_path: Path) -> None:
    script = "cat {files} > " + str(tmp_path / "a") + "; cat {files0} > " + str(tmp_path / "b")
    done = run(lethe, "sh", "-c", script)
    assert done.code == 0, done.err
    assert (tmp_path / "a").read_text() == "/srv/je/00000000.jdb\n/srv/je/with space.jdb\n"
    assert (tmp_path / "b").read_text() == "/srv/je/00000000.jdb\0/srv/je/with space.jdb\0"
    assert done.json() == {
        "session": "bks_1",
        "command_exit_code": 0,
        "valid": True,
        "reason": None,
        "changed": [],
    }
    [asked] = ready.bodies(BEGIN)
    assert asked == {"lease": "PT2M", "tool": "sh"}


def test_exit_code_of_the_command_comes_back_and_the_session_ends(ready: Service, lethe: Lethe) -> None:
    assert run(lethe, "sh", "-c", "exit 3").code == 3
    assert len(ready.bodies(END)) == 1


def test_command_ended_by_a_signal_is_told_as_a_shell_does(ready: Service, lethe: Lethe) -> None:
    assert run(lethe, "sh", "-c", "kill -KILL $$").code == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("reply", "reason"),
    [((200, INVALID), "00000001.jdb TOUCHED"), ((410, GONE), "the lease ran out")],
)
def test_copy_that_is_no_backup_is_75(
    ready: Service, lethe: Lethe, reply: tuple[int, Any], reason: str
) -> None:
    ready.on(END, reply)
    done = run(lethe, "true")
    assert done.code == 75
    assert done.json()["valid"] is False
    assert reason in done.json()["reason"]


def test_end_that_nobody_answers_is_asked_again_while_the_lease_holds(
    ready: Service, lethe: Lethe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service restarted just then. The copy was whole, and the command ended 75 all the same."""
    monkeypatch.setattr(backup_lease, "AGAIN_S", 0.05)
    away = (503, {"code": "STARTING", "detail": "the service starts", "retryable": False})
    ready.on(END, *[away] * 3, (200, VALID))
    done = run(lethe, "true")
    assert (done.code, done.json()["valid"], done.json()["reason"]) == (0, True, None)
    assert len(ready.bodies(END)) == 4
    assert "still held" in done.err


def test_end_that_nobody_answers_is_given_up_with_the_lease(
    ready: Service, lethe: Lethe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_lease, "AGAIN_S", 0.05)
    ready.on(BEGIN, (201, BEGUN | {"lease": "PT0.5S"}))
    ready.on(END, (503, {"code": "STARTING", "detail": "the service starts", "retryable": False}))
    begun = time.monotonic()
    done = run(lethe, "true")
    assert (done.code, done.json()["valid"]) == (75, False)
    assert "the service starts" in done.json()["reason"]
    assert time.monotonic() - begun < 15


def test_hook_asks_for_the_end_again_too(
    ready: Service, lethe: Lethe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_lease, "AGAIN_S", 0.05)
    session_file = tmp_path / "session"
    start(lethe, session_file)
    away = (503, {"code": "STARTING", "detail": "the service starts", "retryable": False})
    ready.on(END, *[away] * 3, (200, VALID))
    assert lethe("backup", "end", "--session-file", str(session_file)).code == 0


def test_failing_command_keeps_its_code_although_the_copy_is_invalid(ready: Service, lethe: Lethe) -> None:
    ready.on(END, (200, INVALID))
    assert run(lethe, "sh", "-c", "exit 3").code == 3


def test_eraser_that_does_not_stop_is_75_and_nothing_runs(
    service: Service, lethe: Lethe, tmp_path: Path
) -> None:
    refused = {"code": "ERASE_ABORT_TIMEOUT", "detail": "a round is still at work", "retryable": True}
    service.on(BEGIN, (503, refused, {"Idempotency-Replayed": "true"}))
    done = run(lethe, "touch", str(tmp_path / "ran"))
    assert (done.code, done.json()["code"]) == (75, "ERASE_ABORT_TIMEOUT")
    assert not (tmp_path / "ran").exists()
    assert len(service.bodies(BEGIN)) == 1, "what the key got before is not asked for again"


def test_command_that_is_not_there_begins_nothing(ready: Service, lethe: Lethe) -> None:
    assert run(lethe, "no-such-command-here").code == 64
    assert ready.bodies(BEGIN) == []


def test_wrong_duration_is_a_usage_error(ready: Service, lethe: Lethe) -> None:
    assert run(lethe, "true", lease="10 minutes").code == 64
    assert ready.bodies(BEGIN) == []


def test_lease_is_renewed_while_the_command_runs(ready: Service, lethe: Lethe) -> None:
    ready.on(BEGIN, (201, BEGUN | {"lease": "PT0.3S"}))
    assert run(lethe, "sleep", "0.5").code == 0
    assert len(ready.bodies(RENEW)) >= 2


def test_lost_lease_ends_the_command(ready: Service, lethe: Lethe) -> None:
    ready.on(BEGIN, (201, BEGUN | {"lease": "PT0.3S"}))
    ready.on(RENEW, (410, GONE))
    ready.on(END, (410, GONE))
    begun = time.monotonic()
    done = run(lethe, "sleep", "30")
    assert time.monotonic() - begun < 15
    assert done.code == 128 + signal.SIGTERM
    assert done.json()["valid"] is False
    assert "BACKUP_LOST" in done.err


def test_command_that_ignores_a_lost_lease_does_not_end_well(ready: Service, lethe: Lethe) -> None:
    ready.on(BEGIN, (201, BEGUN | {"lease": "PT0.3S"}))
    ready.on(RENEW, (410, GONE))
    done = run(lethe, sys.executable, "-c", "import signal,time;signal.signal(15,1);time.sleep(0.6)")
    assert done.code in (75, 128 + signal.SIGTERM)


def test_signal_goes_through_to_the_command(ready: Service, tmp_path: Path) -> None:
    mark = tmp_path / "trapped"
    script = (
        "import signal, sys, time\n"
        "def stop(*_):\n    open(sys.argv[1], 'a').write('x'); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, stop)\nopen(sys.argv[1], 'w').close()\ntime.sleep(30)\n"
    )
    command = [sys.executable, "-m", "app.cli.main", "backup", "run", "--store", "orders", "--"]
    running = subprocess.Popen(
        [*command, sys.executable, "-c", script, str(mark)],
        env=os.environ | {"LETHE_URL": ready.url, "LETHE_TOKEN": "t"},
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 30
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert running.wait(20) == 7
    assert mark.read_text() == "x"
    assert len(ready.bodies(END)) == 1


def test_handlers_of_signals_are_as_before_once_the_command_has_ended() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert ChildCommand(["true"]).run(started=lambda: None) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == mask


def start(lethe: Lethe, session_file: Path) -> Run:
    return lethe("backup", "start", "--store", "orders", "--session-file", str(session_file), "--json")


def key_of(service: Service, index: int = -1) -> str:
    asked = [headers for method, path, _, headers in service.asked if f"{method} {path}" == BEGIN]
    return asked[index]["idempotency-key"]


def test_start_is_repeated_under_its_key_while_the_session_lasts(
    ready: Service, lethe: Lethe, tmp_path: Path
) -> None:
    session_file = tmp_path / "session"
    assert start(lethe, session_file).json() == BEGUN
    assert session_file.stat().st_mode & 0o777 == 0o600
    assert start(lethe, session_file).json() == BEGUN
    assert key_of(ready, 0) == key_of(ready, 1)
    ready.on(GET, (200, VALID), (200, VALID), (200, SESSION))
    assert start(lethe, session_file).code == 0
    assert key_of(ready) != key_of(ready, 0)


def test_start_that_was_killed_before_its_answer_asks_under_the_same_key(
    ready: Service, lethe: Lethe, tmp_path: Path
) -> None:
    session_file = tmp_path / "session"
    write_kept(session_file, Kept("orders", "key-1", {"lease": "PT1M", "erase_abort_timeout": None}))
    assert start(lethe, session_file).code == 0
    assert key_of(ready) == "key-1"
    assert ready.bodies(BEGIN)[-1] == {"lease": "PT1M"}
    assert read_kept(session_file) == Kept(
        "orders", "key-1", {"lease": "PT1M", "erase_abort_timeout": None}, "bks_1"
    )


def test_refused_start_leaves_no_session(service: Service, lethe: Lethe, tmp_path: Path) -> None:
    session_file = tmp_path / "session"
    service.on(BEGIN, (409, {"code": "STORE_KIND_WRONG", "detail": "x", "retryable": False}))
    assert start(lethe, session_file).code == 1
    assert not session_file.exists()


def test_end_tells_by_its_code_whether_the_copy_is_one(ready: Service, lethe: Lethe, tmp_path: Path) -> None:
    session_file = tmp_path / "session"
    start(lethe, session_file)
    named = ("--session-file", str(session_file))
    assert lethe("backup", "end", *named).code == 0
    ready.on(END, (200, INVALID))
    assert lethe("backup", "end", *named).code == 75
    ready.on(END, (410, GONE))
    gone = lethe("backup", "end", *named, "--json")
    assert (gone.code, gone.json()["valid"]) == (75, False)
    ready.on(RENEW, (410, GONE))
    assert lethe("backup", "renew", *named).code == 75
    assert lethe("backup", "status", *named, "--json").json() == SESSION


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"store": 1, "key": "k", "request": {}}', b"\xff"])
def test_file_that_holds_no_session_is_refused(lethe: Lethe, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "session"
    path.write_bytes(content)
    assert lethe("backup", "end", "--session-file", str(path)).code == 78


def test_hook_without_a_session_is_a_usage_error(lethe: Lethe, tmp_path: Path) -> None:
    assert lethe("backup", "end", "--session-file", str(tmp_path / "none")).code == 64


def test_path_with_a_newline_is_refused_in_a_list_of_lines() -> None:
    file = BackupFile(**{**FILE, "path": "/srv/a\nb", "mtime": None})
    assert list_of([file], "\0") == b"/srv/a\nb\0"
    with pytest.raises(ConfigurationInvalid, match="files0"):
        list_of([file], "\n")


def test_backups_of_a_store_are_listed_like_its_cycles_and_protections(
    service: Service, lethe: Lethe
) -> None:
    service.on("GET /v1/stores/orders/backup-sessions", (200, {"items": [SESSION], "next_page_token": ""}))
    assert lethe("backup", "list", "orders", "--json").json() == {"items": [SESSION]}
    assert SESSION["id"] in lethe("backup", "list", "orders").out


def test_protections_are_listed_with_their_files(service: Service, lethe: Lethe) -> None:
    row = {
        "id": "prt_1",
        "store": "orders",
        "kind": "FEEDER",
        "name": "node 2",
        "state": "ACTIVE",
        "lease": "PT10M",
        "lease_expires_at": "2026-11-20T10:54:39Z",
        "ranges": [
            {"first": "00000001.jdb", "last": "00000001.jdb"},
            {"first": "00000003.jdb", "last": None},
        ],
    }
    service.on("GET /v1/stores/orders/protections", (200, {"items": [row], "next_page_token": ""}))
    service.on("POST /v1/stores/orders/protections/prt_1:end", (200, row | {"state": "ENDED"}))
    assert "00000001.jdb, 00000003.jdb.." in lethe("protection", "list", "orders").out
    assert lethe("protection", "list", "orders", "--json").json() == {"items": [row]}
    assert json.loads(lethe("protection", "end", "orders", "prt_1", "--json").out)["state"] == "ENDED"
