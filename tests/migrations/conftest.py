"""Fixtures of upgrades."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from tests.spark.events.catalogs import catalogs, slony_templates  # noqa: F401 -- fixtures


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A metadata database without any table."""
    url = f"sqlite:///{tmp_path / 'lethe.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    database = Database(url)
    yield database
    database.close()
