"""A purge went on beside a standby that had lost its primary: what it has, it has replayed, so it said 0 s.
And one that had just come back, hours behind, was near for the primary, which had not measured it yet.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spark.rows.lag import Lag, lag_of_replica, lags_of_primary
from spark.targets.connection import Connection, Target, connect
from tests.conftest import FAST_SETTINGS
from tests.postgresql_server import PostgresqlServer, scratch_directory

PATIENCE_S = 30.0
TOLD = {"wal_receiver_status_interval": "1", "wal_retrieve_retry_interval": "100"}
BACKLOG_KB, MESSAGE_KB = 48_000, 8_000
"""More than the buffers of a connection on this machine hold."""


@dataclass(frozen=True)
class Pair:
    """A primary and its standby, with a connection to each."""

    primary: PostgresqlServer
    standby: PostgresqlServer

    @contextmanager
    def on_primary(self) -> Iterator[Connection]:
        with closing(connect(Target(self.primary.url()), application_name="lag")) as conn:
            yield conn

    @contextmanager
    def on_standby(self, user: str = "lethe") -> Iterator[Connection]:
        url = self.standby.url(user=user)
        with closing(connect(Target(url), application_name="lag", read_only=True)) as conn:
            yield conn

    def write(self) -> float:
        """One more row at the primary; when it was there."""
        with psycopg.connect(self.primary.conninfo(), autocommit=True) as raw:
            raw.execute("insert into there values (1)")
        return time.monotonic()

    def rows(self) -> int:
        """Rows at the standby."""
        return int(_ask(self.standby, "select count(*) from there"))


def _ask(server: PostgresqlServer, sql: str) -> Any:
    with psycopg.connect(server.conninfo(), autocommit=True) as raw:
        found = raw.execute(sql).fetchone()
    assert found is not None
    return found[0]


def _until(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture(scope="module")
def pair(postgresql_binaries: Path) -> Iterator[Pair]:
    with scratch_directory() as here, scratch_directory() as there, ExitStack() as stack:
        kept = FAST_SETTINGS | {"wal_keep_size": "512MB"}
        primary = PostgresqlServer(postgresql_binaries, here, settings=kept)
        stack.callback(primary.stop)
        primary.start()
        with psycopg.connect(primary.conninfo(), autocommit=True) as raw:
            raw.execute("create table there (n integer)")
            raw.execute("create role plain login")
        standby = PostgresqlServer(postgresql_binaries, there, settings=FAST_SETTINGS | TOLD, primary=primary)
        stack.callback(standby.stop)
        standby.start()
        yield Pair(primary, standby)


def _says(conn: Connection) -> float | None:
    return lag_of_replica(conn, "standby").seconds


def test_a_standby_that_has_replayed_all_is_near_for_both(pair: Pair) -> None:
    pair.write()
    before, near = pair.rows(), (Lag("walreceiver", 0.0),)
    with pair.on_primary() as primary, pair.on_standby() as standby:
        _until(lambda: _says(standby) == 0 and pair.rows() >= before)
        # The primary writes of itself (what runs, a checkpoint): behind that it is unknown for an instant.
        unmeasured = "select replay_lag is null from pg_stat_replication"
        _until(lambda: _ask(pair.primary, unmeasured) and lags_of_primary(primary) == near)
        assert _says(primary) is None  # it follows nobody
    with pair.on_standby(user="plain") as conn:
        assert _says(conn) == 0  # it sees that there is a receiver, and no more


def test_a_standby_that_replays_late_says_how_late(pair: Pair) -> None:
    with pair.on_standby() as standby, pair.on_primary() as primary:
        before = pair.rows()
        pair.write()  # one that has replayed no transaction since it began does not know how old its last is
        _until(lambda: pair.rows() > before and _says(standby) == 0)
        _ask(pair.standby, "select pg_wal_replay_pause()")
        _until(lambda: _ask(pair.standby, "select pg_get_wal_replay_pause_state()") == "paused")
        try:
            wrote_at = pair.write()
            _until(lambda: _says(standby) != 0)
            _until(lambda: any(lag.seconds is None or lag.seconds >= 1 for lag in lags_of_primary(primary)))
            waited_s = time.monotonic() - wrote_at
            said = _says(standby)
            assert said is not None
            assert said >= waited_s
        finally:
            _ask(pair.standby, "select pg_wal_replay_resume()")
        _until(lambda: _says(standby) == 0)


def test_a_standby_that_lost_its_primary_is_as_old_as_its_last_row(pair: Pair) -> None:
    before = pair.rows()
    with pair.on_standby() as standby:
        wrote_at = pair.write()
        _until(lambda: pair.rows() > before and _says(standby) == 0)
        pair.primary.kill9()
        try:
            _until(lambda: _ask(pair.standby, "select count(*) from pg_stat_wal_receiver") == 0)
            waited_s = time.monotonic() - wrote_at
            said = _says(standby)
            assert said is not None
            assert said >= waited_s
        finally:
            pair.primary.restart()
        _until(lambda: _says(standby) == 0)


def test_a_standby_that_has_just_come_back_is_not_known_to_be_near(pair: Pair) -> None:
    """A receiver of the test's own: it says what it has, and reads nothing of what it lacks."""
    begin = _ask(pair.primary, "select pg_current_wal_flush_lsn()")
    at = int(_ask(pair.primary, f"select pg_wal_lsn_diff('{begin}', '0/0')"))
    message = f"select pg_logical_emit_message(false, 'late', repeat('x', {MESSAGE_KB} * 1024))"
    for _ in range(BACKLOG_KB // MESSAGE_KB):
        _ask(pair.primary, message)
    _ask(pair.primary, "select pg_switch_wal()")
    conninfo = f"{pair.primary.conninfo()} replication=true application_name=late"
    with closing(psycopg.connect(conninfo, autocommit=True)) as raw, pair.on_primary() as primary:
        raw.pgconn.send_query(f"START_REPLICATION PHYSICAL {begin}".encode())
        reply = struct.pack(">cQQQQB", b"r", at, at, at, 0, 0)
        raw.pgconn.get_result()
        raw.pgconn.put_copy_data(reply)
        raw.pgconn.flush()
        told = "select max(replay_lsn::text) is not null and max(state) = 'catchup' from pg_stat_replication"
        _until(lambda: bool(_ask(pair.primary, f"{told} where application_name = 'late'")))
        assert Lag("late", None) in lags_of_primary(primary)
