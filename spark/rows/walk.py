"""The way through the tables of a selection, in ranges of their keys.

A key of a piece is the number of rows before it in this attempt's way, then the texts of the row's key; the
first is excluded, the last included. A piece counts rows that are looked at, not those that go.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark.rows.family import PASSES_MAX, TableStep
from spark.rows.keys import KeyTexts, texts_of
from spark.rows.sql import Sql
from spark.targets.connection import Connection
from spark.targets.errors import TargetStatementTimeout
from spark.targets.key_order import select_by_index
from spark.targets.walk import Bounds, Key, Piece

AT_THE_END = 2**62


@dataclass(frozen=True)
class RowsPiece(Piece):
    """A piece whose first key is excluded."""

    def after(self) -> Key:
        """What the next piece begins behind."""
        return self.hi

    def reaches(self, hi: Key) -> bool:
        """By the very key: what follows what is known to the database alone, and numbers of rows change."""
        return texts(self.hi) == texts(hi)


def step_name(turn: int, place: int) -> str:
    """The name of a pass over one table."""
    return f"{turn}-{place}"


def place_of(step: str) -> int:
    """Which of the tables a step is about."""
    return int(step.split("-")[1])


def texts(key: Sequence[Any]) -> KeyTexts:
    """The key of the row, without its number."""
    return tuple(map(str, key[1:]))


@dataclass(frozen=True, slots=True)
class RowsWalk:
    """Pass after pass, in each the tables in their order.

    Args:
        repeats: more than one pass.
        bounded: of the first table's step: what no row behind the last one fulfils; read by an index.
    """

    tables: Sequence[TableStep]
    repeats: bool
    bounded: Mapping[int, Sql]

    @property
    def steps(self) -> Sequence[str]:
        """Every pass over every table."""
        turns = PASSES_MAX if self.repeats else 1
        return [step_name(turn, place) for turn in range(turns) for place in range(len(self.tables))]

    def bounds(self, conn: Connection, step: str, known: Mapping[str, Bounds | None]) -> Bounds | None:
        """From before the first row to the last that there is now; a later pass to the last that can go."""
        place, turn = place_of(step), int(step.split("-")[0])
        table = self.tables[place]
        first = known.get(step_name(0, place))
        if turn > 0:
            return None if first is None else _last_that_goes(conn, table, first)
        condition = self.bounded.get(place)
        try:
            return _upto(conn, table, condition)
        except TargetStatementTimeout:
            if condition is None:
                raise
            return _upto(conn, table, None)

    def pieces(
        self, conn: Connection, step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """The next ranges; the last one ends with the last key of `bounds`."""
        table, last = self.tables[place_of(step)], bounds[1]
        here: Key = bounds[0] if after is None else after
        found: list[Piece] = []
        while len(found) < count and texts(here) != texts(last):
            piece = _next_piece(conn, table, here, last, rows=rows)
            if piece is None:
                break
            found.append(piece)
            here = piece.hi
        return found


def _last_that_goes(conn: Connection, table: TableStep, first: Bounds) -> Bounds | None:
    """The bounds of a later pass: never beyond those of the first one, as the database orders keys."""
    end = table.key.upto(texts(first[1]), "upto_")
    removable = table.removable
    condition = Sql(f"({end.text}) and ({removable.text})", {**end.bound, **removable.bound})
    try:
        return _upto(conn, table, condition)
    except TargetStatementTimeout:
        return first


def _upto(conn: Connection, table: TableStep, condition: Sql | None) -> Bounds | None:
    """From before the first row to the last that fulfils the condition."""
    where = "" if condition is None else f" where {condition.text}"
    rows = select_by_index(
        conn,
        f"select {table.key.selected} from {table.source}{where} order by {table.key.order(' desc')} limit 1",
        {} if condition is None else dict(condition.bound),
    )
    if not rows:
        return None
    hi: Any = (AT_THE_END, *texts_of(rows[0]))
    return (0,), hi


def within(table: TableStep, after: KeyTexts, upto: KeyTexts) -> Sql:
    """True for rows behind one key and up to another."""
    end = table.key.upto(upto, "upto_")
    if not after:
        return end
    begin = table.key.after(after, "after_")
    return Sql(f"({begin.text}) and ({end.text})", {**begin.bound, **end.bound})


def _next_piece(conn: Connection, table: TableStep, here: Key, last: Key, *, rows: int) -> Piece | None:
    between = within(table, texts(here), texts(last))
    found = select_by_index(
        conn,
        f"select {table.key.selected} from {table.source} where {between.text}"
        f" order by {table.key.order()} limit 1 offset :skip",
        {**between.bound, "skip": rows - 1},
    )
    if found:
        hi: Any = (here[0] + rows, *texts_of(found[0]))
        return RowsPiece(here, last if texts(hi) == texts(last) else hi, rows)
    [(left,)] = conn.execute(f"select count(*) from {table.source} where {between.text}", dict(between.bound))
    return RowsPiece(here, last, int(left)) if left else None


def each_chunk(
    conn: Connection, table: TableStep, *, rows: int, should_stop: Callable[[], bool]
) -> "list[tuple[KeyTexts, KeyTexts]]":
    """The ranges of a whole table, for a plan; an empty list: it has no rows, or somebody stopped."""
    walk = RowsWalk([table], False, {})
    step = step_name(0, 0)
    bounds = walk.bounds(conn, step, {})
    found: list[tuple[KeyTexts, KeyTexts]] = []
    after: Key | None = None
    while bounds is not None and not should_stop():
        pieces = walk.pieces(conn, step, bounds, after=after, rows=rows, count=1)
        if not pieces:
            break
        found.append((texts(pieces[0].lo), texts(pieces[0].hi)))
        after = pieces[0].hi
    return found
