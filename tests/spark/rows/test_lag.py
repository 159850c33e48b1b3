"""How far replicas are behind: a real pair of MariaDB servers, and a PostgreSQL without replicas."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from spark.rows.lag import lag_of_replica, lags_of_primary
from spark.targets.connection import Connection, Target, connect
from tests.conftest import need_mariadb
from tests.mariadb_server import FAST_SETTINGS, private_mariadb

PATIENCE_S = 30.0


def _lag(conn: Connection) -> float | None:
    return lag_of_replica(conn, "replica").seconds


@pytest.mark.long
@pytest.mark.mariadb
def test_a_replica_of_mariadb_tells_its_lag_and_nothing_while_it_stands_still() -> None:
    need_mariadb("MariaDB is not installed: no servers of the test's own")
    ours = FAST_SETTINGS | {"server-id": "1", "log-bin": "log", "binlog-format": "ROW"}
    with (
        private_mariadb(settings=ours) as primary,
        private_mariadb(settings=FAST_SETTINGS | {"server-id": "2"}) as replica,
    ):
        [(file, position, *_)] = primary.execute("show master status")
        replica.execute(
            f"change master to master_host = '127.0.0.1', master_port = {primary.port}, master_user = 'root',"
            f" master_log_file = '{file}', master_log_pos = {position}"
        )
        replica.execute("create database shop")
        with closing(connect(Target(replica.url("shop")), application_name="lag")) as conn:
            assert _lag(conn) is None  # it has not begun
            replica.execute("start slave")
            primary.execute("create table mysql.there (n integer)")
            deadline = time.monotonic() + PATIENCE_S
            while _lag(conn) != 0:
                assert time.monotonic() < deadline, replica.execute("show all slaves status")
                time.sleep(0.1)
            replica.execute("stop slave sql_thread")
            assert _lag(conn) is None
        with closing(connect(Target(primary.url("mysql")), application_name="lag")) as conn:
            assert _lag(conn) is None  # it follows nobody
            assert lags_of_primary(conn) == ()


def test_a_primary_of_postgresql_without_replicas_has_no_lag(postgresql_url: str) -> None:
    with closing(connect(Target(postgresql_url), application_name="lag")) as conn:
        assert lags_of_primary(conn) == ()
        assert _lag(conn) is None
