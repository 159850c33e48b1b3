"""A plan that would remove nothing has no button to run it; one that does something has."""

from datetime import UTC, datetime
from typing import Any

import pytest

from app.console.acts.reading import standing

NOW = datetime(2026, 11, 20, tzinfo=UTC)
PLAN: dict[str, Any] = {"expires_at": "2026-11-21T00:00:00Z", "limits": {"exceeded": []}}
TABLE = {"table": "sym_data", "rows": 9, "rows_to_remove": 0}
NODES = [{"node_id": "store-05", "batches": 2, "rows": 3}]
FILE = {"file": "00000000.jdb", "deleted": False}


@pytest.mark.parametrize(
    "more",
    [
        {"tables": [TABLE], "stranded": {"mode": "SKIP", "nodes": NODES, "rows": 3}},
        {"tables": [TABLE], "stranded": None},
        {"rows_to_remove": 0, "rids": []},
        {"tables": {"sl_event": 0}, "rows_to_remove": 0, "log_switch": {"step": "BLOCKED"}},
        {"erase": [], "files": [FILE]},
    ],
)
def test_an_empty_plan_is_not_run(more: dict[str, Any]) -> None:
    """The page offered to run it, with the name of the store and a reason."""
    found = standing(PLAN | more, now=NOW)
    assert found.is_empty
    assert found.obstacle.startswith("There is nothing to remove")


@pytest.mark.parametrize(
    "more",
    [
        {"tables": [TABLE | {"rows_to_remove": 1}], "stranded": None},
        {"tables": [TABLE], "stranded": {"mode": "MARK", "nodes": NODES, "rows": 3}},
        # CHANNELS: its batches are of no channel, whatever their nodes.
        {"tables": [TABLE], "stranded": {"mode": "MARK", "nodes": [], "batches": 2, "rows": 0}},
        {"rows_to_remove": 1, "rids": []},
        {"tables": {}, "rows_to_remove": 0, "log_switch": {"step": "START"}},
        {"erase": [{"code": "OBSOLETE", "entries": 1, "bytes": 9}], "files": [FILE]},
        {"erase": [], "files": [FILE | {"deleted": True}]},
        {"records": 0, "bytes": 0},
    ],
)
def test_a_plan_that_does_something_is_run(more: dict[str, Any]) -> None:
    assert standing(PLAN | more, now=NOW).obstacle == ""
