"""The keys of the rows that a plan has seen: in runs, packed, and as a condition of a statement.

A key is a tuple of numbers. A run is a key without its last number, then the first and the last of the
numbers that follow one another: rows captured one after the other are one run, however many they are.
"""

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from spark.targets.connection import DialectName

Key = tuple[int, ...]
Run = tuple[int, ...]
KeySink = Callable[[str, Sequence[tuple[Any, ...]]], None]
"""Takes a step, and keys of its rows that would go, as they stand in the table."""


class RunsOfKeys:
    """Puts ascending keys together; a key that comes twice counts once."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.count = 0

    def add(self, key: Key) -> None:
        """The next key."""
        last = self.runs[-1] if self.runs else None
        if last is not None and last[:-2] == key[:-1]:
            assert key[-1] >= last[-1], "keys come in their order"
            if key[-1] == last[-1]:
                return
            if key[-1] == last[-1] + 1:
                self.runs[-1] = (*last[:-1], key[-1])
                self.count += 1
                return
        self.runs.append((*key, key[-1]))
        self.count += 1


def first_of(run: Run) -> Key:
    """The first key of a run."""
    return run[:-1]


def last_of(run: Run) -> Key:
    """The last key of a run."""
    return (*run[:-2], run[-1])


def keys_within(runs: Iterable[Run], lo: Key, hi: Key) -> Iterator[Key]:
    """The keys of ascending runs from `lo` to `hi`, both included."""
    for run in runs:
        if last_of(run) < lo:
            continue
        if first_of(run) > hi:
            return
        head = run[:-2]
        for number in range(run[-2], run[-1] + 1):
            key = (*head, number)
            if key > hi:
                return
            if key >= lo:
                yield key


def pack_runs(runs: Sequence[Run]) -> str:
    """Runs of one width as text: the differences from run to run, compressed."""
    width = len(runs[0]) if runs else 2
    known = (0,) * width
    numbers = array("q", [width])
    for run in runs:
        numbers.extend(value - before for value, before in zip(run, known, strict=True))
        known = run
    return b64encode(zlib.compress(numbers.tobytes(), level=6)).decode()


def unpack_runs(text: str) -> list[Run]:
    """What `pack_runs` was given."""
    numbers = array("q")
    numbers.frombytes(zlib.decompress(b64decode(text)))
    width = numbers[0]
    known = (0,) * width
    runs = []
    for start in range(1, len(numbers), width):
        known = tuple(
            value + before for value, before in zip(numbers[start : start + width], known, strict=True)
        )
        runs.append(known)
    return runs


def pack_texts(keys: Sequence[tuple[Any, ...]]) -> str:
    """Keys of texts as one text, compressed."""
    return b64encode(zlib.compress(json.dumps(keys).encode(), level=6)).decode()


def unpack_texts(text: str) -> list[tuple[Any, ...]]:
    """What `pack_texts` was given."""
    return [tuple(key) for key in json.loads(zlib.decompress(b64decode(text)))]


def among(dialect: DialectName, columns: Sequence[str], *, last_is_text: bool = False) -> str:
    """True for a row whose key is one of those that `bound_keys` binds."""
    if dialect == "mysql":
        named = columns[0] if len(columns) == 1 else f"({', '.join(columns)})"
        return f"{named} in :only"
    if dialect == "sqlite":
        if len(columns) == 1:
            return f"{columns[0]} in (select o.value from json_each(:only) o)"
        values = ", ".join(f"json_extract(o.value, '$[{place}]')" for place in range(len(columns)))
        return f"({', '.join(columns)}) in (select {values} from json_each(:only) o)"
    if len(columns) == 1:
        return f"{columns[0]} = any(cast(:only as bigint[]))"
    second = "text" if last_is_text else "bigint"
    listed = f"unnest(cast(:only as bigint[]), cast(:only_2 as {second}[]))"
    return f"({', '.join(columns)}) in (select * from {listed})"


def bound_keys(dialect: DialectName, keys: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """The parameters of `among`."""
    assert keys, "a unit has a row"
    is_single = len(keys[0]) == 1
    if dialect == "sqlite":
        return {"only": json.dumps([key[0] for key in keys] if is_single else [list(key) for key in keys])}
    if dialect == "mysql":
        return {"only": [key[0] for key in keys] if is_single else list(keys)}
    found: dict[str, Any] = {"only": [key[0] for key in keys]}
    return found if is_single else found | {"only_2": [key[1] for key in keys]}
