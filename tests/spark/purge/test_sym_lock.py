"""The row of sym_lock on every kind of target: taken, broken, renewed and given back as the program does."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spark.purge.reading.sym_lock import Holder, LockUnusable, release_lock, take_lock
from spark.targets.connection import Connection, connect
from tests.oracles.symmetricds import Place, create, session
from tests.oracles.symmetricds_engines import named_place
from tests.spark.purge.outgoing_run import target_of

NOW = datetime(2026, 11, 20, 12, 0)
TIMEOUT = timedelta(minutes=30)
ACTION = "PURGE_INCOMING"


@pytest.fixture(params=["sqlite-3.x", "postgresql-3.x", "mariadb-3.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Tables with an empty sym_lock."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found


def _take(conn: Connection, place: Place, server: str, *, now: datetime = NOW) -> Holder | None:
    def is_dead(seen: Any) -> bool:
        since = seen if isinstance(seen, datetime) else datetime.fromisoformat(str(seen))
        return bool(since < now - TIMEOUT)

    return take_lock(conn, ACTION, server, now=lambda _seen: place.encode(now), is_dead=is_dead)


def _row(place: Place) -> tuple[Any, ...]:
    columns = "lock_type, locking_server_id, lock_time, last_locking_server_id, last_lock_time"
    with session(place) as target:
        [row] = target.run(f"select {columns} from {place.name('lock')} where lock_action = '{ACTION}'")
    return tuple(row)


def test_the_row_is_made_taken_renewed_and_given_back(place: Place) -> None:
    with connect(target_of(place), application_name="t") as conn:
        assert _take(conn, place, "lethe-1") is None
        assert _row(place) == ("CLUSTER", "lethe-1", place.encode(NOW), None, None)
        assert _take(conn, place, "lethe-1") is None  # the same instant: MariaDB counts no row as changed
        later = NOW + timedelta(minutes=1)
        assert _take(conn, place, "lethe-1", now=later) is None
        assert not release_lock(conn, ACTION, "lethe-2")
        assert release_lock(conn, ACTION, "lethe-1")
        assert _row(place) == ("CLUSTER", None, None, "lethe-1", place.encode(later))
        assert not release_lock(conn, ACTION, "lethe-1")


def test_another_servers_row_is_broken_only_when_it_is_old(place: Place) -> None:
    with connect(target_of(place), application_name="t") as conn:
        assert _take(conn, place, "host-1") is None
        assert _take(conn, place, "lethe-1", now=NOW + TIMEOUT) == Holder("host-1", place.encode(NOW))
        assert _row(place)[1] == "host-1"
        assert _take(conn, place, "lethe-1", now=NOW + TIMEOUT + timedelta(seconds=1)) is None
        assert _row(place)[1] == "lethe-1"


def test_of_two_at_once_one_gets_the_row(place: Place) -> None:
    """What was read is compared again where it is written."""
    with (
        connect(target_of(place), application_name="a") as first,
        connect(target_of(place), application_name="b") as second,
    ):
        assert _take(first, place, "host-1") is None

        def too_late(_seen: Any) -> bool:
            assert _take(second, place, "host-2", now=NOW + 2 * TIMEOUT) is None  # between look and update
            return True

        held = take_lock(first, ACTION, "host-3", now=lambda _seen: place.encode(NOW), is_dead=too_late)
        assert held is not None
        assert held.server_id == "host-2"
        assert _row(place)[1] == "host-2"


def test_layouts_without_a_type_and_without_the_table(place: Place) -> None:
    """2.0 had no lock_type; a database that never was a cluster may have no table at all."""
    with session(place) as target:
        target.run(f"drop table {place.name('lock')}")
    with connect(target_of(place), application_name="t") as conn:
        with pytest.raises(LockUnusable, match="no sym_lock"):
            _take(conn, place, "lethe-1")
        assert not release_lock(conn, ACTION, "lethe-1")
        with session(place) as target:
            kind = "datetime" if place.dialect == "mysql" else "timestamp"
            target.run(
                f"create table {place.name('lock')} (lock_action varchar(50) primary key,"
                f" locking_server_id varchar(255), lock_time {kind})"
            )
        assert _take(conn, place, "lethe-1") is None
        assert release_lock(conn, ACTION, "lethe-1")
