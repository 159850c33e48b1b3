"""Several purges ROWS of a schema: at once where no foreign key joins their tables, else one by one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.targets.archive.archive import read_manifest_json, read_rows
from spark.targets.connection import Connection, Target, connect
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for

ROWS = 400
OLD = 300
PATIENCE_S = 90.0
# `line` and `stock` are joined over `article`; nothing joins `visit` with them.
TABLES = ("article", "line", "stock", "visit")
SLOW = {"max_rows_in_tx": 20, "max_rows_per_s": 60}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of the test's own, which may die."""
    settings = {
        "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1",
        "LETHE_CRASH_LOOP_MAX": "100",
        "LETHE_SPARK__ENABLED": "false",
    }
    found = ServiceProcess(tmp_path / "service", settings=settings).start()
    yield found
    found.kill9()


@pytest.fixture(
    params=[
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def conn(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """A schema of four tables with three hundred old rows each; rows of `article` are needed by none."""
    target = Target(str(request.getfixturevalue(f"{request.param}_url")), table_prefix="")
    with closing(connect(target, application_name="looks")) as made:
        for name in TABLES:
            joined = ", article integer references article (id)" if name in ("line", "stock") else ""
            if made.dialect.name == "mysql" and joined:
                joined = ", article integer, foreign key (article) references article (id)"
            made.execute(f"create table {name} (id integer primary key, at timestamp null{joined})")
            rows = ", ".join(
                f"({n}, '{'2020' if n < OLD else '2037'}-01-01 00:00:00'{', null' if joined else ''})"
                for n in range(ROWS)
            )
            made.execute(f"insert into {name} values {rows}")
        yield made


def body(table: str, **fields: Any) -> dict[str, Any]:
    return {
        "kind": "ROWS",
        "table": table,
        "time_column": "at",
        "older_than": "P1D",
        "archive": {"format": "PARQUET"},
    } | fields


def register(http: httpx.Client, conn: Connection) -> None:
    answer = http.post("/v1/stores", json={"id": "s", "kind": "SQL", "url": conn.target.url})
    assert answer.status_code == 201, answer.text


def purge(http: httpx.Client, table: str, **fields: Any) -> httpx.Response:
    return http.post("/v1/stores/s/purges", json=body(table, **fields))


def begun(conn: Connection, *tables: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(left(conn, table) == ROWS for table in tables):
        assert time.monotonic() < deadline, "they do not begin"
        time.sleep(0.02)


def left(conn: Connection, table: str) -> int:
    [(count,)] = conn.execute(f"select count(*) from {table}")
    return int(count)


def check_done(job: dict[str, Any], conn: Connection, table: str) -> None:
    assert job["state"] == "SUCCEEDED", job
    assert job["result"]["removed"] == {table: OLD}
    kept = Counter(
        int(row[0])
        for entry in read_manifest_json(Path(job["result"]["archive"]["directory"]))
        for row in read_rows(entry.path)
    )
    assert kept == Counter(range(OLD))
    assert left(conn, table) == ROWS - OLD


def test_tables_that_nothing_joins_go_at_the_same_time(service: ServiceProcess, conn: Connection) -> None:
    with service.http() as http:
        register(http, conn)
        jobs = {table: accepted(purge(http, table, **SLOW)) for table in ("line", "visit")}
        begun(conn, *jobs)
        states = {http.get(f"/v1/jobs/{job_id}").json()["state"] for job_id in jobs.values()}
        assert states == {"RUNNING"}
        for job_id in jobs.values():
            http.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": None})
        for table, job_id in jobs.items():
            check_done(wait_for(http, job_id, timeout_s=PATIENCE_S), conn, table)


def test_tables_that_foreign_keys_join_go_one_after_the_other(
    service: ServiceProcess, conn: Connection
) -> None:
    with service.http() as http:
        register(http, conn)
        first = accepted(purge(http, "line", **SLOW))
        begun(conn, "line")
        for table in ("line", "stock", "article"):
            told = problem(purge(http, table), 409, "CONFLICTING_JOB")
            assert told["job_id"] == first
        second = accepted(purge(http, "stock", overlap="QUEUE"))
        waits = wait_for(http, second, "WAITING", timeout_s=PATIENCE_S)
        assert waits["waiting_on"][0]["ref"] == first
        assert left(conn, "stock") == ROWS
        http.patch(f"/v1/jobs/{first}/throttle", json={"rows_per_s": None})
        check_done(wait_for(http, first, timeout_s=PATIENCE_S), conn, "line")
        check_done(wait_for(http, second, timeout_s=PATIENCE_S), conn, "stock")


@pytest.mark.parametrize(
    ("conn", "kills"),
    [
        pytest.param("postgresql", 2, marks=pytest.mark.postgresql),
        pytest.param("postgresql", 10, marks=[pytest.mark.postgresql, pytest.mark.long]),
        pytest.param("mariadb", 2, marks=[pytest.mark.mariadb, pytest.mark.long]),
        pytest.param("mariadb", 10, marks=[pytest.mark.mariadb, pytest.mark.long]),
    ],
    indirect=["conn"],
)
def test_two_at_once_survive_every_kill(service: ServiceProcess, conn: Connection, kills: int) -> None:
    with service.http() as http:
        register(http, conn)
        jobs = {table: accepted(purge(http, table, **SLOW)) for table in ("line", "visit")}
    for _ in range(kills):
        before = {table: left(conn, table) for table in jobs}
        deadline = time.monotonic() + PATIENCE_S
        while any(left(conn, table) >= max(before[table], ROWS - OLD + 1) for table in jobs):
            assert time.monotonic() < deadline, "they do not go on"
            if all(left(conn, table) == ROWS - OLD for table in jobs):
                break
            time.sleep(0.02)
        service.kill9()
        service.start()
    with service.http() as http:
        for table, job_id in jobs.items():
            check_done(wait_for(http, job_id, timeout_s=PATIENCE_S), conn, table)
