"""What is in the way of a recapture: a change between look and act, triggers that refuse, rights, zones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy.engine import make_url

from spark.targets.connection import Connection, SessionLimits, connect
from spark.targets.errors import TargetError
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from spark.upkeep.recapture.tables import source_table
from spark.upkeep.unit import UpkeepUnit, run_upkeep
from tests.oracles.symmetricds import Place, snapshot
from tests.spark.purge.outgoing_run import target_of
from tests.spark.upkeep.recapture.case import case_of
from tests.spark.upkeep.recapture.ground import Ground, delete, insert, make
from tests.spark.upkeep.recapture.hands import Hand, hand, until_somebody_waits
from tests.spark.upkeep.recapture.model import KEY_UNREADABLE, NOT_CAPTURED
from tests.spark.upkeep.recapture.recapture_run import run_of
from tests.spark.upkeep.recapture.shapes import ITEM
from tests.spark.upkeep.recapture.stranding import strand_all
from tests.spark.upkeep.recapture.triggers import Capture
from tests.spark.upkeep.upkeep_run import RESOURCE

FAR = "Pacific/Auckland"
ALWAYS = Capture("t", 1, ITEM, ITEM.names, ITEM.key)


def _ground(place: Place, *, keys: int = 3) -> Ground:
    """Rows of some keys, all of them inserted, and the last one deleted."""
    ground = make(place, [ITEM], [ALWAYS])
    with hand(place) as worker:
        for key in range(1, keys + 1):
            insert(worker, ITEM, {"id": key, "name": "first", "price": Decimal("1.5")})
        delete(worker, ITEM, (keys,))
    strand_all(ground)
    return ground


@contextmanager
def _unit(place: Place) -> Iterator[tuple[Connection, UpkeepUnit]]:
    """A patient connection, and the unit of all rows."""
    limits = SessionLimits(lock_timeout_ms=20_000)
    with connect(target_of(place), application_name="unit", limits=limits) as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, RESOURCE, token=1, owner="job")
        (unit,) = run_of(place, rows=500).units(conn)
        yield conn, unit


def test_rows_that_a_batch_holds_by_now_stay(served: Place) -> None:
    """While the unit waits for a lock its rows are given an event: a batch would have lacked its data."""
    case = case_of(_ground(served), "event")
    first = min(row["data_id"] for row in case.model.stranded)
    with hand(served, commits=False) as peer, hand(served) as router, _unit(served) as (conn, unit):
        peer.run("update item set name = 'first' where id = 1")
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run_upkeep, conn, unit)
            until_somebody_waits(served)
            router.run(
                f"insert into {served.name('data_event')} (data_id, batch_id, create_time)"
                f" values ({first}, 900, current_timestamp)"
            )
            peer.commit()
            assert running.result().rows == 0
    left = {row["data_id"] for row in snapshot(served)["data"]}
    assert left >= {row["data_id"] for row in case.model.stranded}


def _refuse(worker: Hand, key: int) -> None:
    """Somebody's own trigger refuses updates of a key aloud."""
    if worker.dialect == "postgresql":
        worker.run(
            "create function refuse() returns trigger as $$ begin"
            f" if new.id = {key} then raise exception 'it is closed'; end if; return new;"
            " end $$ language plpgsql"
        )
        worker.run("create trigger refuse before update on item for each row execute procedure refuse()")
    elif worker.dialect == "mariadb":
        worker.run(
            "create trigger refuse before update on item for each row begin"
            f" if new.id = {key} then signal sqlstate '45000' set message_text = 'it is closed'; end if; end"
        )
    else:
        worker.run(
            f"create trigger refuse before update on item when new.id = {key}"
            " begin select raise(abort, 'it is closed'); end"
        )


def test_row_whose_update_is_refused_stays_and_the_others_go(place: Place) -> None:
    """One closed row must not hold back the purge of all."""
    ground = _ground(place, keys=4)
    with hand(place) as worker:
        _refuse(worker, 2)
    case = case_of(ground, "refused")
    run = run_of(place)
    own = [each.data_id for each in case.model.verdicts if each.key == ("item", (2,))]
    assert run.run()["data"] == len(case.model.gone()) - len(own)
    left = {row["data_id"] for row in snapshot(place)["data"]}
    assert left >= set(own)
    assert run.remaining()[NOT_CAPTURED] == (len(own), own)
    assert ground.users() == case.model.users


