"""A metadata server that hangs: its kernel acknowledges, and it says nothing. Every wait for it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from app.db import Database
from app.errors import MetadataUnavailable
from app.jobs.rows import Counter
from app.kit.metadata.engines import wait_without_end
from spark.targets import target as targets
from tests.app.fake_clock import FakeClock
from tests.journeys.tcp_proxy import Silencing, ended

pytestmark = pytest.mark.postgresql
STATEMENT_S, MARGIN_S = 1.0, 0.5


@pytest.fixture
def silencing(postgresql_database: Database) -> Iterator[Silencing]:
    port = postgresql_database.url.port
    assert port is not None
    with Silencing(port) as proxy:
        yield proxy


@pytest.fixture
def behind(
    postgresql_database: Database, silencing: Silencing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Database]:
    """The same metadata by way of the proxy."""
    monkeypatch.setattr(targets, "ANSWER_MARGIN_S", MARGIN_S)
    url = make_url(str(postgresql_database.url)).set(host="127.0.0.1", port=silencing.port)
    database = Database(
        url.render_as_string(hide_password=False),
        clock=clock,
        statement_timeout_ms=round(STATEMENT_S * 1000),
    )
    yield database
    database.close()


def counted(database: Database) -> int:
    with database.reading() as db:
        return db.execute(sa.text("select count(*) from counters")).scalar_one()


def added(database: Database, name: str, *, then: Callable[[], None] = lambda: None) -> None:
    with database.transaction() as db:
        db.add_all(Counter(name=f"{name}{number}", value=1) for number in range(2))
        db.flush()
        then()


def test_a_read_is_given_up_and_the_next_one_after_it_is_answered(
    behind: Database, silencing: Silencing
) -> None:
    before = counted(behind)
    silencing.fall_silent()
    began_s = time.monotonic()
    assert isinstance(ended(lambda: counted(behind)), MetadataUnavailable)
    assert time.monotonic() - began_s >= STATEMENT_S, "the server's own limit comes first"
    silencing.speak()
    assert ended(lambda: counted(behind)) == before


def test_a_commit_without_an_answer_has_an_end_and_happened_wholly_or_not_at_all(
    behind: Database, silencing: Silencing, postgresql_database: Database
) -> None:
    before = counted(postgresql_database)
    act = lambda: added(behind, "silent", then=silencing.fall_silent)  # noqa: E731
    assert isinstance(ended(act), MetadataUnavailable)
    assert counted(postgresql_database) - before in (0, 2)
    silencing.speak()
    between = counted(postgresql_database)
    assert ended(lambda: added(behind, "after")) is None
    assert counted(postgresql_database) == between + 2


def test_who_lifts_the_limits_of_the_server_waits_as_long_as_it_takes_and_leaves_them_for_the_next(
    behind: Database,
) -> None:
    long_s = STATEMENT_S + MARGIN_S + 1.0

    def long(*, is_patient: bool) -> bool:
        with behind.engine.connect() as connection:
            if is_patient:
                wait_without_end(connection)
            connection.exec_driver_sql("set statement_timeout = 0")
            try:
                connection.exec_driver_sql(f"select pg_sleep({long_s})")
            except sa.exc.OperationalError:
                return False
            finally:
                if not connection.invalidated:
                    connection.exec_driver_sql("reset statement_timeout")
        return True

    assert long(is_patient=True)
    assert not long(is_patient=False), "the connection was given back: it is impatient again"
