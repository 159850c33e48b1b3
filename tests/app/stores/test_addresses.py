"""Addresses of stores that say the same in other words."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.db import Database
from app.stores.checks.keeping import DETAIL_MAX_CHARS
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.same_target import (
    _address,
    _near,
    kept_same_target,
    shown_same_target,
    warn_of_same_target,
)

POSTGRESQL = "postgresql+psycopg://lethe@"


def address(url: str, schema: str | None = None) -> tuple[object, ...]:
    return _address(Store(id="s", kind=StoreKind.SYMMETRICDS, url=url, schema_name=schema))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{POSTGRESQL}db.example/shop", f"{POSTGRESQL}DB.example:5432/shop?sslmode=require"),
        (f"{POSTGRESQL}localhost/shop", "postgresql+psycopg://other@127.0.0.1:5432/shop"),
        ("mysql+pymysql://a@db.example/shop", "mysql+pymysql://b@db.example:3306/shop"),
        ("sqlite:////srv/a/../shop.db", "sqlite:////srv/shop.db"),
    ],
)
def test_one_place_has_one_address(one: str, other: str) -> None:
    assert address(one) == address(other)


@pytest.mark.parametrize(
    "other",
    ["db.example:5433/shop", "db.example/shop2", "db.example/Shop", "db2.example/shop"],
)
def test_places_differ(other: str) -> None:
    assert address(f"{POSTGRESQL}db.example/shop") != address(POSTGRESQL + other)


def test_the_default_schema_has_a_name() -> None:
    url = f"{POSTGRESQL}db.example/shop"
    assert address(url) == address(url, "public") != address(url, "other")


# -- which rows are looked at: a registration holds the metadata meanwhile


def register(database: Database, url: str, number: int, **fields: Any) -> Store:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    times = {"created_at": now, "updated_at": now}
    with database.transaction() as db:
        row = Store(id=f"s-{number}", kind=StoreKind.SYMMETRICDS, url=url, **times, **fields)
        db.add(row)
        db.flush()
        db.expunge(row)
    return row


@pytest.mark.parametrize(
    "url",
    [
        POSTGRESQL + "shop{}.example/shop",
        POSTGRESQL + "db.example/shop{}x",
        "mysql+pymysql://a@shop{}.example/shop",
        "sqlite:////srv/shop{}/shop.db",
    ],
)
def test_of_a_fleet_that_nobody_has_asked_no_other_store_is_looked_at(
    sqlite_database: Database, url: str
) -> None:
    stores = [register(sqlite_database, url.format(number), number) for number in range(10, 20)]
    with sqlite_database.transaction() as db:
        assert db.exec(_near(stores[0])).all() == []
        assert warn_of_same_target(db, stores[0], visible=None) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"{POSTGRESQL}db.example/shop", f"{POSTGRESQL}DB.example:5432/shop?sslmode=require"),
        (f"{POSTGRESQL}localhost/shop", f"{POSTGRESQL}127.0.0.1:5432/shop"),
        ("sqlite:////srv/a/../shop.db", "sqlite:////srv/shop.db"),
        ("sqlite:////srv/shop.db", "sqlite:////srv/a/../shop.db"),
    ],
)
def test_a_place_that_is_written_otherwise_is_looked_at(database: Database, one: str, other: str) -> None:
    register(database, one, 1)
    second = register(database, other, 2)
    with database.transaction() as db:
        [warning] = warn_of_same_target(db, second, visible=None)
    assert warning.detail.startswith("store s-1: ")


def test_many_stores_are_counted_and_those_that_may_be_seen_are_named() -> None:
    others = [f"s-{number:02}" for number in range(30)]
    [all_] = shown_same_target(others, visible=None)
    assert "store s-09 and 20 more store(s): the same kind" in all_.detail
    [some] = shown_same_target(others, visible=["s-25"])
    assert some.detail.startswith("store s-25 and 29 store(s) that this token may not see: ")
    [kept] = kept_same_target(others)
    assert kept.detail.startswith("30 other store(s), which `:check` names: ")
    assert len(kept.detail) <= DETAIL_MAX_CHARS
