"""Units of tests, importable by a worker: what they do stands in the unit itself."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from spark.targets.connection import Connection, SessionLimits, Target
from spark.targets.errors import TargetAuthFailed, TargetLockTimeout
from spark.targets.work import UnitWork


def made_target(directory: Path, name: str = "shop.db") -> Target:
    """A SQLite file with one table of what was done."""
    with closing(sqlite3.connect(directory / name)) as made:
        made.execute("create table done (unit integer not null, pid integer not null)")
        made.commit()
    return Target(url=f"sqlite:///{directory / name}")


def note(conn: Connection, unit: int) -> int:
    """Write a row."""
    with conn.transaction():
        conn.execute("insert into done (unit, pid) values (:unit, :pid)", {"unit": unit, "pid": os.getpid()})
    return unit * unit


def note_first(conn: Connection, unit: tuple[int, list[str]]) -> int:
    """Write a row of a unit that names many keys."""
    return note(conn, unit[0])


def be_refused(conn: Connection, unit: int) -> int:
    """The server knows another password."""
    raise TargetAuthFailed(f"unit {unit}")


def think(conn: Connection, unit: int) -> int:
    """Take 50 ms."""
    time.sleep(0.05)
    return unit


def think_and_note(conn: Connection, unit: int) -> int:
    """Take 100 ms, and write a row that may be there once."""
    time.sleep(0.1)
    with conn.transaction():
        conn.execute(
            "insert into done (unit, pid) select :unit, :pid where not exists "
            "(select 1 from done where unit = :unit)",
            {"unit": unit, "pid": os.getpid()},
        )
    return unit * unit


def rest(conn: Connection, unit: int) -> int:
    """Take longer than a lease waits before it looks."""
    time.sleep(0.4)
    return unit


def think_long(conn: Connection, unit: int) -> int:
    """Take half a minute, in numpy, where no signal of Python's is looked at."""
    directory = Path(conn.target.url.removeprefix("sqlite:///")).parent
    (directory / "thinking").write_text(str(os.getpid()))
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        np.sort(np.random.default_rng(unit).random(2_000_000))
    return unit


def trip(conn: Connection, unit: int) -> int:
    """Every fifth meets a lock."""
    if unit % 5 == 4:
        raise TargetLockTimeout(f"unit {unit}")
    return unit


def blunder(conn: Connection, unit: int) -> int:
    """A mistake of the program."""
    raise KeyError(f"unit {unit}")


def die(conn: Connection, unit: int) -> int:
    """A unit that kills its worker, every time."""
    os.kill(os.getpid(), signal.SIGKILL)
    return unit


def die_once(conn: Connection, unit: int) -> int:
    """Kill the worker before the commit, the first time; after it, the second time; then do it."""
    directory = Path(conn.target.url.removeprefix("sqlite:///")).parent
    for time_of_death in ("before", "after"):
        marker = directory / f"{time_of_death}-{unit}"
        if marker.exists():
            continue
        marker.touch()
        if time_of_death == "after":
            note(conn, unit)
        os.kill(os.getpid(), signal.SIGKILL)
    return unit


def work_of(target: Target, run: object, **fields: object) -> UnitWork[int, int]:
    """The work of a test."""
    return UnitWork(target, SessionLimits(), "lethe:test", run, **fields)  # type: ignore[arg-type]


def done(target: Target) -> list[int]:
    """The units that were committed, each as often as it was."""
    with closing(sqlite3.connect(target.url.removeprefix("sqlite:///"))) as looked:
        return [unit for (unit,) in looked.execute("select unit from done order by unit")]
