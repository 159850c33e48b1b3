"""The rights that RECAPTURE needs are printed as comments; without them rows stay, and are named."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from app.cli.grant_scripts import grant_script
from app.cli.kinds.kind import POSTGRESQL
from tests.conftest import SharedServer
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.targets import CUTOFF
from tests.http.test_grants import _new_role, _plain, _role
from tests.oracles.symmetricds import Place, build
from tests.regressions.old_rows import MUST_BE_THERE, OLD

ROWS = 30
TABLE = """
    create table "Shop".orders (id int primary key, note text);
    insert into "Shop".orders select each, 'note' from generate_series(1, 20) each;
    create function "Shop".capture() returns trigger language plpgsql as $$ begin
        insert into "Shop".sym_data
            (table_name, event_type, trigger_hist_id, pk_data, row_data, channel_id, create_time)
        values ('orders', 'U', 1, '"' || old.id || '"', '"' || new.id || '","note"', 'c', current_timestamp);
        return null;
    end $$;
    create trigger captures after update on "Shop".orders for each row execute function "Shop".capture()"""
ALL_STAY = {
    "marked": 0,
    "nodes": [],
    "recaptured": 0,
    "kept": [{"code": "RECAPTURE_NO_TABLE", "count": ROWS, "sample": list(range(1, 11))}],
}
COMMENTED = re.compile(r"^-- (GRANT (?:SELECT, UPDATE|INSERT) .*)$", re.MULTILINE)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the rights are the target's."""
    return sqlite_service


def _stranded(number: int) -> dict[str, Any]:
    row = {"data_id": number, "table_name": "orders", "trigger_hist_id": 1, "create_time": OLD}
    return {**row, "event_type": "D", "pk_data": f'"{number}"', "channel_id": "c"}


@pytest.fixture
def database(postgresql_server: SharedServer) -> Iterator[str]:
    """A database with thirty stranded deletes; twenty of the rows are there again."""
    name = f"lethe_recapture_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"create database {name}")
    history = {
        "trigger_hist_id": 1,
        "trigger_id": "orders",
        "source_table_name": "orders",
        "column_names": "id,note",
        "pk_column_names": "id",
        "last_trigger_build_reason": "S",
        "create_time": OLD,
    }
    rows = {"trigger_hist": [history], "data": [_stranded(number) for number in range(1, ROWS + 1)]}
    for table, more in MUST_BE_THERE["STRANDED"].items():
        rows[table] = [*rows.get(table, []), *more]
    url = postgresql_server.url(name)
    build(Place(url, "3.x", schema="Shop"), rows)
    with psycopg.connect(_plain(url), autocommit=True) as owner:
        owner.execute('alter table "Shop".sym_data alter column data_id restart with 10000')
        owner.execute(TABLE)
    yield url
    postgresql_server.execute(f"drop database if exists {name} with (force)")


def _purged(http: httpx.Client, store: str) -> dict[str, Any]:
    body = {"kind": "STRANDED", "cutoff": CUTOFF, "stranded": "RECAPTURE"}
    ended = wait_for(http, accepted(http.post(f"/v1/stores/{store}/purges", json=body)), "SUCCEEDED")
    result: dict[str, Any] = ended["result"]["stranded"]
    return result


def _run(database: str, statements: list[str]) -> None:
    with psycopg.connect(_plain(database), autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


@pytest.mark.postgresql
def test_printed_rights_are_enough_and_without_them_rows_stay(http: httpx.Client, database: str) -> None:
    name, store = _new_role("recapture"), f"recapture-{uuid.uuid4().hex[:8]}"
    script = grant_script("SYMMETRICDS", POSTGRESQL, role=name, schema="Shop")
    more = [each.replace("captured_table", "orders") for each in COMMENTED.findall(script)]
    assert len(more) == 2, script
    with _role(database, script, name) as url:
        body = {"id": store, "kind": "SYMMETRICDS", "url": url, "schema": "Shop"}
        made = http.post("/v1/stores", json=body)
        assert made.status_code == 201, made.text
        assert _purged(http, store) == ALL_STAY
        _run(database, more)
        _run(database, ['alter table "Shop".orders enable row level security'])
        assert _purged(http, store) == ALL_STAY, "a row that is hidden was taken for gone"
        _run(database, ['alter table "Shop".orders disable row level security'])
        assert _purged(http, store) == {"marked": 0, "nodes": [], "recaptured": ROWS, "kept": []}
    with psycopg.connect(_plain(database)) as owner:
        captured = owner.execute(
            'select event_type, pk_data from "Shop".sym_data where data_id >= 10000 order by data_id'
        ).fetchall()
    assert sorted(captured) == sorted(
        ("U" if number <= 20 else "D", f'"{number}"') for number in range(1, ROWS + 1)
    )
