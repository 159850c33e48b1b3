"""Random extinctions and keys, and the oracle: a naive loop that reads each extinction's JSON anew."""

from __future__ import annotations

import base64
import json
import random
from dataclasses import dataclass
from typing import Any

from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter

DATABASES = (b"orders", b"customers", b"\xff\x00", b"never named")
ALPHABET = b"\x00\x01a\x7f\x80\xfe\xff"
SHORT_RANGE_CHANCE = 0.1


@dataclass(frozen=True)
class World:
    """What is known of a store."""

    extinctions: tuple[Extinction, ...]
    maybe: tuple[Extinction, ...]

    def bundle(self) -> dict[str, Any]:
        """As the service answers it."""
        return {
            "format": 1,
            "store": "s",
            "version": 1,
            "databases_are": "BASE64",
            "everything_maybe": False,
            "extinctions": [each.fields() for each in self.extinctions],
            "maybe": [each.fields() for each in self.maybe],
        }


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def random_key(dice: random.Random, *, least: int = 0, most: int = 12) -> bytes:
    return bytes(dice.choices(ALPHABET, k=dice.randint(least, most)))


def near(dice: random.Random, key: bytes) -> bytes:
    """A key, or one beside it: cut, longer, or with another last byte."""
    match dice.randrange(5):
        case 0:
            return key[:-1]
        case 1:
            return key + dice.choice((b"\x00", b"\xff"))
        case 2 if key:
            return key[:-1] + bytes([(key[-1] + dice.choice((1, 255))) % 256])
        case _:
            return key


def random_filter(dice: random.Random, keys: list[bytes], depth: int = 1) -> dict[str, Any]:
    if depth < 4 and dice.random() < 0.35:
        word = dice.choice(("all", "any", "not"))
        if word == "not":
            return {word: random_filter(dice, keys, depth + 1)}
        return {word: [random_filter(dice, keys, depth + 1) for _ in range(dice.randint(1, 3))]}
    match dice.randrange(4):
        case 0:
            return {"prefix": b64(near(dice, dice.choice(keys))[: dice.randint(1, 4)] or b"\xff")}
        case 1:
            start, end = sorted(near(dice, dice.choice(keys)) for _ in range(2))
            sides = {"start": b64(start), "end": b64(end)}
            for name in dice.choice(((), (), ("start",), ("end",))):
                del sides[name]
            return {"range": sides}
        case 2:
            divisor = dice.choice((1, 2, 3, 7, 256, 65_537, 2**31, 2**53 - 1))
            remainder = dice.randrange(min(divisor, 3))
            return {
                "modulo": {
                    "offset": dice.choice((0, 0, 1, 3, 2_000)),
                    "width": dice.randint(1, 8),
                    "divisor": divisor,
                    "remainder": remainder,
                }
            }
        case _:
            offset, width = dice.randint(0, 4), dice.choice((1, 1, 2, 3, 64))
            key = near(dice, dice.choice(keys))[offset : offset + width]
            value = key + random_key(dice, least=64, most=64)[: width - len(key)]
            op = dice.choice(("EQ", "NE", "LT", "LE", "GT", "GE"))
            return {"field": {"offset": offset, "width": width, "op": op, "value": b64(value)}}


def random_extinction(dice: random.Random, keys: list[bytes], number: int) -> Extinction:
    start: bytes | None
    end: bytes | None
    if dice.random() < SHORT_RANGE_CHANCE:
        start = end = dice.choice(keys)  # empty
    else:
        start, end = sorted(near(dice, dice.choice(keys)) for _ in range(2))
        start = None if dice.random() < 0.15 else start
        end = None if dice.random() < 0.15 else end
    found = Filter.parse(random_filter(dice, keys)) if dice.random() < 0.6 else None
    databases = frozenset(dice.sample(DATABASES[:3], dice.randint(1, 3)))
    return Extinction(f"ext_{number}", databases, start, end, found, "ü")


def random_world(dice: random.Random, keys: list[bytes], *, most: int = 5) -> World:
    """Few extinctions, so that every verdict is frequent."""
    rows = [random_extinction(dice, keys, number) for number in range(dice.randint(0, most))]
    cut = dice.randint(0, len(rows))
    return World(tuple(rows[:cut]), tuple(rows[cut:]))


def naive_status(world: World, database: bytes, key: bytes) -> str:
    """The verdict by the words of the document, an extinction at a time."""
    if any(_covers(json.loads(each.to_json()), database, key) for each in world.extinctions):
        return "EXTINCT"
    if any(_covers(json.loads(each.to_json()), database, key) for each in world.maybe):
        return "MAYBE_EXTINCT"
    return "NOT_EXTINCT"


def _covers(row: dict[str, Any], database: bytes, key: bytes) -> bool:
    if database not in [base64.b64decode(name) for name in row["databases"]]:
        return False
    if row["start_key"] is not None and list(key) < list(base64.b64decode(row["start_key"])):
        return False
    if row["end_key"] is not None and list(key) >= list(base64.b64decode(row["end_key"])):
        return False
    return row["filter"] is None or naive_filter(row["filter"], key)


def naive_filter(found: dict[str, Any], key: bytes) -> bool:
    """A filter by its definition, over lists of numbers."""
    [(word, inner)] = found.items()
    numbers = list(key)
    if word == "prefix":
        wanted = list(base64.b64decode(inner))
        return numbers[: len(wanted)] == wanted
    if word == "range":
        after = "start" not in inner or numbers >= list(base64.b64decode(inner["start"]))
        return after and ("end" not in inner or numbers < list(base64.b64decode(inner["end"])))
    if word in {"all", "any"}:
        verdicts = [naive_filter(part, key) for part in inner]
        return (False not in verdicts) if word == "all" else (True in verdicts)
    if word == "not":
        return not naive_filter(inner, key)
    part = numbers[inner["offset"] : inner["offset"] + inner["width"]]
    if len(part) < inner["width"]:
        return False
    if word == "modulo":
        value = sum(byte << 8 * place for place, byte in enumerate(reversed(part)))
        return value % inner["divisor"] == inner["remainder"]
    other = list(base64.b64decode(inner["value"]))
    return {
        "EQ": part == other,
        "NE": part != other,
        "LT": part < other,
        "LE": part <= other,
        "GT": part > other,
        "GE": part >= other,
    }[inner["op"]]
