"""The whole of it: the demo with a real service, a real database and a real archive."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest


@pytest.mark.long  # `make wheels`, a step of CI, runs the demo of the installed wheel
@pytest.mark.journey
def test_demo_purges_what_it_says_and_its_archive_verifies(tmp_path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli.main", "demo", "--rows", "20000", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path), "LETHE_PORT": "not used by the demo"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    removed = report["job"]["result"]["removed"]
    for table, before in report["before"].items():
        assert before - report["after"][table] == removed[table.removeprefix("sym_")] > 0
    assert report["job"]["result"]["archive"]["rows"] == sum(removed.values())
    assert report["verification"]["state"] == "SUCCEEDED"
    assert report["replication"]["audit"]["agrees"] is True
    assert {rid: each["sent"] for rid, each in report["replication"]["session"]["counters"].items()} == {
        "1": 50_000,
        "3": 30_000,
    }
    assert report["job"]["result"]["stranded"]["marked"] == 0
    assert report["plan"]["stranded"]["rows"] > report["plan"]["stranded"]["batches"] > 0
    assert "0 went in the last 1 s." in done.stderr
    assert Path(report["folder"]).parent == tmp_path
    with closing(sqlite3.connect(report["database"])) as db:
        for node in ("store-03", "store-05"):  # one is stuck, one disabled: neither loses anything
            stuck = f"select count(*) from sym_outgoing_batch where node_id = '{node}' and status <> 'OK'"
            assert db.execute(stuck).fetchone()[0] > 0


@pytest.mark.long
@pytest.mark.journey
def test_ctrl_c_while_the_resumed_purge_is_watched_ends_the_demo_in_order(tmp_path) -> None:
    """Ctrl-C during a progress bar of the demo was reported as a bug of the command, with exit code 70."""
    said = []
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "demo", "--rows", "20000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        # A shell's background job would ignore SIGINT, and hand that down to us.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            said.append(line)
            if line.startswith("Resumed"):
                demo.send_signal(signal.SIGINT)
    assert demo.returncode == 130, "".join(said)
    assert said[-1].startswith("Stopped. The folder ")


@pytest.mark.journey
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_demo_that_is_ended_leaves_no_service_behind(tmp_path, number) -> None:
    """Its service is in a session of its own: it went on when the terminal was closed, and its JVM."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "demo", "--rows", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        demo.stdout.readline()  # the service is there
        demo.send_signal(number)
    assert demo.returncode == 130
    assert not [each for each in Path("/proc").iterdir() if str(tmp_path).encode() in _words_of(each)]


@pytest.mark.journey
def test_demo_that_is_killed_leaves_no_service_behind(tmp_path) -> None:
    """After kill -9 of the demo its service went on for good, and the JVM of that."""
    with subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "demo", "--rows", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as demo:
        assert demo.stdout is not None
        while b"Store 'shop'" not in demo.stdout.readline():  # the service is there
            pass
        demo.kill()
    try:
        deadline = time.monotonic() + 20
        while (left := _left_of(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert left == []
    finally:
        for pid in _left_of(tmp_path):
            os.kill(pid, signal.SIGKILL)


def _left_of(folder: Path) -> list[int]:
    """Processes that name a folder."""
    name = str(folder).encode()
    return [int(each.name) for each in Path("/proc").glob("[0-9]*") if name in _words_of(each)]


def _words_of(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:  # no process, or one that has just ended
        return b""
