"""Places in which captured rows are left stranded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place, create
from tests.oracles.symmetricds_engines import named_place

GROUNDS = ("sqlite-3.x", "postgresql-3.x", "mariadb-3.x")


MARKED = [
    pytest.param(name, marks=() if name.startswith("sqlite") else getattr(pytest.mark, name.split("-")[0]))
    for name in GROUNDS
]


@pytest.fixture(params=MARKED)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database of 3.x on each engine, without rows."""
    return _created(request, tmp_path)


@pytest.fixture(params=MARKED[1:])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database of 3.x on each server, without rows."""
    return _created(request, tmp_path)


def _created(request: pytest.FixtureRequest, directory: Path) -> Place:
    found = named_place(
        request.param,
        directory=directory,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found
