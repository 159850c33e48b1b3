"""Addresses of stores that say the same in other words."""

import pytest

from app.stores.models import StoreKind
from app.stores.rows import Store
from app.stores.same_target import _address

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
