"""The client's extinction filter: what it does not understand is MAYBE_EXTINCT, never NOT_EXTINCT."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from lethe_client import ExtinctionBundle

from tests.spark.extinction.cases import DATABASES, b64, near, random_key, random_world

RANGE = {"id": "ext_1", "label": "l", "start_key": b64(b"b"), "end_key": b64(b"d"), "filter": None}


def _bundle(*rows: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {
        "format": 1,
        "store": "s",
        "version": 3,
        "databases_are": "UTF8",
        "everything_maybe": False,
        "extinctions": [RANGE | {"databases": ["orders"]} | row for row in rows],
        "maybe": [],
    }
    return body | fields


def _verdicts(body: Any) -> list[str]:
    """Of a key in the range, one outside of it, and one of another database."""
    bundle = ExtinctionBundle.parse(body)
    return [*bundle.status_many("orders", [b"c", b"a"]), bundle.status("other", b"c")]


def test_range_is_extinct_and_nothing_else() -> None:
    assert _verdicts(_bundle({})) == ["EXTINCT", "NOT_EXTINCT", "NOT_EXTINCT"]
    assert _verdicts(json.dumps(_bundle({}))) == ["EXTINCT", "NOT_EXTINCT", "NOT_EXTINCT"]
    assert ExtinctionBundle.parse(_bundle({})).version == 3


@pytest.mark.parametrize(
    "found",
    [
        {"regex": "c.*"},
        {"prefix": "?"},
        {"prefix": "YR=="},
        {"modulo": {"offset": 0, "width": 1, "divisor": 0, "remainder": 0}},
        {"field": {"offset": 0, "width": 2, "op": "EQ", "value": b64(b"c")}},
        {"field": {"offset": 0, "width": 1, "op": "LIKE", "value": b64(b"c")}},
        {"range": {"start": "YQ==", "upto": "YQ=="}},
        {"all": []},
        {"not": {"prefix": "YQ==", "range": {}}},
        [],
    ],
)
def test_filter_that_is_not_known_makes_its_range_maybe(found: Any) -> None:
    bundle = ExtinctionBundle.parse(_bundle({"filter": found}))
    assert not bundle.complete
    assert _verdicts(_bundle({"filter": found})) == ["MAYBE_EXTINCT", "NOT_EXTINCT", "NOT_EXTINCT"]


@pytest.mark.parametrize("row", [{"start_key": 7}, {"end_key": "?"}, {"every_second_day": True}])
def test_range_that_is_not_known_makes_its_databases_maybe(row: dict[str, Any]) -> None:
    assert _verdicts(_bundle(row)) == ["MAYBE_EXTINCT", "MAYBE_EXTINCT", "NOT_EXTINCT"]


@pytest.mark.parametrize(
    "body",
    [
        _bundle({}, format=2),
        _bundle({}, databases_are="UTF16"),
        _bundle({"databases": None}),
        _bundle({"databases": [7]}),
        _bundle(extinctions=["text"]),
        {},
        "{",
        b"\xff",
        "[]",
        _bundle({}, everything_maybe=True),
    ],
)
def test_bundle_that_is_not_known_makes_every_key_maybe(body: Any) -> None:
    assert _verdicts(body) == ["MAYBE_EXTINCT"] * 3


def test_known_extinction_beside_an_unknown_one_stays_extinct() -> None:
    body = _bundle({}, {"start_key": 7, "databases": ["orders"]})
    assert _verdicts(body) == ["EXTINCT", "MAYBE_EXTINCT", "NOT_EXTINCT"]


def test_damaged_bundles_never_turn_extinct_into_not_extinct() -> None:
    dice = random.Random(11)
    for _ in range(200):
        keys = [random_key(dice) for _ in range(10)]
        world = random_world(dice, keys)
        whole = ExtinctionBundle.parse(world.bundle())
        damaged = json.loads(json.dumps(world.bundle()))
        _damage(dice, damaged)
        broken = ExtinctionBundle.parse(damaged)
        for key in (*keys, *(near(dice, key) for key in keys)):
            for database in DATABASES:
                if broken.status(database, key) == "NOT_EXTINCT":
                    assert whole.status(database, key) == "NOT_EXTINCT"


def _damage(dice: random.Random, body: dict[str, Any]) -> None:
    """A part of a later version, as this one would meet it."""
    rows = body["extinctions"] + body["maybe"]
    if not rows or dice.random() < 0.2:
        body["format"] = 2
        return
    row = dice.choice(rows)
    match dice.randrange(4):
        case 0:
            row["filter"] = {"all": [{"later": {}}]}
        case 1:
            row["start_key"] = {"later": 1}
        case 2:
            row["later"] = 1
        case _:
            row["databases"] = "all"


@pytest.mark.alone
def test_verdict_takes_microseconds_a_key() -> None:
    dice = random.Random(3)
    rows = []
    for number in range(500):
        start = dice.randbytes(6)
        rows.append({"id": f"ext_{number}", "start_key": b64(start), "end_key": b64(start + b"\xff")})
    bundle = ExtinctionBundle.parse(_bundle(*rows))
    keys = [dice.randbytes(8) for _ in range(10_000)]
    begun = time.perf_counter()
    bundle.status_many("orders", keys)
    assert (time.perf_counter() - begun) / len(keys) < 20e-6
