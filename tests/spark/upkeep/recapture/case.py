"""One random database, what its model says, and whether a purge left it so."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.oracles.symmetricds import CUTOFF, Place, Rows, snapshot
from tests.oracles.symmetricds_upkeep import expected_after_upkeep
from tests.spark.upkeep.recapture.after import check_captures, check_rows, new_rows
from tests.spark.upkeep.recapture.ground import Ground, random_ground
from tests.spark.upkeep.recapture.model import Model
from tests.spark.upkeep.recapture.replica import keys_named, replicate
from tests.spark.upkeep.recapture.shapes import is_written
from tests.spark.upkeep.recapture.stranding import strand_by_chance, stranded_rows


@dataclass
class Case:
    """A database before the purge; `original` are all its rows before, `name` is for messages."""

    ground: Ground
    model: Model
    original: Rows
    name: str

    def check(self) -> None:
        """The database is now as the model has it."""
        after = snapshot(self.ground.place)
        check_rows(self.model, after, self.ground.users(), case=self.name)
        check_captures(self.model, after, case=self.name)
        self.check_converges(after)

    def check_converges(self, after: Rows) -> int:
        """A node that got all but what was stranded, and then the new captures, has the rows of today.

        Returns: how many rows were compared.
        """
        ground, ids = self.ground, {row["data_id"] for row in self.model.stranded}
        if ground.dropped:
            return 0
        delivered = [row for data_id, row in sorted(ground.captured.items()) if data_id not in ids]
        compared = 0
        for capture in ground.captures:
            got = replicate(ground, capture.trigger_id, [*delivered, *new_rows(self.model, after)])
            for key in self._whole(capture.trigger_id):
                today, there = self.model.users[capture.shape.name].get(key), got.get(key)
                assert (today is None) == (there is None), f"{self.name}: {capture.trigger_id} {key}"
                compared += 1
                if today is not None and there is not None:
                    wrong = [
                        name
                        for name in capture.columns
                        if not is_written(capture.shape.of(name), today[name], there[name])
                    ]
                    assert not wrong, f"{self.name}: {capture.trigger_id} {key}: {wrong}"
        return compared

    def _whole(self, trigger_id: str) -> set[Any]:
        """Keys of which all that was stranded has gone, and which no update made of another key."""
        codes: dict[Any, set[str | None]] = defaultdict(set)
        for verdict in self.model.verdicts:
            captured = self.ground.captured.get(verdict.data_id)
            if (
                captured is None
                or self.ground.histories[captured["trigger_hist_id"]].trigger_id != trigger_id
            ):
                continue
            keys = keys_named(self.ground, captured)
            for key in keys:
                codes[key].add(verdict.code if len(keys) == 1 else "key changed")
        return {key for key, found in codes.items() if found == {None}}


def case_of(ground: Ground, name: str) -> Case:
    """The case that a ground is now."""
    place = ground.place
    original = snapshot(place)
    expected = expected_after_upkeep("STRANDED", place, original, CUTOFF)
    before = {**original, "data_event": expected["data_event"]}
    return Case(ground, Model(ground, before, ground.users(), stranded_rows(place)), original, name)


def random_case(place: Place, seed: int) -> Case:
    """A random database of a seed."""
    rng = Random(seed)
    ground = random_ground(place, rng)
    strand_by_chance(ground, rng)
    return case_of(ground, f"seed {seed}")
