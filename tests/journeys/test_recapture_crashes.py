"""kill -9 while stranded rows are captured anew: each goes with exactly one capture of its row, or stays.

Two writers change the same rows meanwhile: what the captures say last of a row is what the table holds.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.journeys.crashes import CRASHING
from tests.journeys.ground import add_store, connection_to, in_the_past, purge_request
from tests.journeys.service import Service, serving, succeeded, until
from tests.oracles.symmetricds import Place, Rows, build
from tests.regressions.old_rows import MUST_BE_THERE, OLD

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]

ROWS = 400
GONE = range(1, 401, 10)
"""Deleted since: what is stranded of them are their deletes."""
THERE = [number for number in range(1, ROWS + 1) if number not in GONE]
KILLS, KILLS_LONG = 2, 20
SLOW: dict[str, Any] = {"archive": True, "max_rows_in_tx": 20}
CAPTURE = """
    alter table sym_data alter column data_id restart with 10000;
    create table orders (id bigint primary key, note text);
    insert into orders select each, 'first ' || each from generate_series(1, 400) each where each % 10 <> 1;
    create function capture_orders() returns trigger language plpgsql as $$ begin
        insert into sym_data
            (table_name, event_type, trigger_hist_id, pk_data, row_data, channel_id, create_time)
        values ('orders', 'U', 1, '"' || old.id || '"', '"' || new.id || '","' || new.note || '"', 'default',
                current_timestamp);
        return null;
    end $$;
    create trigger captures after update on orders for each row execute function capture_orders()"""


def _stranded(number: int) -> dict[str, Any]:
    row = {"data_id": number, "table_name": "orders", "trigger_hist_id": 1, "channel_id": "default"}
    if number in GONE:
        return {**row, "event_type": "D", "pk_data": f'"{number}"', "create_time": OLD}
    return {**row, "event_type": "I", "row_data": f'"{number}","first"', "create_time": OLD}


def _rows() -> Rows:
    history = {
        "trigger_hist_id": 1,
        "trigger_id": "orders",
        "source_table_name": "orders",
        "column_names": "id,note",
        "pk_column_names": "id",
        "last_trigger_build_reason": "S",
        "create_time": OLD,
    }
    found: Rows = {"trigger_hist": [history], "data": [_stranded(number) for number in range(1, ROWS + 1)]}
    for table, rows in MUST_BE_THERE["STRANDED"].items():
        found[table] = [*found.get(table, []), *rows]
    return in_the_past(found)


class _Writers:
    """Change rows of the table until they are stopped, each change in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self._url, self._ended, self.changes = url, threading.Event(), 0
        self._threads = [threading.Thread(target=self._write, args=(seed,), daemon=True) for seed in (1, 2)]

    def __enter__(self) -> _Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)

    def _write(self, seed: int) -> None:
        rng = Random(seed)
        with connection_to(self._url) as connection:
            while not self._ended.wait(0.01):
                change = (f"{seed}.{self.changes}", rng.choice(THERE))
                connection.execute("update orders set note = %s where id = %s", change)
                connection.commit()
                self.changes += 1


def _left(url: str) -> int:
    with connection_to(url) as connection:
        [(found,)] = connection.execute("select count(*) from sym_data where data_id <= 400").fetchall()
        return int(found)


def _killed(service: Service, url: str, job: str, *, kills: int) -> int:
    """Kill the service while it works, each time a little further; how often."""
    for number in range(kills):
        before = _left(url)
        until(lambda before=before: _left(url) < before or _left(url) == 0, timeout_s=60, pause_s=0.005)
        if service.client.jobs.get(job).state == "SUCCEEDED":
            return number
        service.crash()
    return kills


def _hold(tmp_path: Path, url: str, *, kills: int, rows_per_s: int) -> None:
    place = Place(url, "3.x")
    build(place, _rows())
    with connection_to(url) as connection:
        connection.execute(CAPTURE)
        connection.commit()
    with serving(tmp_path / "service", CRASHING) as service:
        add_store(service.client, "shop", place)
        with _Writers(url) as writers:
            request = purge_request(
                place, kind="STRANDED", stranded="RECAPTURE", rows_per_s=rows_per_s, **SLOW
            )
            job = service.client.purges.create("shop", request).id
            assert _killed(service, url, job, kills=kills) == kills
            result = succeeded(service.client, job)
        assert writers.changes > 0
        verified = succeeded(service.client, service.client.archives.verify(job).id)
        assert verified["rows"] == ROWS
    assert (result["removed"], result["counts"]) == ({"data_event": 0, "data": ROWS}, "EXACT")
    assert (result["stranded"]["recaptured"], result["stranded"]["kept"]) == (ROWS, [])
    _assert_captured(url, changes=writers.changes)


def _assert_captured(url: str, *, changes: int) -> None:
    """One capture of each stranded row beside those of the writers; the last of each says what is there."""
    with connection_to(url) as connection:
        captured = connection.execute(
            "select event_type, pk_data, row_data from sym_data where data_id >= 10000 order by data_id"
        ).fetchall()
        orders = dict(connection.execute("select id, note from orders").fetchall())
    assert len(captured) == ROWS + changes
    last = {int(key.strip('"')): (event, row) for event, key, row in captured}
    assert last == {
        number: ("D", None) if number in GONE else ("U", f'"{number}","{orders[number]}"')
        for number in range(1, ROWS + 1)
    }


def test_a_kill_leaves_each_row_with_one_capture_or_stranded(tmp_path: Path, postgresql_url: str) -> None:
    _hold(tmp_path, postgresql_url, kills=KILLS, rows_per_s=120)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_kills_leave_each_row_with_one_capture_or_stranded(tmp_path: Path, postgresql_url: str) -> None:
    _hold(tmp_path, postgresql_url, kills=KILLS_LONG, rows_per_s=15)
