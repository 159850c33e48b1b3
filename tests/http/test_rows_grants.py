"""A role with the printed rights, and nothing else, plans and purges rows with their children."""

from __future__ import annotations

import os
from contextlib import closing

import httpx
import pytest
from sqlalchemy.engine import make_url

from app.cli.grant_scripts import grant_script
from app.cli.kinds.kind import MARIADB, POSTGRESQL
from spark.targets.connection import Target, connect
from tests.conftest import MariadbServer
from tests.http.service_process import ServiceProcess
from tests.http.test_grants import _new_role, _role, _statements
from tests.http.test_rows_purges import fill, register


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


def _purges(http: httpx.Client, owner: str, url: str) -> None:
    with closing(connect(Target(owner, table_prefix=""), application_name="desk")) as conn:
        desk = register(http, conn, url)
        check = http.post(f"/v1/stores/{desk.id}:check").json()
        assert check["ok"], check["findings"]
        assert "PERMISSION_MISSING" not in {finding["code"] for finding in check["findings"]}
        assert desk.plan(children=["note"])["rows_to_remove"] > 0
        result = desk.done(children=["note"], archive={"format": "PARQUET"})
        assert (result["removed"], result["counts"]) == ({"note": 80, "ticket": 180}, "EXACT")


def test_a_role_of_postgresql_purges_with_the_printed_rights(http: httpx.Client, postgresql_url: str) -> None:
    with closing(connect(Target(postgresql_url, table_prefix=""), application_name="desk")) as conn:
        fill(conn)
    name = _new_role("rows")
    script = grant_script("SQL", POSTGRESQL, role=name, schema="public")
    with _role(postgresql_url, script, name) as url:
        _purges(http, postgresql_url, url)


def test_a_role_of_mariadb_purges_with_the_printed_rights(
    http: httpx.Client, mariadb_server: MariadbServer, mariadb_url: str
) -> None:
    with closing(connect(Target(mariadb_url, table_prefix=""), application_name="desk")) as conn:
        fill(conn)
    name, hosts = f"lethe_rows_{os.getpid()}", ("127.0.0.1", "localhost")
    database = str(make_url(mariadb_url).database)
    try:
        for host in hosts:
            mariadb_server.execute(f"create user '{name}'@'{host}'")
            for statement in _statements(
                grant_script("SQL", MARIADB, role=f"{name}@{host}", schema=database)
            ):
                mariadb_server.execute(statement)
        url = make_url(mariadb_url).set(username=name).render_as_string(hide_password=False)
        _purges(http, mariadb_url, url)
    finally:
        for host in hosts:
            mariadb_server.execute(f"drop user if exists '{name}'@'{host}'")
