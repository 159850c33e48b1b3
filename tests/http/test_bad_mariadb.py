"""MariaDB targets that refuse, lack something or may not be named; nothing is changed by asking."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pymysql
import pytest
from sqlalchemy.engine import make_url

from tests.conftest import MariadbServer
from tests.http.conftest import SECRET
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.supplying import registered
from tests.http.targets import CUTOFF, REMOVED_3X
from tests.oracles.symmetricds import Place, build, snapshot
from tests.oracles.symmetricds_rows import read_reference

_numbers = itertools.count(1)
MakeStore = Callable[..., str]
Refused = Callable[..., dict[str, Any]]


@pytest.fixture
def http(sqlite_service: ServiceProcess) -> Iterator[httpx.Client]:
    """One service is enough: what is asked here is asked of the target."""
    with sqlite_service.http() as client:
        yield client


@pytest.fixture(scope="module")
def place(mariadb_server: MariadbServer) -> Iterator[Place]:
    """The reference rows, and roles of all kinds; their names belong to the whole server."""
    name = f"lethe_bad_{os.getpid()}"
    mariadb_server.execute(f"create database {name}")
    made = Place(mariadb_server.url(name), "3.x")
    build(made, read_reference("3.x").rows)
    rights = {
        "reader": f"grant select on {name}.* to {{}}",
        "stranger": None,
        "guarded": f"grant all on {name}.* to {{}}",
        "halved": f"grant select, delete on {name}.* to {{}}",
    }
    for role, grant in rights.items():
        user = f"'{name}_{role}'@'%'"
        mariadb_server.execute(
            f"create user {user}" + (f" identified by '{SECRET}'" if role == "guarded" else "")
        )
        if grant:
            mariadb_server.execute(grant.format(user))
    yield made
    for role in rights:
        mariadb_server.execute(f"drop user '{name}_{role}'@'%'")
    mariadb_server.execute(f"drop database {name}")


@pytest.fixture
def make_store(http: httpx.Client, place: Place) -> MakeStore:
    """Registers a store on the place and returns its id."""

    def make(
        *, role: str | None = None, database: str | None = None, port: int | None = None, **more: Any
    ) -> str:
        name = f"bad-mariadb-{next(_numbers)}"
        url = make_url(place.url)
        url = url.set(
            username=url.username if role is None else f"{url.database}_{role}",
            database=database or url.database,
            port=port or url.port,
        )
        if more.get("password"):
            more["password"] = registered(http, more["password"], store=name)
        body = {"id": name, "kind": "SYMMETRICDS", "url": url.render_as_string()} | more
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        return name

    return make


@pytest.fixture
def refused(http: httpx.Client, place: Place) -> Refused:
    """Asserts that a purge is refused and that no row changed; returns what the check finds."""

    def ask(store: str, status: int, code: str) -> dict[str, Any]:
        before = snapshot(place)
        answer = http.post(f"/v1/stores/{store}/purges", json={"kind": "OUTGOING", "cutoff": CUTOFF})
        problem(answer, status, code)
        assert SECRET not in answer.text
        assert snapshot(place) == before
        check = http.post(f"/v1/stores/{store}:check")
        assert check.status_code == 200, check.text
        assert SECRET not in check.text
        found = check.json()
        assert not found["ok"]
        assert code in {item["code"] for item in found["findings"]}, found
        return dict(found)

    return ask


def test_database_that_is_not_there(make_store: MakeStore, refused: Refused) -> None:
    found = refused(make_store(database="lethe_no_such_database"), 502, "TARGET_DATABASE_MISSING")
    assert not found["reachable"]


def test_wrong_missing_and_right_password(
    http: httpx.Client, make_store: MakeStore, refused: Refused, sqlite_service: ServiceProcess
) -> None:
    for password in ("env:LETHE_SECRET_WRONG", None):
        refused(make_store(role="guarded", password=password), 502, "TARGET_AUTH_FAILED")
    store = make_store(role="guarded", password="env:LETHE_SECRET_SHOP")
    right = http.post(f"/v1/stores/{store}:check").json()
    assert right["reachable"], right
    assert right["server_version"] >= 100_600
    assert SECRET not in sqlite_service.log()


def test_role_without_any_right_on_the_database(make_store: MakeStore, refused: Refused) -> None:
    refused(make_store(role="stranger"), 502, "TARGET_AUTH_FAILED")


def test_role_that_may_only_read_is_told_what_it_lacks(make_store: MakeStore, refused: Refused) -> None:
    found = refused(make_store(role="reader"), 409, "TARGET_READ_ONLY")
    assert {(item["table"], item["right"]) for item in found["permissions_missing"]} == {
        ("sym_data", "DELETE"),
        ("sym_data_event", "DELETE"),
        ("sym_outgoing_batch", "DELETE"),
        ("sym_outgoing_batch", "UPDATE"),
    }
    assert found["can"] == ["PLAN_OUTGOING"] or "PURGE_OUTGOING" not in found["can"]


def test_role_that_may_not_update_cannot_lock_batches(make_store: MakeStore, refused: Refused) -> None:
    found = refused(make_store(role="halved"), 409, "TARGET_READ_ONLY")
    assert [(item["table"], item["right"]) for item in found["permissions_missing"]] == [
        ("sym_outgoing_batch", "UPDATE")
    ]


def test_reader_may_plan(http: httpx.Client, make_store: MakeStore) -> None:
    store = make_store(role="reader")
    request = {"kind": "OUTGOING", "cutoff": CUTOFF, "stranded": "MARK"}
    answer = http.post(f"/v1/stores/{store}/purges?validate_only=true", json=request)
    assert answer.status_code == 200, answer.text
    rows = {table["table"].removeprefix("sym_"): table["rows_to_remove"] for table in answer.json()["tables"]}
    assert rows == REMOVED_3X


def test_tables_with_another_prefix_are_named(make_store: MakeStore, refused: Refused) -> None:
    found = refused(make_store(table_prefix="other_"), 409, "TARGET_TABLES_ELSEWHERE")
    assert "sym_data" in str(found["findings"])


def test_server_that_does_not_answer_is_waited_for(http: httpx.Client, make_store: MakeStore) -> None:
    store = make_store(port=1)
    answer = http.post(f"/v1/stores/{store}/purges", json={"kind": "OUTGOING", "cutoff": CUTOFF})
    assert answer.status_code == 202, answer.text
    check = http.post(f"/v1/stores/{store}:check").json()
    assert [item["code"] for item in check["findings"]] == ["TARGET_UNREACHABLE"]
    http.post(f"/v1/jobs/{answer.json()['id']}:abort")


def test_tables_without_transactions_are_refused_by_name(
    make_store: MakeStore, refused: Refused, place: Place
) -> None:
    url = make_url(place.url)
    with pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=str(url.password or ""),
        database=url.database,
        autocommit=True,
        ssl_disabled=True,
    ) as connection:
        connection.cursor().execute("create table old_data like sym_data")
        for table in ("data_event", "outgoing_batch", "node"):
            connection.cursor().execute(f"create table old_{table} like sym_{table}")
        connection.cursor().execute("alter table old_data engine=MyISAM")
    found = refused(make_store(table_prefix="old_"), 409, "TARGET_SCHEMA_UNSUPPORTED")
    assert "old_data is MyISAM" in str(found["findings"])


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"url": "mysql://root@127.0.0.1/shop"}, "driver"),
        ({"url": "mysql+mysqldb://root@127.0.0.1/shop"}, "driver"),
        ({"url": "mysql+pymysql://root:secret@127.0.0.1/shop"}, "password"),
        ({"url": "mysql+pymysql://root@127.0.0.1/"}, "database"),
        ({"url": "mysql+pymysql://root@127.0.0.1/shop?charset=koi8"}, "charset"),
        ({"url": "mysql+pymysql://root@127.0.0.1/shop?init_command=drop"}, "init_command"),
        ({"url": "mysql+pymysql://root@elsewhere.example/shop"}, "LETHE_ALLOWED_HOSTS"),
        ({"url": "mysql+pymysql://root@127.0.0.1/shop", "schema": "other"}, "schema"),
    ],
)
def test_url_that_is_not_sound_is_refused(http: httpx.Client, fields: dict[str, str], word: str) -> None:
    body = {"id": f"bad-mariadb-{next(_numbers)}", "kind": "SYMMETRICDS"} | fields
    answer = http.post("/v1/stores", json=body)
    assert answer.status_code == 422, answer.text
    assert word in answer.text
    assert "secret" not in answer.text
    assert http.get(f"/v1/stores/{body['id']}").status_code == 404
