"""facts/symmetricds-purge, section 1: what only 3.x has."""

from __future__ import annotations

import pytest

from spark.formats.symmetricds import Layout, detect_version


@pytest.mark.parametrize(
    ("tables", "gap", "version"),
    [
        ({"data", "data_gap"}, ("status", "last_update_time"), "2.x"),
        ({"data"}, (), "2.x"),
        ({"data", "data_gap"}, ("is_expired",), "3.x"),
        ({"data", "sequence"}, ("status",), "3.x"),
        ({"data", "context"}, (), "3.x"),
    ],
)
def test_tables_of_a_version_tell_it(tables: set[str], gap: tuple[str, ...], version: str) -> None:
    assert detect_version(tables=tables, data_gap_columns=gap) == version


def test_layout_of_known_tables_lists_their_columns() -> None:
    layout = Layout("2.x", frozenset({"data"}), (("data", ("data_id", "create_time")),), False, True)
    assert layout.columns_of("data") == ("data_id", "create_time")
