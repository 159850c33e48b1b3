"""Whoever edits the table of audit rows is found out, whatever he edits."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from app.audit.witness import Witness
from app.db import Database
from app.kit.ids import new_id
from tests.app.audit.ledger import Tables, faults, other_value, write

ROWS = 30
Edit = Callable[[random.Random, Tables], None]


def _change(rng: random.Random, tables: Tables) -> None:
    row = rng.choice(tables.events)
    name = rng.choice(sorted(row))
    row[name] = other_value(rng, name, row[name])


def _change_and_hash(rng: random.Random, tables: Tables) -> None:
    """A row whose own hash fits."""
    index = rng.randrange(len(tables.events) - 1)
    before = tables.copy()
    tables.events[index]["actor"] += "x"
    tables.rechain(index)
    changed = tables.events[index]
    tables.events, tables.chain = before.events, before.chain
    tables.events[index] = changed


def _remove(rng: random.Random, tables: Tables) -> None:
    first = rng.randrange(len(tables.events))
    del tables.events[first : first + rng.randint(1, 5)]


def _remove_first(rng: random.Random, tables: Tables) -> None:
    del tables.events[: rng.randint(1, 5)]


def _remove_last(rng: random.Random, tables: Tables) -> None:
    del tables.events[-rng.randint(1, 5) :]


def _remove_all(_rng: random.Random, tables: Tables) -> None:
    tables.events.clear()


def _remove_first_and_move_anchor(rng: random.Random, tables: Tables) -> None:
    gone = rng.randint(1, 5)
    last = tables.events[gone - 1]
    tables.chain[0] |= {"anchor_seq": last["seq"], "anchor_hash": last["hash"]}
    del tables.events[:gone]


def _insert(rng: random.Random, tables: Tables) -> None:
    row = dict(rng.choice(tables.events))
    places = (None, 0, -1, tables.events[-1]["seq"] + 1, tables.events[-1]["seq"] + 7)
    row |= {"id": new_id("aud"), "seq": rng.choice(places), "actor": "forged"}
    tables.events.append(row)


def _insert_between(rng: random.Random, tables: Tables) -> None:
    index = rng.randrange(1, len(tables.events))
    row = {**tables.events[index], "id": new_id("aud"), "actor": "forged"}
    for moved in tables.events[index:]:
        moved["seq"] += 1
    tables.events.insert(index, row)


def _swap_places(rng: random.Random, tables: Tables) -> None:
    one, other = rng.sample(tables.events, 2)
    for name in rng.choice((("seq",), ("seq", "hash", "previous_hash"))):
        one[name], other[name] = other[name], one[name]


def _forge_head(rng: random.Random, tables: Tables) -> None:
    name = rng.choice(("seq", "hash", "anchor_seq", "anchor_hash"))
    value = tables.chain[0][name]
    tables.chain[0][name] = value + rng.choice((-1, 1, 10)) if isinstance(value, int) else "f" * 64


def _remove_head(_rng: random.Random, tables: Tables) -> None:
    tables.chain.clear()


def _rewrite(rng: random.Random, tables: Tables) -> None:
    """All that the metadata holds fits again: only who has seen it before knows."""
    index = rng.randrange(len(tables.events))
    tables.events[index]["actor"] += "x"
    tables.rechain(index)


def _cut(rng: random.Random, tables: Tables) -> None:
    del tables.events[-rng.randint(1, 5) :]
    tables.rechain(len(tables.events))


def _cut_and_go_on(rng: random.Random, tables: Tables) -> None:
    tables.events[-rng.randint(1, 5)]["detail"] = {"text": "another history"}
    tables.rechain(0)


def _cut_all(_rng: random.Random, tables: Tables) -> None:
    tables.events.clear()
    tables.chain.clear()


EDITS: tuple[Edit, ...] = (
    _change,
    _change,
    _change_and_hash,
    _remove,
    _remove_first,
    _remove_last,
    _remove_all,
    _remove_first_and_move_anchor,
    _insert,
    _insert_between,
    _swap_places,
    _forge_head,
    _remove_head,
    _rewrite,
    _cut,
    _cut_and_go_on,
    _cut_all,
)


def _each_edit_is_found(database: Database, data_dir: Path, edits: int) -> None:
    write(database, ROWS)
    Witness(database, data_dir).look()
    assert faults(database, data_dir) == []
    whole = Tables.read(database)
    missed = []
    for number in range(edits):
        rng = random.Random(number)
        edit = EDITS[number % len(EDITS)]
        edited = whole.copy()
        edit(rng, edited)
        if edited == whole:
            continue
        edited.put(database)
        if not faults(database, data_dir):
            missed.append((number, edit.__name__))
    assert missed == []
    whole.put(database)
    assert faults(database, data_dir) == []


def test_each_edit_is_found(database: Database, tmp_path: Path) -> None:
    _each_edit_is_found(database, tmp_path, 60)


@pytest.mark.long
def test_each_of_a_thousand_edits_is_found(database: Database, tmp_path: Path) -> None:
    _each_edit_is_found(database, tmp_path, 1_000)


def test_a_witness_does_not_go_on_beside_another_chain(database: Database, tmp_path: Path) -> None:
    write(database, 5)
    former = Tables.read(database)
    write(database, 5)
    seen = Tables.read(database).events[-1]["seq"]
    witness = Witness(database, tmp_path)
    witness.look()
    former.put(database)
    write(database, 20)

    witness.look()
    assert [fault.code for fault in faults(database, tmp_path)] == ["CHAIN_PUT_BACK"]
    witness.begin()  # a restart says so in the chain, and goes by it from there
    witness.look()
    assert faults(database, tmp_path) == []
    last = Tables.read(database).events[-1]
    assert (last["action"], last["detail"]["seen"]["seq"]) == ("audit.put-back", seen)
