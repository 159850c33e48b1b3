"""Fixtures of the purge's document: engines and places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place
from tests.oracles.symmetricds_engines import ENGINES, PLACES, Engine, named_place
from tests.seeds.purging import Purging, purging_service


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


@pytest.fixture(scope="session")
def standing_purging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Purging]:
    """A service for the session's purges over HTTP."""
    with purging_service(tmp_path_factory.mktemp("purging"), {}) as made:
        yield made


@pytest.fixture
def purging(request: pytest.FixtureRequest) -> Purging:
    """The same, for what the service can do by now."""
    for missing in ("mariadb", "SPARK"):
        if missing in request.node.name:
            pytest.skip(f"the service cannot purge with this yet: {missing}")
    found: Purging = request.getfixturevalue("standing_purging")
    return found
