"""Many rows like one, made by the database itself: a hundred times cheaper than to send each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlmodel import Session, SQLModel

TAIL = 7
"""The end of an id that copies have of their own."""
Number = sa.ColumnElement[int]


def add_many(
    db: Session, row: SQLModel, count: int, **changed: Callable[[Number], sa.ColumnElement[Any]]
) -> None:
    """Add a row and so many like it that there are `count`.

    Args:
        changed: columns in which each differs, by its number from 0 on. Ids differ by themselves.
    """
    db.add(row)
    db.flush()
    table: sa.Table = row.__table__  # type: ignore[attr-defined]
    base = table.alias("base")
    numbers = sa.select(sa.literal(1).label("number")).cte("numbers", recursive=True)
    numbers = numbers.union_all(sa.select(numbers.c.number + 1).where(numbers.c.number < count - 1))
    number: Number = numbers.c.number
    tail = padded(number, TAIL)
    of_own = {"id": sa.func.substr(base.c.id, 1, sa.func.length(base.c.id) - TAIL, type_=sa.String) + tail}
    of_own |= {name: make(number) for name, make in changed.items()}
    chosen = [of_own.get(column.name, base.c[column.name]) for column in table.c]
    query = sa.select(*chosen).select_from(base.join(numbers, sa.true()))
    if count > 1:
        where = base.c.id == row.id  # type: ignore[attr-defined]
        db.execute(sa.insert(table).from_select([column.name for column in table.c], query.where(where)))


def padded(number: Number, digits: int) -> sa.ColumnElement[str]:
    """A number as a text with zeros before it."""
    return sa.func.substr(sa.cast(number + 10**digits, sa.String), 2, type_=sa.String)