def test_update_that_says_no_key_afterwards_stays(place: Place) -> None:
    """Nobody knows whether it has changed the key."""
    ground = _ground(place)
    with hand(place) as worker:
        for data_id, text in enumerate(("null", "''", "'torn'"), start=1):
            worker.run(
                f"update {place.name('data')} set event_type = 'U', pk_data = '\"1\"', row_data = {text}"
                f" where data_id = {data_id}"
            )
    case = case_of(ground, "unsaid")
    run = run_of(place)
    run.run()
    assert {row["data_id"] for row in snapshot(place)["data"]} >= {1, 2, 3}
    assert run.remaining() == {KEY_UNREADABLE: (3, [1, 2, 3])}
    assert case.model.kept() == {KEY_UNREADABLE: [1, 2, 3]}


def test_captures_have_the_time_of_day_of_the_target(served: Place) -> None:
    """And the session has its own zone again, behind a unit that was done and behind one that was not."""
    case = case_of(_ground(served), "zone")
    greatest = max(row["data_id"] for row in case.original["data"])
    with _unit(served) as (conn, unit):
        here = replace(unit, time_zone=FAR)
        zone = (
            "select current_setting('TimeZone')" if served.dialect == "postgresql" else "select @@time_zone"
        )
        [own] = conn.execute(zone)
        with hand(served) as worker:
            worker.run(f"alter table {served.name('data')} rename to {served.name('away')}")
            with pytest.raises(TargetError):
                run_upkeep(conn, here)
            assert conn.execute(zone) == [own]
            worker.run(f"alter table {served.name('away')} rename to {served.name('data')}")
        assert run_upkeep(conn, here).rows == len(case.model.gone())
        assert conn.execute(zone) == [own]
    now = datetime.now(ZoneInfo(FAR)).replace(tzinfo=None)
    rows = [row for row in snapshot(served)["data"] if row["data_id"] > greatest]
    assert {row["event_type"] for row in rows} == {"U", "D"}
    assert [row for row in rows if abs(row["create_time"] - now) > timedelta(minutes=5)] == []


@contextmanager
def _role(place: Place) -> Iterator[tuple[Hand, str, Place]]:
    """Somebody with every right, a new account without any, and the place for it."""
    name = f"reader_{uuid.uuid4().hex[:8]}"
    url = make_url(place.url).set(username=name, password=None)
    kind, account = "role", name
    if place.dialect == "mariadb":
        kind, account, url = "user", f"{name}@'127.0.0.1'", url.set(host="127.0.0.1", query={})
    with hand(place) as owner:
        owner.run(f"create {kind} {account}{' login' if kind == 'role' else ''}")
        try:
            yield owner, account, replace(place, url=url.render_as_string(hide_password=False))
        finally:
            if kind == "role":
                owner.run(f"drop owned by {account}")
            owner.run(f"drop {kind} {account}")


@pytest.mark.parametrize(
    ("rights", "enough"),
    [
        ("select", ()),
        ("select (name), update (id)", ()),
        ("select (id), update (id)", ("mariadb",)),  # PostgreSQL locks the table where a delete is copied
        ("select, update (name)", ("mariadb",)),
        ("select, update", ("mariadb", "postgresql")),
    ],
)
def test_table_without_the_rights_counts_as_not_there(
    served: Place, rights: str, enough: tuple[str, ...]
) -> None:
    """Otherwise one such table would end every purge with an error; with them it is touched."""
    _ground(served)
    with _role(served) as (owner, account, place):
        owner.run(f"grant {rights} on item to {account}")
        owner.run(f"grant select, insert on {served.name('data')} to {account}")  # its trigger writes there
        with connect(target_of(place), application_name="role") as conn:
            found = source_table(conn, (None, None, "item"), ITEM.key)
            assert (found is not None) == (served.dialect in enough)
            if found is not None:
                at = found.at((1,))
                touch = f"update {found.name} set {found.touched} = {found.touched} where {at.text}"
                conn.execute(f"select 1 from {found.name} where {at.text} for update", at.bound)
                assert conn.execute(touch, at.bound) == []
