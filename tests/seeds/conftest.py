"""Fixtures of the purge's document: engines and places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles.ready_places import ready_place
from tests.oracles.symmetricds import Place
from tests.oracles.symmetricds_engines import ENGINES, PLACES, Engine
from tests.seeds.purging import Purging, purging_service

# Every sentence on every ground would take minutes, since a server needs a database for each test; the random
# databases go through all of them.
UNITS_ON_MARIADB = {"lethe"}
# Units prove every sentence on every ground; the others, in make test, on one file and one server each.
GROUNDS = {"literal": {"sqlite-2.x", "postgresql-3.x"}, "lethe-2-workers": {"sqlite-3.x", "postgresql-2.x"}}
SMALL_SPARK = {
    "LETHE_SPARK__CORES": "2",
    "LETHE_SPARK__DRIVER_MEMORY": "512m",
    "LETHE_SPARK__JAVA_OPTIONS": '["-XX:TieredStopAtLevel=1"]',
}
PLACES_OVER_HTTP = {"sqlite-2.x", "sqlite-3.x", "postgresql-2.x", "mariadb-3.x"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out sentences that the same statements prove on a neighbouring ground."""
    for item in items:
        if _is_put_off(item):
            item.add_marker(pytest.mark.long)
    kept = [item for item in items if not _is_left_out(item)]
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _is_left_out(item: pytest.Item) -> bool:
    if (
        item.path.parent != Path(__file__).parent
        or "random" in item.name
        or not isinstance(item, pytest.Function)
    ):
        return False
    chosen = getattr(item, "callspec", None)
    place = chosen.params.get("place", "") if chosen else ""
    if "purging" in item.fixturenames:
        return place != "" and place not in PLACES_OVER_HTTP
    return place.startswith("mariadb") and chosen.params.get("engine") not in {None, *UNITS_ON_MARIADB}


def _is_put_off(item: pytest.Item) -> bool:
    """A sentence that another engine proves on this ground, and this engine on another one."""
    chosen = getattr(item, "callspec", None)
    if item.path.parent != Path(__file__).parent or chosen is None or "random" in item.name:
        return False
    place, grounds = chosen.params.get("place"), GROUNDS.get(chosen.params.get("engine"))
    return place is not None and grounds is not None and place not in grounds


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    """What runs the purge."""
    return ENGINES[request.param]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.postgresql if name.startswith("postgresql") else ())
        for name in PLACES
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A database for each layout on each kind of target; `create` and `build` make what is not there."""
    chosen = getattr(request.node, "callspec", None)
    loose = chosen is not None and chosen.params.get("loose", False)
    with ready_place(request, request.param, tmp_path, loose=loose) as found:
        yield found


@pytest.fixture(scope="session")
def purging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Purging]:
    """A service for the session's purges over HTTP; its Spark starts with the first purge that wants it."""
    with purging_service(tmp_path_factory.mktemp("purging"), SMALL_SPARK) as made:
        yield made
