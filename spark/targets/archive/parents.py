"""Which archived tables need rows of which: those that are referred to are restored first."""

from collections.abc import Iterable, Mapping

from spark.targets.connection import Connection
from spark.targets.references import references

Parents = Mapping[str, frozenset[str]]


def parents_of(conn: Connection, tables: Iterable[str]) -> Parents:
    """Table to those of the tables to which it refers by a foreign key, itself among them."""
    known = {_folded(conn, name): name for name in tables}
    found: dict[str, set[str]] = {name: set() for name in known.values()}
    for child, parent in references(conn):
        names = known.get(_folded(conn, child)), known.get(_folded(conn, parent))
        if names[0] is not None and names[1] is not None:
            found[names[0]].add(names[1])
    return {name: frozenset(parents) for name, parents in found.items()}


def parents_first(parents: Parents) -> list[str]:
    """Every table behind those to which it refers; tables that refer to each other stand last, by name."""
    left, ordered = sorted(parents), []
    while ready := [name for name in left if not (parents[name] - {name}) & set(left)]:
        ordered += ready
        left = [name for name in left if name not in ready]
    return ordered + left


def in_a_circle(parents: Parents, tables: Iterable[str]) -> list[str]:
    """Those of some tables to which the way back leads over others of them."""
    among = set(tables)
    return sorted(name for name in among if name in _above(parents, name, among))


def _above(parents: Parents, name: str, among: set[str]) -> set[str]:
    found: set[str] = set()
    todo = [name]
    while todo:
        new = (parents[todo.pop()] & among) - found
        found |= new
        todo += new
    return found


def _folded(conn: Connection, name: str) -> str:
    """SQLite knows a table under any case of its name."""
    return str(name).lower() if conn.dialect.name == "sqlite" else str(name)
