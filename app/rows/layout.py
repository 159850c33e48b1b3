"""In which order the tables of a purge ROWS go, and by which keys: what a noted place and key stand for.

A plan names its rows, and a sweep its bounds, by the place of a table in that order and by values of its key.
A foreign key or a primary key that was changed since lets them stand for rows that nobody has looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.jobs.errors import JobFailed
from spark.rows.family import Family

TABLES: Final = "tables"
KEY_COLUMNS: Final = "key_columns"


def layout_of(family: Family) -> dict[str, Any]:
    """The tables as they are now, as JSON: their names in order, and name and type of each key column."""
    order = family.order()
    return {TABLES: order, KEY_COLUMNS: [_key_of(family, name) for name in order]}


def check_planned_layout(noted: Mapping[str, Any], family: Family) -> None:
    """Raise JobFailed where keys of a plan may stand for other rows than were reviewed.

    Args:
        noted: with the layout of the plan; a version before this one has not noted it.
    Raises: JobFailed: PLAN_NO_LONGER_HOLDS.
    """
    fault = _fault(noted, family)
    if fault is not None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", f"{fault}; plan again")


def check_same_layout(noted: Mapping[str, Any], family: Family) -> None:
    """Raise JobFailed where the bounds of an earlier attempt may be those of another table.

    Args:
        noted: with the layout of the first attempt; a version before this one has noted the tables alone.
    Raises: JobFailed: STORE_CHANGED.
    """
    fault = _fault(noted, family)
    if fault is not None:
        detail = f"{fault}; what is removed stays removed: submit the purge again for the rest"
        raise JobFailed("STORE_CHANGED", detail)


def _key_of(family: Family, name: str) -> list[list[str]]:
    table = family.tables[name]
    columns = [column for key in table.key if (column := table.column(key)) is not None]
    return [[column.name, column.type] for column in columns]


def _fault(noted: Mapping[str, Any], family: Family) -> str | None:
    """What is not as it was noted; None: nothing that was."""
    now = layout_of(family)
    if TABLES in noted and noted[TABLES] != now[TABLES]:
        before, after = ", ".join(noted[TABLES]), ", ".join(now[TABLES])
        return f"a foreign key has changed: the tables went as {before}, and would go as {after} now"
    keys = zip(now[TABLES], noted.get(KEY_COLUMNS, now[KEY_COLUMNS]), now[KEY_COLUMNS], strict=True)
    for table, was, is_now in keys:
        if was != is_now:
            return f"the key of {table} was {_shown(was)} and is {_shown(is_now)} now"
    return None


def _shown(key: Sequence[Sequence[str]]) -> str:
    return f"({', '.join(' '.join(column) for column in key)})"
