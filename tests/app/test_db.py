"""The metadata database: no update is lost, nothing half is kept, times come back as they went."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db import Database, UtcDateTime, before_commit
from app.errors import MetadataBusy, MetadataUnavailable
from app.jobs.rows import Counter
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import in_threads

INCREMENTS, THREADS = 480, 16


def value(database: Database, name: str) -> int:
    with database.reading() as db:
        row = db.get(Counter, name)
        return -1 if row is None else row.value


def test_increments_of_many_threads_are_all_kept(sqlite_database: Database) -> None:
    # facts/locks.md: "SQLAlchemy's default lost updates silently (297 of 480 increments kept)".
    database = sqlite_database
    with database.transaction() as db:
        db.add(Counter(name="tally", value=0))

    def increment(_number: int) -> None:
        for _ in range(INCREMENTS // THREADS):
            with database.transaction() as db:  # read, then write: what the default loses
                row = db.get_one(Counter, "tally")
                row.value += 1
                db.add(row)

    assert in_threads(THREADS, increment) == [None] * THREADS
    assert value(database, "tally") == INCREMENTS


def test_writers_of_two_processes_wait_for_each_other(sqlite_database: Database, clock: FakeClock) -> None:
    # Two Database objects share no queue, as two processes would not.
    other = Database(str(sqlite_database.url), clock=clock)
    with sqlite_database.transaction() as db:
        db.add(Counter(name="tally", value=0))

    def increment(number: int) -> None:
        database = (sqlite_database, other)[number % 2]
        for _ in range(30):
            with database.transaction() as db:
                row = db.get_one(Counter, "tally")
                row.value += 1
                db.add(row)

    assert in_threads(4, increment) == [None] * 4
    assert value(sqlite_database, "tally") == 120
    other.close()


def test_readers_do_not_wait_for_a_writer(database: Database) -> None:
    with database.transaction() as db:
        db.add(Counter(name="seen", value=1))
        db.flush()
        reader = threading.Thread(target=lambda: seen.append(value(database, "seen")))
        seen: list[int] = []
        reader.start()
        reader.join(5)
        assert seen == [-1]  # and they see only what was committed
    assert value(database, "seen") == 1


def test_one_reading_sees_one_snapshot_on_sqlite(sqlite_database: Database) -> None:
    with sqlite_database.transaction() as db:
        db.add(Counter(name="seen", value=1))
    query = sa.text("select value from counters where name = 'seen'")
    with sqlite_database.reading() as db:
        before = db.execute(query).scalar_one()
        changed = threading.Thread(target=_set_seen, args=(sqlite_database, 2))
        changed.start()
        changed.join(5)
        assert (before, db.execute(query).scalar_one()) == (1, 1)
    assert value(sqlite_database, "seen") == 2


def _set_seen(database: Database, number: int) -> None:
    with database.transaction() as db:
        db.execute(sa.text("update counters set value = :v where name = 'seen'"), {"v": number})


def test_error_rolls_everything_back_and_frees_the_writers(database: Database) -> None:
    def half(db: Session) -> None:
        db.add(Counter(name="half", value=1))
        db.flush()
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError), database.transaction() as db:
            half(db)
    assert value(database, "half") == -1
    _set_seen(database, 1)


def test_constraint_that_is_broken_stays_a_bug(database: Database) -> None:
    with pytest.raises(IntegrityError), database.transaction() as db:
        db.add(Counter(name="fencing_token", value=7))


def test_what_was_only_read_is_never_written(database: Database) -> None:
    with database.transaction() as db:
        db.add(Counter(name="seen", value=1))
    with database.reading() as db:
        row = db.get_one(Counter, "seen")
        row.value = 99
        db.get(Counter, "other")
    assert value(database, "seen") == 1


COUNTERS = sa.table("counters", sa.column("name"), sa.column("value"))
TALLY = col(Counter.name) == "tally"
MANY = [f"new_{number}" for number in range(3)]
READS: dict[str, Callable[[Session], object]] = {
    "nothing": lambda db: None,
    "a row": lambda db: db.get(Counter, "tally"),
    "rows that stay locked": lambda db: db.exec(select(Counter).with_for_update()).all(),
    "its clock": lambda db: db.execute(sa.text("  select current_timestamp")).one(),
    "rows of two queries": lambda db: db.execute(sa.union(*[sa.select(COUNTERS.c.name)] * 2)).all(),
    "a row behind a savepoint": lambda db: _in_savepoint(db, lambda: db.get(Counter, "tally")),
}
WRITES: dict[str, Callable[[Session], object]] = {
    "an object": lambda db: db.add(Counter(name="new", value=1)),
    "a changed object": lambda db: setattr(db.get_one(Counter, "tally"), "value", 7),
    "a deleted object": lambda db: db.delete(db.get_one(Counter, "tally")),
    "many rows": lambda db: db.execute(sa.insert(COUNTERS), [{"name": each, "value": 1} for each in MANY]),
    "an update": lambda db: db.execute(sa.update(Counter).where(TALLY).values(value=8)),
    "a deletion": lambda db: db.execute(sa.delete(Counter).where(TALLY)),
    "text": lambda db: db.execute(sa.text("\n update counters set value = 9 where name = 'tally'")),
    "text behind a with": lambda db: db.execute(
        sa.text("with one as (select 'tally' as it) delete from counters where name in (select it from one)")
    ),
    "a statement of the connection": lambda db: db.connection().execute(sa.delete(Counter).where(TALLY)),
    "a row behind a savepoint": lambda db: _in_savepoint(
        db, lambda: db.execute(sa.delete(Counter).where(TALLY))
    ),
    "the last of it": lambda db: before_commit(db, lambda db: db.add(Counter(name="new", value=1))),
}


def _in_savepoint(db: Session, act: Callable[[], object]) -> None:
    with db.begin_nested():
        act()


def grown_by(database: Database, act: Callable[[Session], object]) -> int:
    """How many news a transaction was."""
    with database.transaction() as db:
        db.execute(sa.delete(Counter).where(col(Counter.name).in_(["tally", "new", *MANY])))
        db.add(Counter(name="tally", value=1))
    before = database.news()
    with database.transaction() as db:
        act(db)
    return database.news() - before


@pytest.mark.parametrize("what", READS)
def test_transaction_that_has_only_read_is_no_news(database: Database, what: str) -> None:
    """Each loop that looks where there is news looked behind transactions that had written nothing."""
    assert grown_by(database, READS[what]) == 0


@pytest.mark.parametrize("what", WRITES)
def test_transaction_that_has_written_is_news(database: Database, what: str) -> None:
    assert grown_by(database, WRITES[what]) == 1


def test_connection_that_has_written_once_is_no_news_in_its_next_transaction(database: Database) -> None:
    assert [grown_by(database, act) for act in (WRITES["an update"], READS["a row"])] == [1, 0]


def test_transaction_inside_a_transaction_is_a_programmers_error(database: Database) -> None:
    with pytest.raises(AssertionError), database.transaction(), database.transaction():
        pass
    _set_seen(database, 1)


def test_writers_of_one_process_are_served_in_turn(sqlite_database: Database) -> None:
    order: list[int] = []

    def write(number: int) -> None:
        with sqlite_database.transaction():
            order.append(number)

    threads = []
    with sqlite_database.transaction():
        for number in range(8):
            thread = threading.Thread(target=write, args=(number,))
            thread.start()
            threads.append(thread)
            time.sleep(0.02)  # they queue up in this order
    for thread in threads:
        thread.join(10)
    assert order == list(range(8))


def test_sqlite_connections_are_set_up_as_the_facts_say(sqlite_database: Database) -> None:
    with sqlite_database.reading() as db:
        found = [
            db.execute(sa.text(f"pragma {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    assert found == ["wal", 2, 1, 5_000]


def test_pool_that_is_used_up_is_busy_and_recovers(migrated_postgresql: str) -> None:
    database = Database(migrated_postgresql, pool_size=2, pool_timeout_s=0.1)
    held = [database.engine.connect() for _ in range(2)]
    with pytest.raises(MetadataBusy) as busy, database.reading() as db:
        db.execute(sa.text("select 1"))
    for connection in held:
        connection.close()
    assert (busy.value.status, busy.value.retryable) == (503, True)
    assert value(database, "fencing_token") >= 0
    database.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg://nobody@127.0.0.1:1/none", "sqlite:////nonexistent/folder/lethe.db"],
    ids=["postgresql", "sqlite"],
)
def test_database_that_cannot_be_reached_is_unavailable(url: str) -> None:
    database = Database(url)
    with pytest.raises(MetadataUnavailable) as away, database.reading() as db:
        db.execute(sa.text("select 1"))
    assert (away.value.status, away.value.retryable) == (503, True)
    assert "nobody" not in away.value.detail
    database.close()


def test_clock_of_the_lease_is_the_servers(postgresql_database: Database, sqlite_database: Database) -> None:
    clock = postgresql_database.clock
    assert isinstance(clock, FakeClock)
    clock.advance(86_400)
    with postgresql_database.reading() as db:
        assert abs(postgresql_database.now(db) - datetime.now(UTC)) < timedelta(minutes=1)
    with sqlite_database.reading() as db:
        assert sqlite_database.now(db) == clock.now()


MOMENTS = st.datetimes(
    min_value=datetime(1, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.timedeltas(timedelta(hours=-14), timedelta(hours=14)).map(
        lambda span: timezone(timedelta(minutes=span // timedelta(minutes=1)))
    ),
)


def stored(database: Database, moments: list[datetime]) -> tuple[list[datetime], list[datetime], set[int]]:
    """What comes back: as it was put in, in order of time, and the numbers of those before the first."""
    columns = [sa.Column("n", sa.Integer, primary_key=True), sa.Column("at", UtcDateTime)]
    table = sa.Table("moments", sa.MetaData(), *columns, prefixes=["TEMPORARY"])
    with database.transaction() as db:
        table.create(db.connection())
        for number, moment in enumerate(moments):
            db.execute(table.insert().values(n=number, at=moment))
        back = db.execute(sa.select(table.c.at).order_by(table.c.n)).scalars().all()
        ordered = db.execute(sa.select(table.c.at).order_by(table.c.at)).scalars().all()
        before = db.execute(sa.select(table.c.n).where(table.c.at < moments[0])).scalars().all()
        table.drop(db.connection())
    return list(back), list(ordered), set(before)


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(moments=st.lists(MOMENTS, min_size=2, max_size=5, unique=True))
def test_times_come_back_as_the_same_instants_in_order(database: Database, moments: list[datetime]) -> None:
    back, ordered, before = stored(database, moments)
    assert back == moments
    assert all(moment.tzinfo is UTC for moment in back)
    assert ordered == sorted(moments)
    assert before == {number for number, moment in enumerate(moments) if moment < moments[0]}


def test_naive_time_never_reaches_the_database() -> None:
    kind = UtcDateTime()
    with pytest.raises(AssertionError):
        kind.process_bind_param(datetime(2024, 1, 1), sa.create_engine("sqlite://").dialect)
    assert kind.process_bind_param(None, sa.create_engine("sqlite://").dialect) is None


@pytest.mark.parametrize(
    "edge",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-14))),
    ],
    ids=["first", "last"],
)
def test_time_beyond_the_calendar_in_utc_is_its_edge(database: Database, edge: datetime) -> None:
    # `created_after=0001-01-01T00:00:00+14:00` has no UTC form: it overflowed, the answer was 500.
    (back,), _, _ = stored(database, [edge])
    assert back.year == edge.year


@pytest.mark.parametrize(("said", "kept"), [("off", "on"), ("remote_apply", "remote_apply")])
def test_commit_that_was_answered_is_durable_whatever_the_server_says(
    migrated_postgresql: str, said: str, kept: str
) -> None:
    database = Database(migrated_postgresql)
    name = database.url.database
    try:
        with database.transaction() as db:
            db.execute(sa.text(f'alter database "{name}" set synchronous_commit = {said}'))
        database.engine.dispose()
        with database.reading() as db:
            assert db.execute(sa.text("show synchronous_commit")).scalar_one() == kept
    finally:
        with database.transaction() as db:
            db.execute(sa.text(f'alter database "{name}" reset synchronous_commit'))
        database.close()
