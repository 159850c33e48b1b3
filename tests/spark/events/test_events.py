"""Events of a node's catalog: pages, one by its key, the newest of an origin."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from spark.events.catalog import read_catalog
from spark.events.errors import FunctionsMissing
from spark.events.events import PAGE_MAX, create_sync, last_seqno, read_event, select_events
from spark.events.records import Catalog, Event
from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout, TargetReadOnly
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, recorded_rows

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
TYPES = ("SYNC", "STORE_SET", "SUBSCRIBE_SET", "DROP_SET")
NO_DATA = (None,) * 8


@contextmanager
def asked(loaded: LoadedCatalog) -> Iterator[tuple[Connection, Catalog]]:
    with loaded.connect() as conn:
        yield conn, read_catalog(conn, loaded.cluster)


def test_page_of_a_recorded_catalog_is_its_rows(catalogs: Catalogs) -> None:
    expected = [
        Event(origin, seqno, datetime.fromisoformat(at), snapshot, kind, (*data, None, None, None))
        for origin, seqno, at, snapshot, kind, *data in recorded_rows("fxa", 2)["sl_event"]
    ]
    with asked(catalogs.load("fxa", 2, cluster="Night Shift")) as (conn, catalog):
        assert select_events(conn, catalog, limit=PAGE_MAX) == expected
        assert read_event(conn, catalog, 1, 5_000_000_016) == next(
            event for event in expected if (event.origin, event.seqno) == (1, 5_000_000_016)
        )
        assert read_event(conn, catalog, 1, 1) is None
        assert read_event(conn, catalog, 9, 5_000_000_016) is None


def test_newest_event_of_each_origin(catalogs: Catalogs) -> None:
    rows = recorded_rows("fxa", 1)["sl_event"]
    with asked(catalogs.load("fxa", 1)) as (conn, catalog):
        for origin in (1, 2, 3):
            own = [row for row in rows if row[0] == origin]
            assert last_seqno(conn, catalog, origin) == max(row[1] for row in own)
            assert last_seqno(conn, catalog, origin, config_only=True) == max(
                row[1] for row in own if row[4] != "SYNC"
            )
        assert last_seqno(conn, catalog, 4) is None
        assert last_seqno(conn, catalog, 4, config_only=True) is None


def test_odd_rows_are_told_as_they_are(catalogs: Catalogs) -> None:
    loaded = catalogs.empty()
    loaded.execute(
        "insert into sl_event (ev_origin, ev_seqno) values (1, 1)",
        "insert into sl_event values (1, 2, 'infinity', null, 'SYNC')",
        "insert into sl_event values (2, 9223372036854775807, '-infinity', '5:9:6,7', 'NEW ONE', '', 'ü',"
        " null, null, null, null, null, '8')",
    )
    with asked(loaded) as (conn, catalog):
        found = select_events(conn, catalog, limit=10)
    assert found == [
        Event(1, 1, datetime.min.replace(tzinfo=UTC), None, "", NO_DATA),
        Event(1, 2, datetime.max.replace(tzinfo=UTC), None, "SYNC", NO_DATA),
        Event(
            2,
            2**63 - 1,
            datetime.min.replace(tzinfo=UTC),
            "5:9:6,7",
            "NEW ONE",
            ("", "ü", None, None, None, None, None, "8"),
        ),
    ]


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ("dbname=sl2 host=h user=u", "dbname=sl2 host=h user=u"),
        ("dbname=sl2 password='pass word' host=h", "dbname=sl2 password=*** host=h"),
        ("postgresql://u:hunter2@h/sl2", "user=u password=*** dbname=sl2 host=h"),
        ("host=h sslpassword=hunter2", "host=h sslpassword=***"),
        ("hunter2", "***"),
        (None, None),
    ],
)
def test_store_path_tells_no_password(catalogs: Catalogs, kept: str | None, told: str | None) -> None:
    loaded = catalogs.empty()
    with loaded.raw() as raw:
        raw.execute(
            "insert into sl_event values (1, 1, now(), null, 'STORE_PATH', '2', '1', %s, '10')", (kept,)
        )
    with asked(loaded) as (conn, catalog):
        [listed], read = select_events(conn, catalog, limit=10), read_event(conn, catalog, 1, 1)
    assert read == listed
    assert listed.data[0:2] + listed.data[3:] == ("2", "1", "10", None, None, None, None)
    assert _parts(listed.data[2]) == _parts(told)


def _parts(conninfo: str | None) -> object:
    return None if conninfo is None else sorted(conninfo.split())


def _random_events(loaded: LoadedCatalog, rng: random.Random, count: int) -> list[Event]:
    """So many random events, inserted; sorted by their key."""
    keys = {(rng.choice((1, 2, 3, 20)), rng.randrange(count)) for _ in range(count)}
    events = [
        Event(origin, seqno, START + timedelta(seconds=rng.randrange(100)), None, rng.choice(TYPES), NO_DATA)
        for origin, seqno in sorted(keys)
    ]
    with loaded.raw() as raw, raw.cursor() as cursor:
        shuffled = rng.sample(events, len(events))
        columns = "(ev_origin, ev_seqno, ev_timestamp, ev_type)"
        with cursor.copy(f"copy sl_event {columns} from stdin") as copy:
            for event in shuffled:
                copy.write_row((event.origin, event.seqno, event.timestamp, event.type))
    return events


def _random_filter(rng: random.Random, count: int) -> dict[str, object]:
    offered: dict[str, object] = {
        "origins": rng.sample((1, 2, 3, 20, 21), rng.randint(1, 3)),
        "types": rng.sample((*TYPES, "NONE"), rng.randint(1, 3)),
        "from_seqno": rng.randrange(count),
        "upto_seqno": rng.randrange(count),
        "created_after": START + timedelta(seconds=rng.randrange(60)),
        "created_before": START + timedelta(seconds=rng.randrange(40, 101)),
    }
    return {name: value for name, value in offered.items() if rng.random() < 0.4}


def _passes(event: Event, wanted: dict[str, object]) -> bool:
    checks = {
        "origins": lambda value: event.origin in value,
        "types": lambda value: event.type in value,
        "from_seqno": lambda value: event.seqno >= value,
        "upto_seqno": lambda value: event.seqno <= value,
        "created_after": lambda value: event.timestamp > value,
        "created_before": lambda value: event.timestamp < value,
    }
    return all(checks[name](value) for name, value in wanted.items())


@pytest.mark.parametrize("seed", range(8))
def test_pages_of_random_events_put_together_are_the_sorted_whole(catalogs: Catalogs, seed: int) -> None:
    rng = random.Random(seed)
    loaded = catalogs.empty()
    events = _random_events(loaded, rng, 300)
    with asked(loaded) as (conn, catalog):
        for _ in range(25):
            wanted = _random_filter(rng, 300)
            expected = [event for event in events if _passes(event, wanted)]
            limit = rng.choice((1, 2, 7, 50, PAGE_MAX)) if len(expected) < 60 else rng.choice((19, 50))
            found: list[Event] = []
            after: tuple[int, int] | None = None
            for _page in range(len(expected) // limit + 1):
                page = select_events(conn, catalog, **wanted, after=after, limit=limit)
                assert len(page) <= limit
                found += page
                after = (page[-1].origin, page[-1].seqno) if page else after
            assert found == expected


def test_page_walks_the_primary_key(catalogs: Catalogs) -> None:
    loaded = catalogs.empty()
    events = _random_events(loaded, random.Random(5), 20_000)
    loaded.execute("analyze sl_event")
    with asked(loaded) as (conn, catalog):
        first, second = events[9_000], events[9_050]
        for wanted in (
            {},
            {"origins": [1, 2, 3]},
            {"origins": [2], "from_seqno": 5_000},
            {"types": ["SYNC", "STORE_SET"]},
        ):
            for after in (None, (first.origin, first.seqno), (second.origin, second.seqno)):
                plan = _plan_of(loaded, conn, catalog, wanted, after)
                assert any("sl_event-pkey" in line or "sl_event_pkey" in line for line in plan), plan
                assert not any("Seq Scan" in line or "Sort" in line for line in plan), plan
                # Rows are read as far as the page needs them, not skipped from the start.
                read = sum(int(line.split("Filter: ")[1]) for line in plan if "Removed by Filter" in line)
                assert read < 500, plan


def _plan_of(
    loaded: LoadedCatalog,
    conn: Connection,
    catalog: Catalog,
    wanted: dict[str, object],
    after: tuple[int, int] | None,
) -> list[str]:
    """What the server does for the statement that `select_events` sends."""
    statements: list[str] = []

    class Explaining:
        dialect = conn.dialect

        def execute(self, sql: str, params: object = None) -> list[tuple[object, ...]]:
            rows = conn.execute(f"explain (analyze, costs off, timing off) {sql}", params)  # type: ignore[arg-type]
            statements.extend(str(line) for (line,) in rows)
            return []

    assert select_events(Explaining(), catalog, **wanted, after=after, limit=50) == []  # type: ignore[arg-type]
    return statements


def test_sync_without_functions_is_refused(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    with asked(loaded) as (conn, catalog), pytest.raises(FunctionsMissing) as caught:
        create_sync(conn, catalog)
    assert (caught.value.code, caught.value.detail) == (
        "FUNCTIONS_MISSING",
        "the functions of cluster 'lab' are not installed here",
    )
    assert loaded.rows() == recorded_rows("fxa", 1)


def test_function_whose_library_is_gone_is_missing(catalogs: Catalogs) -> None:
    """The server was upgraded, the package of Slony-I for the new version was not installed."""
    loaded = catalogs.load("fxa", 1)
    loaded.execute(
        "create function createEvent(p_cluster name, p_type text) returns bigint language plpgsql as $$"
        "begin raise exception sqlstate '58P01' using message = 'could not access file'; end $$"
    )
    with asked(loaded) as (conn, catalog), pytest.raises(FunctionsMissing, match="could not access file"):
        create_sync(conn, catalog)
    assert loaded.rows() == recorded_rows("fxa", 1)


def test_function_that_went_since_is_missing(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute(CREATE_EVENT)
    with asked(loaded) as (conn, catalog):
        loaded.execute("drop function createEvent(name, text)")
        with pytest.raises(FunctionsMissing):
            create_sync(conn, catalog)


CREATE_EVENT = """
create function createEvent(p_cluster name, p_type text) returns bigint language sql as $$
    insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)
    select last_value, nextval('sl_event_seq'), now(), txid_current_snapshot(), p_type
    from sl_local_node_id where p_cluster = '_Night Shift' returning ev_seqno
