"""Fixtures of the purge's document: engines and places."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place
from tests.oracles.symmetricds_engines import ENGINES, PLACES, Engine, named_place


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    """What runs the purge."""
    if "mariadb" in request.node.name and request.param != "literal":
        pytest.skip("the units of spark.purge cannot speak to MariaDB yet")
    return ENGINES[request.param]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.postgresql if name.startswith("postgresql") else ())
        for name in PLACES
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database without tables, for each layout on each kind of target."""
    return named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
