"""A password that is changed beneath a job on Spark: its next tasks have the new one, as threads have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from app.secrets.renewing import Renewal
from app.settings import Settings
from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.pool.pool import SparkPool
from spark.targets.connection import Target
from spark.targets.errors import TargetAuthFailed
from tests.conftest import SharedServer
from tests.postgresql_server import GUARDED_ROLE
from tests.spark.exchange.work import think, work_of

UNITS = 12


class Shop:
    """A database whose password is changed at the server, in the secret's file, or in both."""

    def __init__(self, server: SharedServer, url: str, folder: Path) -> None:
        self._server = server
        self._file = folder / "secrets" / "shop"
        self._file.parent.mkdir(mode=0o700)
        self._settings = Settings(data_dir=folder / "data", secrets_dir=self._file.parent)
        self._url = make_url(url).set(username=GUARDED_ROLE).render_as_string(hide_password=False)

    def lock(self, password: str) -> None:
        self._server.execute(f"alter role {GUARDED_ROLE} password '{password}'")

    def note(self, password: str) -> None:
        self._file.write_text(password)
        self._file.chmod(0o600)

    def target(self, password: str) -> Target:
        """As a job makes it, once."""
        renewal = Renewal("file:shop", name="shop", settings=self._settings, value=password)
        return Target(url=self._url, password=password, renewal=renewal)


@pytest.fixture
def shop(postgresql_server: SharedServer, postgresql_url: str, tmp_path: Path) -> Iterator[Shop]:
    if postgresql_server.password is not None:
        pytest.skip("the server is not one that knows the guarded role")
    postgresql_server.execute(
        f"do $$ begin create role {GUARDED_ROLE} login; exception when duplicate_object then null; end $$"
    )
    yield Shop(postgresql_server, postgresql_url, tmp_path)
    postgresql_server.execute(f"drop role {GUARDED_ROLE}")


@pytest.fixture
def exchange(pool: SparkPool) -> Iterator[Exchange]:
    made = Exchange(pool, dispatchers=2, limits=ExchangeLimits(task_s=0.05))
    yield made
    made.close(10)


def test_units_go_on_with_the_new_password(exchange: Exchange, shop: Shop) -> None:
    """The job failed for good, though the secret's file had the password that its server asked for."""
    shop.lock("one")
    shop.note("one")
    ended: list[int] = []
    with exchange.lease(work_of(shop.target("one"), think), LeaseTerms(workers=2)) as lease:
        for outcome in lease.map(iter(range(UNITS))):
            assert outcome.error is None
            ended.append(outcome.unit)
            if len(ended) in (1, UNITS // 2):
                password = f"after {len(ended)}"
                shop.note(password)
                shop.lock(password)
    assert sorted(ended) == list(range(UNITS))


def test_password_that_is_refused_and_still_the_same_is_an_outcome(exchange: Exchange, shop: Shop) -> None:
    shop.lock("two")
    shop.note("one")
    with exchange.lease(work_of(shop.target("one"), think), LeaseTerms(workers=2)) as lease:
        errors = [outcome.error for outcome in lease.map(iter(range(3)))]
    assert [type(error) for error in errors] == [TargetAuthFailed] * 3
