"""Databases with captured tables, in which random work was done and captured rows were left stranded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from sqlalchemy.engine import make_url

from tests.oracles.symmetricds import CUTOFF, Place, Row, empty, load, snapshot
from tests.oracles.symmetricds_schema import quoted
from tests.spark.upkeep.recapture.hands import Hand, hand, literal
from tests.spark.upkeep.recapture.shapes import SHAPES, Shape, random_value, rows_of, where
from tests.spark.upkeep.recapture.triggers import VARIANTS, Capture, build, unbuild

OLD = CUTOFF - timedelta(days=1)
LOWEST_BATCH = 100
MISSING_HISTORY = 9_999


@dataclass
class Ground:
    """A place with tables of users.

    Attributes:
        captures: what captures today, two of them on some tables.
        histories: of all that ever captured, by their number, as they were.
        captured: the rows of sym_data as the triggers wrote them, by their number.
    """

    place: Place
    shapes: tuple[Shape, ...]
    captures: list[Capture] = field(default_factory=list)
    histories: dict[int, Capture] = field(default_factory=dict)
    captured: dict[int, Row] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def users(self) -> dict[str, dict[tuple[Any, ...], Row]]:
        """Every row of every table of users that is there."""
        with hand(self.place) as worker:
            return {
                shape.name: rows_of(worker, shape) for shape in self.shapes if shape.name not in self.dropped
            }

    def shape(self, name: str) -> Shape:
        """The table of a name."""
        return next(shape for shape in self.shapes if shape.name == name)

    @property
    def database(self) -> str | None:
        """What SymmetricDS calls the catalog."""
        return None if self.place.dialect == "sqlite" else make_url(self.place.url).database


def clear(place: Place) -> None:
    """Take all tables of users away, and every row of SymmetricDS."""
    with hand(place) as worker:
        for shape in SHAPES[place.dialect]:
            worker.run(f"drop table if exists {shape.place(place.dialect)}")
    empty(place)


def make(place: Place, shapes: Iterable[Shape], captures: Iterable[Capture]) -> Ground:
    """Tables with their triggers and histories, and no row."""
    ground = Ground(place, tuple(shapes))
    with hand(place) as worker:
        for shape in ground.shapes:
            worker.run(shape.create(place.dialect))
        install(ground, worker, captures)
    return ground


def install(
    ground: Ground,
    worker: Hand,
    captures: Iterable[Capture],
    *,
    catalog: str | None = None,
    schema: str | None = None,
) -> None:
    """Add captures to those that are there."""
    for capture in captures:
        build(worker, ground.place, capture)
        load(ground.place, {"trigger_hist": [capture.history(catalog=catalog, schema=schema)]})
        ground.captures.append(capture)
        ground.histories[capture.hist_id] = capture


def insert(worker: Hand, shape: Shape, row: Row) -> None:
    """A row into a table of users."""
    names = ", ".join(quoted(name, worker.dialect) for name in row)
    values = ", ".join(literal(value, worker.dialect) for value in row.values())
    worker.run(f"insert into {shape.place(worker.dialect)} ({names}) values ({values})")


def update(worker: Hand, shape: Shape, key: tuple[Any, ...], row: Row) -> None:
    """New values of the row of a key."""
    sets = ", ".join(
        f"{quoted(name, worker.dialect)} = {literal(value, worker.dialect)}" for name, value in row.items()
    )
    condition = where(shape, key, worker.dialect)
    worker.run(f"update {shape.place(worker.dialect)} set {sets} where {condition}")


def delete(worker: Hand, shape: Shape, key: tuple[Any, ...]) -> None:
    """The row of a key goes."""
    condition = where(shape, key, worker.dialect)
    worker.run(f"delete from {shape.place(worker.dialect)} where {condition}")


def random_ground(place: Place, rng: Random) -> Ground:
    """Some tables after random work in two times, between which triggers were built anew."""
    clear(place)
    shapes = rng.sample(SHAPES[place.dialect], rng.choice([1, 2, 3, 4]))
    ground = make(place, shapes, [])
    numbers = iter(range(1, 100))
    with hand(place) as worker:
        for time in range(2):
            for capture in ground.captures:
                unbuild(worker, capture)
            before, ground.captures = ground.captures, []
            for capture in _again(rng, before, numbers) if time else _first(rng, ground, numbers):
                catalog = rng.choice([None, ground.database])
                schema = rng.choice([None, "public"]) if place.dialect == "postgresql" else None
                install(ground, worker, [capture], catalog=catalog, schema=schema)
            for _ in range(rng.choice([4, 15, 30])):
                work(rng, worker, rng.choice(ground.shapes))
    ground.captured = {row["data_id"]: row for row in snapshot(place)["data"]}
    return ground


def _first(rng: Random, ground: Ground, numbers: Any) -> list[Capture]:
    made = []
    for place_of, shape in enumerate(ground.shapes):
        for other in range(rng.choice([1, 1, 2])):
            others = [name for name in shape.names if name not in shape.key]
            capture = Capture(
                trigger_id=f"t{place_of}{'ab'[other]}",
                hist_id=next(numbers),
                shape=shape,
                columns=(),
                key=shape.key,
                variant=rng.choice([*VARIANTS, "always", "always", "always"]),
                channel=rng.choice(["default", "sale"]),
                condition=rng.choice(others),
            )
            made.append(_in_some_order(rng, capture))
    return made


def _again(rng: Random, before: list[Capture], numbers: Any) -> list[Capture]:
    """The same triggers with other histories."""
    return [_in_some_order(rng, replace(capture, hist_id=next(numbers))) for capture in before]


def _in_some_order(rng: Random, capture: Capture) -> Capture:
    names = list(capture.shape.names)
    if rng.random() < 0.6:
        rng.shuffle(names)
    key = rng.sample(capture.shape.key, len(capture.shape.key))
    optional = [name for name in names if name not in (*key, capture.condition)]
    if optional and rng.random() < 0.2:
        names.remove(rng.choice(optional))
    return replace(capture, columns=tuple(names), key=tuple(key))


def work(rng: Random, worker: Hand, shape: Shape, *, changes_keys: bool = True) -> None:
    """One insert, update or delete of a key of few."""
    rows = rows_of(worker, shape)
    row = {
        column.name: random_value(rng, column.kind, of_key=column.name in shape.key)
        for column in shape.columns
    }
    there = [tuple(each[name] for name in shape.key) for each in rows.values()]
    chance = rng.random()
    if not there or chance < 0.45:
        if not _is_there(worker, shape, row):
            insert(worker, shape, row)
    elif chance < 0.7:
        delete(worker, shape, rng.choice(there))
    elif chance < 0.95 or not changes_keys or _is_there(worker, shape, row):
        values = {name: row[name] for name in shape.names if name not in shape.key}
        update(worker, shape, rng.choice(there), values)
    else:  # the key changes
        update(worker, shape, rng.choice(there), row)


def _is_there(worker: Hand, shape: Shape, row: Row) -> bool:
    condition = where(shape, tuple(row[name] for name in shape.key), worker.dialect)
    return bool(worker.run(f"select 1 from {shape.place(worker.dialect)} where {condition}"))
