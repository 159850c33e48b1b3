"""Whether a row of an instance speaks of a process that may still work."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from datetime import timedelta

import pytest

from app.db import Database
from app.jobs.rows import Instance
from app.jobs.running.instances import Namesake

OURS = socket.gethostname()[:255]


def _ended() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def _unreaped() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()  # it ends, and nobody has asked how
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


@pytest.mark.parametrize(
    ("hostname", "who", "heard_s", "stopped", "wanted"),
    [
        pytest.param("elsewhere", "ended", 1, False, True, id="on another machine, heard just now"),
        pytest.param("elsewhere", "ended", 44, False, True, id="on another machine, between two heartbeats"),
        pytest.param("elsewhere", "ended", 46, False, False, id="on another machine, silent"),
        pytest.param("elsewhere", "ended", 1, True, False, id="on another machine, stopped"),
        pytest.param(OURS, "parent", 1, False, True, id="here, and alive"),
        pytest.param(OURS, "ended", 1, False, False, id="here, killed"),
        pytest.param(OURS, "unreaped", 1, False, False, id="here, killed, and still in the table"),
        pytest.param(OURS, "self", 1, False, False, id="here, of our number: a container begun again"),
    ],
)
def test_who_may_live(
    database: Database, hostname: str, who: str, heard_s: float, *, stopped: bool, wanted: bool
) -> None:
    unreaped = _unreaped()
    pids = {"ended": _ended(), "parent": os.getppid(), "unreaped": unreaped.pid, "self": os.getpid()}
    with database.transaction() as db:
        now = database.now(db)
        heard = now - timedelta(seconds=heard_s)
        fields = {"role": "worker", "version": "1", "labels": [], "started_at": heard, "heartbeat_at": heard}
        row = Instance(
            id="ins_a", hostname=hostname, pid=pids[who], stopped_at=heard if stopped else None, **fields
        )
        db.add(row)
        db.flush()
        assert Namesake("ins_a").may_live(db, now=now) is wanted
        assert not Namesake("ins_b").may_live(db, now=now)
    unreaped.communicate()


def test_heartbeat_of_a_clock_that_was_ahead_counts_from_when_it_was_first_seen(database: Database) -> None:
    """The clock was set back by a day: a crashed process was waited for as long."""
    with database.transaction() as db:
        now = database.now(db)
        ahead = now + timedelta(days=1)
        db.add(
            Instance(
                id="ins_a",
                hostname="elsewhere",
                pid=1,
                role="worker",
                version="1",
                labels=[],
                started_at=ahead,
                heartbeat_at=ahead,
            )
        )
        db.flush()
        namesake = Namesake("ins_a")
        found = [namesake.may_live(db, now=now + timedelta(seconds=after)) for after in (0, 44, 46)]
        assert found == [True, True, False]
