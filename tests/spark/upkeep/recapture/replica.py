"""A naive node: it gets captured rows in their order, and has in the end what it was told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.oracles.symmetricds import Row
from tests.spark.upkeep.recapture.ground import Ground
from tests.spark.upkeep.recapture.model import values_of
from tests.spark.upkeep.recapture.shapes import canonical
from tests.spark.upkeep.recapture.triggers import Capture

Copy = dict[tuple[Any, ...], dict[str, str | None]]


def replicate(ground: Ground, trigger_id: str, rows: Iterable[Row]) -> Copy:
    """The rows of a node that one trigger feeds: captured texts by the names of columns.

    An update of a row that is not there inserts it, an insert of one that is updates it.
    """
    made: Copy = {}
    for row in rows:
        capture = ground.histories.get(row["trigger_hist_id"])
        if capture is not None and capture.trigger_id == trigger_id:
            _apply(ground, made, capture, row)
    return made


def keys_named(ground: Ground, row: Row) -> set[tuple[Any, ...]]:
    """The keys that a captured row is about: two, where an update has changed the key."""
    capture = ground.histories[row["trigger_hist_id"]]
    lines = [
        values_of(row["pk_data"], list(capture.key)),
        values_of(row["row_data"], list(capture.columns)),
    ]
    return {_key(ground, capture, line) for line in lines if line is not None}


def _apply(ground: Ground, made: Copy, capture: Capture, row: Row) -> None:
    old = values_of(row["pk_data"], list(capture.key)) or values_of(row["old_data"], list(capture.columns))
    new = values_of(row["row_data"], list(capture.columns))
    before = made.pop(_key(ground, capture, old), {}) if old is not None else {}
    if row["event_type"] == "D":
        return
    assert new is not None
    key = _key(ground, capture, new)
    made[key] = {**made.get(key, {}), **before, **new}


def _key(ground: Ground, capture: Capture, values: dict[str, str | None]) -> tuple[Any, ...]:
    return tuple(
        canonical(capture.shape.of(name).kind, values[name], ground.place.dialect)
        for name in capture.shape.key
    )
