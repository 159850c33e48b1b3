"""Whether a database is what a model says after the purge."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from tests.oracles.symmetricds import CUTOFF, Place, Row, Rows
from tests.spark.upkeep.recapture.model import Key, Model, Users, Verdict, values_of
from tests.spark.upkeep.recapture.shapes import is_written

OWN_OF_COPY = ("data_id", "create_time")


def check_rows(model: Model, after: Rows, users: Users, *, case: str) -> None:
    """Every row of every table, but for the captures that are new, is as the model has it."""
    assert users == model.users, f"{case}: a table of users has changed"
    greatest = max((row["data_id"] for row in model.before["data"]), default=0)
    gone, now = set(model.gone()), [row for row in after["data"] if row["data_id"] <= greatest]
    there = {row["data_id"] for row in now}
    wrong = [each for each in model.verdicts if (each.code is None) == (each.data_id in there)]
    assert not wrong, f"{case}: went or stayed wrongly: {wrong}"
    assert now == [row for row in model.before["data"] if row["data_id"] not in gone], case
    others = {name for name in after if name not in ("data", "lock")}
    assert {name: after[name] for name in others} == {name: model.before[name] for name in others}, case


def new_rows(model: Model, after: Rows) -> list[Row]:
    """What was captured by the purge, in order."""
    greatest = max((row["data_id"] for row in model.before["data"]), default=0)
    return [row for row in after["data"] if row["data_id"] > greatest]


def check_captures(model: Model, after: Rows, *, case: str) -> None:
    """What was captured is what had to be, and nothing else."""
    updates: dict[tuple[str, Key], int] = defaultdict(int)
    copies: dict[tuple[str, Key], int] = defaultdict(int)
    for row in new_rows(model, after):
        history = model.histories.get(row["trigger_hist_id"])
        assert history is not None or row["event_type"] == "U", f"{case}: {row}"
        if row["event_type"] == "D":
            copies[_of_copy(model, row, case)] += 1
        elif history is not None:
            updates[_of_update(model, row, history, case)] += 1
        assert is_now(model.ground.place, row["create_time"]), f"{case}: {row}"
    for verdict in model.verdicts:
        if verdict.code is None and verdict.is_there:
            assert updates[_own(verdict)], f"{case}: nothing new of {verdict}"
    asked = Counter(_own(each) for each in model.verdicts if each.code is None and not each.is_there)
    assert set(copies) == set(asked), f"{case}: copies"
    assert {name: count for name, count in copies.items() if count > asked[name]} == {}, case


def count_copies(model: Model, after: Rows) -> int:
    """How many captured deletes were copied."""
    return sum(1 for row in new_rows(model, after) if row["event_type"] == "D")


def absent_keys(model: Model) -> tuple[int, int]:
    """How many keys are not there and have a stranded delete, for each trigger; and in how many spellings."""
    gone = [each for each in model.verdicts if each.code is None and not each.is_there]
    return len({_own(each) for each in gone}), len({(_own(each), each.row["pk_data"]) for each in gone})


def _own(verdict: Verdict) -> tuple[str, Key]:
    assert verdict.trigger_id is not None
    assert verdict.key is not None
    return verdict.trigger_id, verdict.key


def _of_copy(model: Model, row: Row, case: str) -> tuple[str, Key]:
    for verdict in model.verdicts:
        same = {name for name in row if row[name] == verdict.row[name]}
        if verdict.code is None and not verdict.is_there and same >= set(row) - set(OWN_OF_COPY):
            return _own(verdict)
    raise AssertionError(f"{case}: a copy of no stranded row: {row}")


def _of_update(model: Model, row: Row, history: Row, case: str) -> tuple[str, Key]:
    assert row["event_type"] == "U", f"{case}: {row}"
    capture = next(each for each in model.ground.captures if each.hist_id == row["trigger_hist_id"])
    shape = capture.shape
    key = model.key_of(row, {**history, **capture.history(catalog=None, schema=None)})
    assert key in model.touched(), f"{case}: captured, but nobody was to touch it: {row}"
    assert key is not None
    today = model.users[shape.name][key[1]]
    values = values_of(row["row_data"], list(capture.columns))
    assert values is not None, f"{case}: {row}"
    wrong = [name for name, text in values.items() if not is_written(shape.of(name), today[name], text)]
    assert not wrong, f"{case}: not of today: {wrong} of {row}"
    return capture.trigger_id, key


def is_now(place: Place, time: Any) -> bool:
    """Whether a time is of these days, as the place keeps it."""
    if place.dialect != "sqlite":
        return isinstance(time, datetime) and time > CUTOFF
    return type(time) is type(place.encode(CUTOFF)) and time > place.encode(CUTOFF)
