"""The model of the collations, held against the databases themselves."""

from __future__ import annotations

from itertools import combinations_with_replacement
from pathlib import Path

import pytest

from tests.oracles.symmetricds import Place, create, session
from tests.oracles.symmetricds_engines import PLACES, named_place
from tests.oracles.symmetricds_random import ENABLED_NODES, OPEN_STATUSES, STRANDED_NODES
from tests.oracles.symmetricds_random_incoming import GAP_STATUSES, INCOMING_STATUSES, ODD_NODES

NAMES = sorted({*ODD_NODES, *ENABLED_NODES, *STRANDED_NODES})
STATUSES = sorted(
    {*filter(None, (*GAP_STATUSES, *INCOMING_STATUSES, *OPEN_STATUSES)), "OK", "IG", "ig", "ne"}
)


@pytest.mark.parametrize("name", [name for name in PLACES if name.endswith("3.x")])
def test_texts_are_the_same_where_the_database_says_so(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Every pair of names and of statuses that the random databases use, compared as columns are."""
    place = named_place(
        name,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(place)
    said = {
        *_said_by(place, "node", "node_id", NAMES),
        *_said_by(place, "lock", "lock_action", STATUSES),
    }
    modelled = {
        (one, other)
        for texts in (NAMES, STATUSES)
        for one, other in combinations_with_replacement(texts, 2)
        if place.collation(one) == place.collation(other)
    }
    assert said == modelled


def _said_by(place: Place, table: str, column: str, texts: list[str]) -> set[tuple[str, str]]:
    """The pairs of texts of which each, as a row's value, is found by `column = other`."""
    known = {"node": {"node_group_id": "g", "external_id": "e"}, "lock": {"lock_type": "CLUSTER"}}[table]
    columns = ", ".join([column, *known])
    values = ", ".join(f":{name}" for name in [column, *known])
    found = set()
    with session(place) as target:
        for position, text in enumerate(texts):
            target.run(f"delete from {place.name(table)}")
            target.run(
                f"insert into {place.name(table)} ({columns}) values ({values})", {column: text, **known}
            )
            for other in texts[position:]:
                count = f"select count(*) from {place.name(table)} where {column} = :other"
                if target.run(count, {"other": other})[0][0]:
                    found.add((text, other))
    return found
