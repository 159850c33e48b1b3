"""The recorded catalogs, as the tests load them, are what was recorded."""

import hashlib

import pytest

from tests.spark.events.catalogs import DATA, Catalogs, State, oracle_cases, recorded_rows


@pytest.mark.parametrize("node", [1, 2, 3])
@pytest.mark.parametrize("state", ["fxa", "fxc"])
def test_loaded_catalog_has_the_recorded_rows(catalogs: Catalogs, state: State, node: int) -> None:
    assert catalogs.load(state, node).rows() == recorded_rows(state, node)


def test_another_cluster_name_keeps_the_rows(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxc", 2, cluster='Night "Shift"')
    assert loaded.rows() == recorded_rows("fxc", 2)


def test_empty_catalog_has_tables_and_an_own_node(catalogs: Catalogs) -> None:
    found = catalogs.empty(node=7).rows()
    rows = {table: [] for table in recorded_rows("fxa", 1)}
    assert found == {**rows, "sl_log_status": 0, "sl_local_node_id": 7}


def test_files_are_those_of_the_provenance_note() -> None:
    noted = (DATA / "PROVENANCE.md").read_text().split("```")[1].split()
    kept = sorted(path.relative_to(DATA).as_posix() for path in DATA.rglob("*.gz"))
    hashes = [hashlib.sha256((DATA / path).read_bytes()).hexdigest() for path in kept]
    assert noted == [part for pair in zip(hashes, kept, strict=True) for part in pair]
    assert len(oracle_cases()) == 36