$$
"""


def test_sync_is_made_by_the_cluster_under_its_lock(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 2, cluster="Night Shift")
    loaded.execute(CREATE_EVENT)
    before = last = max(seqno for origin, seqno, *_ in recorded_rows("fxa", 2)["sl_event"] if origin == 2)
    with asked(loaded) as (conn, catalog):
        with loaded.raw(autocommit=False) as slon:
            slon.execute("lock table sl_event_lock")
            with pytest.raises(TargetLockTimeout):
                create_sync(conn, catalog)
        made = [create_sync(conn, catalog) for _ in range(3)]
        assert [read_event(conn, catalog, 2, event.seqno) for event in made] == made
        assert last_seqno(conn, catalog, 2) == made[-1].seqno
    for event in made:
        assert (event.origin, event.type, event.data) == (2, "SYNC", NO_DATA)
        assert event.seqno > last
        last = event.seqno
    xmins = [int((event.snapshot or "").split(":")[0]) for event in made]
    assert all(one < two for one, two in pairwise(xmins))
    assert before < made[0].seqno


def test_statement_of_a_page_is_read_only(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 3)
    with loaded.connect(read_only=True) as conn:
        catalog = read_catalog(conn, "lab")
        assert len(select_events(conn, catalog, limit=5)) == 5
        with pytest.raises(TargetReadOnly):
            conn.execute("delete from sl_event")
    assert loaded.rows() == recorded_rows("fxa", 3)
