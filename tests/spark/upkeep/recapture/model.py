"""What a recapture must leave: naive, in plain Python, written from what the word is said to mean.

A key is known by the table, and by the values of its columns as `shapes.canonical` has them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.oracles.symmetricds import Row, Rows
from tests.spark.upkeep.recapture.ground import Ground
from tests.spark.upkeep.recapture.shapes import can_be_read, canonical
from tests.spark.upkeep.recapture.texts import NotReadable, parse
from tests.spark.upkeep.recapture.triggers import Capture

NOT_A_ROW = "RECAPTURE_NOT_A_ROW"
NO_HISTORY = "RECAPTURE_NO_HISTORY"
NO_TABLE = "RECAPTURE_NO_TABLE"
KEY_UNREADABLE = "RECAPTURE_KEY_UNREADABLE"
KEY_CHANGED = "RECAPTURE_KEY_CHANGED"
ROW_GONE = "RECAPTURE_ROW_GONE"
NOT_CAPTURED = "RECAPTURE_NOT_CAPTURED"
STATIC = (NOT_A_ROW, NO_HISTORY, NO_TABLE, KEY_UNREADABLE, KEY_CHANGED, ROW_GONE)

Key = tuple[str, tuple[Any, ...]]
Users = dict[str, dict[tuple[Any, ...], Row]]


@dataclass(frozen=True)
class Verdict:
    """Of one stranded row: it goes (`code` is None), or it stays for a reason.

    `key` is None where it could not be read; `trigger_id` of its history.
    """

    row: Row
    code: str | None
    key: Key | None = None
    trigger_id: str | None = None
    is_there: bool = False

    @property
    def data_id(self) -> int:
        """Of the row."""
        return int(self.row["data_id"])


@dataclass
class Model:
    """The verdicts of stranded rows.

    Attributes:
        before: all tables as the first step leaves them.
        stranded: rows of sym_data, in order.
    """

    ground: Ground
    before: Rows
    users: Users
    stranded: list[Row]

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """In order of the rows."""
        return [self._verdict(row) for row in self.stranded]

    @cached_property
    def histories(self) -> dict[int, Row]:
        """The rows of sym_trigger_hist as they are now."""
        return {row["trigger_hist_id"]: row for row in self.before["trigger_hist"]}

    def kept(self, *, static: bool = False) -> dict[str, list[int]]:
        """Ids of the rows that stay by reason; `static`: those that a plan can know."""
        found: dict[str, list[int]] = defaultdict(list)
        for verdict in self.verdicts:
            if verdict.code is not None and (not static or verdict.code in STATIC):
                found[verdict.code].append(verdict.data_id)
        return dict(found)

    def gone(self) -> list[int]:
        """Ids of the rows that go."""
        return [verdict.data_id for verdict in self.verdicts if verdict.code is None]

    def touched(self) -> set[Key]:
        """Keys whose rows are touched: they are there and a row of theirs could be captured anew."""
        return {verdict.key for verdict in self.verdicts if verdict.is_there and verdict.key is not None}

    def _verdict(self, row: Row) -> Verdict:
        event = str(row["event_type"]).strip()
        if event not in ("I", "U", "D") or row.get("is_prerouted") == 1:
            return Verdict(row, NOT_A_ROW)
        history = self.histories.get(row["trigger_hist_id"])
        if history is None or not history["source_table_name"] or not history["pk_column_names"]:
            return Verdict(row, NO_HISTORY)
        if not self._has_table(history):
            return Verdict(row, NO_TABLE)
        key = self.key_of(row, history)
        if key is None:
            return Verdict(row, KEY_UNREADABLE)
        trigger_id = str(history["trigger_id"])
        if event == "U" and (code := self._of_update(row, history, key)) is not None:
            return Verdict(row, code, key, trigger_id)
        today = self.users[key[0]].get(key[1])
        if today is None:
            return Verdict(row, None if event == "D" else ROW_GONE, key, trigger_id)
        code = None if self._is_captured(key, trigger_id, today) else NOT_CAPTURED
        return Verdict(row, code, key, trigger_id, is_there=True)

    def _of_update(self, row: Row, history: Row, key: Key) -> str | None:
        """Why an update stays whose row has another key after it, be it one that cannot be read, or none."""
        values = values_of(row["row_data"], history["column_names"].split(",")) or {}
        if any(values.get(name) is None for name in history["pk_column_names"].split(",")):
            return KEY_UNREADABLE
        return None if self.key_of({**row, "event_type": "I"}, history) == key else KEY_CHANGED

    def _has_table(self, history: Row) -> bool:
        table, catalog = history["source_table_name"], history["source_catalog_name"]
        if table not in self.users or catalog not in (None, "", self.ground.database):
            return False
        names = self.ground.shape(table).names
        return all(name in names for name in history["pk_column_names"].split(","))

    def key_of(self, row: Row, history: Row) -> Key | None:
        """The key of a captured row; None: it cannot be read."""
        shape = self.ground.shape(history["source_table_name"])
        dialect = self.ground.place.dialect
        if not shape.can_be_read(dialect):
            return None
        key_names = history["pk_column_names"].split(",")
        columns = history["column_names"].split(",")
        text, names = row["row_data"], columns
        if str(row["event_type"]).strip() != "I":
            text, names = (row["pk_data"], key_names) if row["pk_data"] else (row["old_data"], columns)
        values = values_of(text, names)
        if values is None or any(values.get(name) is None for name in key_names):
            return None
        if any(not can_be_read(shape.of(name).kind, values[name], dialect) for name in shape.key):
            return None
        key = tuple(canonical(shape.of(name).kind, values[name], dialect) for name in shape.key)
        return shape.name, key

    def _is_captured(self, key: Key, trigger_id: str, today: Row) -> bool:
        return any(
            capture.shape.name == key[0]
            and capture.trigger_id == trigger_id
            and self._is_known(capture)
            and capture.captures_touch_of(today)
            for capture in self.ground.captures
        )

    def _is_known(self, capture: Capture) -> bool:
        """Whether what it captures can be seen to be of its trigger."""
        return capture.hist_id in self.histories


def values_of(text: str | None, names: list[str]) -> dict[str, str | None] | None:
    """The values of a captured text by the names of its columns; None: it is not such a text."""
    if not text:
        return None
    try:
        values = parse(text)
    except NotReadable:
        return None
    return dict(zip(names, values, strict=True)) if len(values) == len(names) else None
