"""Places in which captured rows are left stranded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place, create
from tests.oracles.symmetricds_engines import named_place

GROUNDS = ("sqlite-3.x", "postgresql-3.x", "mariadb-3.x")


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name.startswith("sqlite") else getattr(pytest.mark, name.split("-")[0]))
        for name in GROUNDS
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database of 3.x on each engine, without rows."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found
