"""Random tables of any database, and a model of the purge ROWS that knows nothing of SQL: rows are dicts.

The rule that the model follows is the one of `spark.rows.family`, said once more in Python.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from spark.targets.connection import Connection

Row = dict[str, Any]
Truth = bool | None
# Names that break a statement which does not quote, or quotes by halves.
NAMES = [
    "plain",
    "order",
    "a b",
    "it's",
    'we"ird',
    "back`tick",
    "100%",
    "co:lon",
    "sémi;colon",
    "--dash",
    "select",
]
CUTOFFS = ["2026-03-29T01:30:00", "2025-10-26T00:30:00", "2025-11-02T05:30:00", "2026-01-15T12:00:00"]
ZONES = ["UTC", "Europe/Berlin", "America/New_York"]
TYPES = {
    "postgresql": {
        "int": "bigint",
        "text": "text",
        "date": "date",
        "moment": "timestamp",
        "uuid": "uuid",
        "num": "numeric(12,2)",
        "flag": "boolean",
        "timestamp": "timestamp",
        "timestamptz": "timestamptz",
        "epoch_s": "bigint",
        "epoch_ms": "bigint",
    },
    "mysql": {
        "int": "bigint",
        "text": "varchar(60) character set utf8mb4 collate utf8mb4_bin",
        "date": "date",
        "moment": "datetime(6)",
        "uuid": "char(36)",
        "num": "decimal(12,2)",
        "flag": "tinyint(1)",
        "timestamp": "datetime(6)",
        "timestamptz": "timestamp(6) null",
        "epoch_s": "bigint",
        "epoch_ms": "bigint",
    },
    "sqlite": {
        "int": "bigint",
        "text": "text",
        "date": "date",
        "moment": "timestamp",
        "uuid": "text",
        "num": "numeric",
        "flag": "boolean",
        "timestamp": "datetime",
        "timestamptz": "datetime",
        "epoch_s": "bigint",
        "epoch_ms": "bigint",
    },
}
KEYS = [
    ("int",),
    ("text",),
    ("uuid",),
    ("moment",),
    ("int", "text"),
    ("text", "int"),
    ("date", "int", "text"),
]


@dataclass
class Ref:
    """A foreign key of the table that has it."""

    parent: str
    columns: list[str]
    on_delete: str


@dataclass
class Made:
    """One table and its rows; `n` numbers them."""

    name: str
    key: list[str]
    types: dict[str, str]
    refs: list[Ref] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


@dataclass
class Case:
    """Tables, parents first, and what is asked of the first."""

    dialect: str
    rng: random.Random
    tables: dict[str, Made]
    root: str
    children: list[str]
    time: str | None
    time_kind: str
    zone: str
    cutoff: datetime
    where_text: str | None
    where: Callable[[Row], Truth]
    has_trigger: bool = False

    @property
    def refers_to_itself(self) -> bool:
        return any(ref.parent == made.name for made in self.tables.values() for ref in made.refs)


def make_case(seed: int, dialect: str) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    names = rng.sample(NAMES, 6)
    zone, cutoff = rng.choice(ZONES), datetime.fromisoformat(rng.choice(CUTOFFS)).replace(tzinfo=UTC)
    kind = rng.choice(["timestamp", "timestamptz", "date", "epoch_s", "epoch_ms"])
    if dialect == "sqlite":
        kind = rng.choice(["timestamp", "epoch_s", "epoch_ms", "mixed"])
        if kind == "timestamp" and seed % 3 == 0:
            kind = "date"
    root = _table(rng, names[0], rng.choice(KEYS))
    time_name = rng.choice(["created", "at time", "when"])
    root.types[time_name] = "timestamp" if kind == "mixed" else kind
    tables = {root.name: root}
    children: list[str] = []
    if rng.random() < 0.3:
        _refer(rng, root, root, "no action")
    for name in names[1 : 1 + rng.choice([0, 0, 1, 2, 3])]:
        parent = rng.choice([root, *(tables[each] for each in children)])
        made = _table(rng, name, rng.choice(KEYS))
        is_named = rng.random() < 0.6
        rules = ["no action", "restrict", *(["cascade"] if is_named else []), "set null"]
        _refer(rng, made, parent, rng.choice(rules))
        if is_named and rng.random() < 0.2:
            other = rng.choice([root, *(tables[each] for each in children)])
            _refer(rng, made, other, "no action")
        tables[name] = made
        if is_named:
            children.append(name)
    time = time_name if rng.random() < 0.85 else None
    text, test = (None, lambda _row: True)
    if time is None or rng.random() < 0.5:
        text, test = expression(rng, depth=3, dialect=dialect)
    case = Case(dialect, rng, tables, root.name, children, time, kind, zone, cutoff, text, test)
    case.has_trigger = rng.random() < 0.2
    for made in tables.values():
        _fill(case, made, time_name if made is root else None)
    return case


def _table(rng: random.Random, name: str, key: tuple[str, ...]) -> Made:
    names = rng.sample(["id", "k 2", 'q"uote', "group", "key%"], len(key))
    types = dict(zip(names, key, strict=True))
    return Made(name, names, types | {"n": "int", "status": "text", "amount": "num", "flag": "flag"})


def _refer(rng: random.Random, made: Made, parent: Made, rule: str) -> None:
    columns = [f"ref{len(made.refs)} {place}" for place in range(len(parent.key))]
    for column, key in zip(columns, parent.key, strict=True):
        made.types[column] = parent.types[key]
    made.refs.append(Ref(parent.name, columns, rule))


def _fill(case: Case, made: Made, time: str | None) -> None:
    rng, seen = case.rng, set()
    for n in range(rng.choice([0, 5, 30, 60])):
        row: Row = {name: _value(rng, made.types[name]) for name in made.key}
        if tuple(row.values()) in seen:
            continue
        seen.add(tuple(row.values()))
        row |= {
            "n": n,
            "status": rng.choice(["new", "done", "it's", "%", None]),
            "amount": rng.choice([None, Decimal(rng.randrange(-8, 8)) / 4]),
            "flag": rng.choice([True, False, None]),
        }
        for ref in made.refs:
            parents = made.rows if ref.parent == made.name else case.tables[ref.parent].rows
            parent = rng.choice(parents) if parents and rng.random() < 0.4 else None
            if parent is None and ref.parent == made.name and rng.random() < 0.2:
                parent = row  # it names itself
            keys = made.key if ref.parent == made.name else case.tables[ref.parent].key
            for column, key in zip(ref.columns, keys, strict=True):
                row[column] = None if parent is None else parent[key]
        if time is not None:
            row[time] = _time(case)
        made.rows.append(row)


def _value(rng: random.Random, kind: str) -> Any:
    if kind == "int":
        return rng.choice([rng.randrange(-5, 200), rng.randrange(2**40)])
    if kind == "text":
        return rng.choice(["", "a", "B", "é", "z'", "100%", ":x", "  "]) + str(rng.randrange(100))
    if kind == "uuid":
        return str(uuid.UUID(int=rng.getrandbits(128)))
    if kind == "date":
        return date(2025, 1, 1) + timedelta(days=rng.randrange(400))
    return datetime(2025, 1, 1) + timedelta(microseconds=rng.randrange(10**13))


def _time(case: Case) -> Any:
    rng = case.rng
    if rng.random() < 0.1:
        return None
    instant = case.cutoff + timedelta(minutes=rng.choice([-1, 0, 1, -60, 60, -61, -120, -90000, 3000, -1500]))
    naive = instant.astimezone(ZoneInfo(case.zone)).replace(tzinfo=None)
    kind = case.time_kind
    if kind == "mixed":
        kind = rng.choice(["timestamp", "timestamp", "epoch_ms", "junk", "offset", "real"])
    if kind == "epoch_s":
        return int(instant.timestamp())
    if kind == "epoch_ms":
        return int(instant.timestamp() * 1000)
    if kind == "timestamptz":
        return instant
    if kind == "date":
        return naive.date()
    if case.dialect == "sqlite":
        special = {"junk": "yesterday", "offset": f"{naive.isoformat()}+02:00", "real": 2460000.5}
        return special.get(kind, naive.isoformat(sep=" "))
    return naive


# -- what is asked, as text and as Python


def expression(rng: random.Random, *, depth: int, dialect: str) -> tuple[str, Callable[[Row], Truth]]:
    """An expression and what it says of a row."""
    if depth and rng.random() < 0.5:
        parts = [expression(rng, depth=depth - 1, dialect=dialect) for _ in range(rng.choice([1, 2, 3]))]
        if len(parts) == 1:
            (text, test) = parts[0]
            return f"NOT ({text})", lambda row: None if (found := test(row)) is None else not found
        word = rng.choice(["and", "OR"])
        joined = f" {word} ".join(f"({text})" for text, _ in parts)
        return joined, lambda row: _joined(word == "and", [test(row) for _, test in parts])
    return _test(rng)


def _joined(is_and: bool, found: list[Truth]) -> Truth:
    decisive = not is_and
    if decisive in found:
        return decisive
    return None if None in found else not decisive


def _test(rng: random.Random) -> tuple[str, Callable[[Row], Truth]]:
    column = rng.choice(["status", "amount", "n", "flag"])
    quoted = rng.choice([column, f'"{column}"'])
    if rng.random() < 0.2:
        negated = rng.random() < 0.5
        word = "IS NOT NULL" if negated else "is null"
        return f"{quoted} {word}", lambda row: (row[column] is None) != negated
    draw = {
        "status": lambda: rng.choice(["new", "done", "it's", "%", "x"]),
        "amount": lambda: Decimal(rng.randrange(-8, 8)) / 4,
        "n": lambda: rng.randrange(60),
        "flag": lambda: rng.random() < 0.5,
    }[column]
    if column == "flag" or rng.random() < 0.5:
        signs = ["=", "<>", "!="] if column == "flag" else ["=", "<>", "<", "<=", ">", ">="]
        sign, value = rng.choice(signs), draw()
        return f"{quoted} {sign} {_literal(value)}", lambda row: _compared(row[column], sign, value)
    negated = rng.random() < 0.4
    word = "not " if negated else ""
    if rng.random() < 0.5:
        values = [draw() for _ in range(rng.choice([1, 2, 3]))]
        listed = ", ".join(map(_literal, values))
        return (
            f"{quoted} {word}in ({listed})",
            lambda row: None if row[column] is None else (row[column] in values) != negated,
        )
    low, high = draw(), draw()
    text = f"{quoted} {word}between {_literal(low)} and {_literal(high)}"
    return text, lambda row: None if row[column] is None else (low <= row[column] <= high) != negated


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def _compared(value: Any, sign: str, other: Any) -> Truth:
    if value is None:
        return None
    return {
        "=": value == other,
        "<>": value != other,
        "!=": value != other,
        "<": value < other,
        "<=": value <= other,
        ">": value > other,
        ">=": value >= other,
    }[sign]


# -- the model


def is_older(case: Case, value: Any) -> bool:
    """Whether no row of the cut-off or later can show this time."""
    if value is None:
        return False
    if (
        isinstance(value, float)
        or value == "yesterday"
        or (isinstance(value, str) and value.endswith("+02:00"))
    ):
        return False
    if isinstance(value, int):
        per_s = 1 if case.time_kind == "epoch_s" else 1000
        return value < case.cutoff.timestamp() * per_s
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value < case.cutoff
    zone = ZoneInfo(case.zone)
    shown = [
        (case.cutoff + timedelta(minutes=minute)).astimezone(zone).replace(tzinfo=None)
        for minute in range(26 * 60)
    ]
    if isinstance(value, str):
        return datetime.fromisoformat(value) < min(shown)
    return value < min(shown) if isinstance(value, datetime) else value < min(shown).date()


class Model:
    """Removes rows one by one until none can go."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.rows = {name: list(made.rows) for name, made in case.tables.items()}
        self._chosen = {
            id(row): (case.time is None or is_older(case, row[case.time])) and case.where(row) is True
            for row in case.tables[case.root].rows
        }

    @property
    def family(self) -> list[str]:
        return [
            case_name for case_name in self.case.tables if case_name in {self.case.root, *self.case.children}
        ]

    def run(self) -> dict[str, list[Row]]:
        """What is left."""
        while sum(self._pass(name) for name in reversed(self.family)):
            pass
        return self.rows

    def _pass(self, name: str) -> int:
        going = [row for row in self.rows[name] if self.chosen(name, row) and not self.referrers(name, row)]
        self.rows[name] = [row for row in self.rows[name] if not any(row is gone for gone in going)]
        return len(going)

    def planned(self, name: str) -> list[Row]:
        """Rows that may go in some pass, as they are now."""
        return [row for row in self.rows[name] if self.may_go(name, row)]

    def may_go(self, name: str, row: Row) -> bool:
        if not self.free(name, row, itself=False):
            return False
        if name != self.case.root:
            return any(
                parent in self.family and self.may_go(parent, above)
                for parent, above in self.parents(name, row)
            )
        own = [each for other, each in self.referrers(name, row) if other == name]
        return self._chosen[id(row)] and all(self._chosen[id(each)] and each is not row for each in own)

    def referrers(self, name: str, row: Row) -> list[tuple[str, Row]]:
        """Other rows that refer to the row."""
        key = self.case.tables[name].key
        return [
            (other, each)
            for other, made in self.case.tables.items()
            for ref in made.refs
            if ref.parent == name
            for each in self.rows[other]
            # MariaDB deletes no row that refers to itself.
            if (each is not row or self.case.dialect == "mysql")
            and [each[column] for column in ref.columns] == [row[column] for column in key]
        ]

    def parents(self, name: str, row: Row) -> list[tuple[str, Row]]:
        found = []
        for ref in self.case.tables[name].refs:
            if ref.parent == name:
                continue
            key = self.case.tables[ref.parent].key
            found += [
                (ref.parent, each)
                for each in self.rows[ref.parent]
                if [each[column] for column in key] == [row[column] for column in ref.columns]
            ]
        return found

    def chosen(self, name: str, row: Row) -> bool:
        if name == self.case.root:
            return self._chosen[id(row)]
        return any(
            parent in self.family
            and self.chosen(parent, above)
            and self.free(parent, above, itself=parent == self.case.root)
            for parent, above in self.parents(name, row)
        )

    def free(self, name: str, row: Row, *, itself: bool) -> bool:
        for other, each in self.referrers(name, row):
            if other == name:
                if itself:
                    return False
            elif other not in self.family or not self.free(other, each, itself=False):
                return False
        return True


# -- at the target


def create(conn: Connection, case: Case) -> None:
    """Make the tables of a case with their rows."""
    quote, types = conn.dialect.quote, TYPES[conn.dialect.name]
    for made in case.tables.values():
        lines = []
        for column, kind in made.types.items():
            stays = " not null" if column in made.key else " null"
            declared = types[kind]
            lines.append(f"{quote(column)} {declared}{stays if 'null' not in declared else ''}")
        key = ", ".join(map(quote, made.key))
        lines.append(f"{'unique' if case.rng.random() < 0.2 else 'primary key'} ({key})")
        for ref in made.refs:
            here, there = (
                ", ".join(map(quote, ref.columns)),
                ", ".join(map(quote, case.tables[ref.parent].key)),
            )
            lines.append(
                f"foreign key ({here}) references {quote(ref.parent)} ({there}) on delete {ref.on_delete}"
            )
        conn.execute(f"create table {quote(made.name)} ({', '.join(lines)})")
        names = list(made.types)
        marks = ", ".join(f":c{place}" for place in range(len(names)))
        listed = ", ".join(map(quote, names))
        for row in made.rows:
            bound = {f"c{place}": _stored(conn, row[name]) for place, name in enumerate(names)}
            conn.execute(f"insert into {quote(made.name)} ({listed}) values ({marks})", bound)
    if case.has_trigger:
        _add_trigger(conn, case.root)


def _stored(conn: Connection, value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None and conn.dialect.name == "mysql":
        return value.astimezone(UTC).replace(tzinfo=None)
    if conn.dialect.name != "sqlite":
        return value
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date) else value


def _add_trigger(conn: Connection, table: str) -> None:
    name = conn.dialect.quote(table)
    conn.execute("create table gone (n integer)")
    if conn.dialect.name == "postgresql":
        conn.execute(
            "create or replace function note_gone() returns trigger language plpgsql as"
            " $$begin insert into gone values (old.n); return old; end$$"
        )
        conn.execute(
            f"create trigger noted before delete on {name} for each row execute function note_gone()"
        )
    else:
        conn.execute(
            f"create trigger noted before delete on {name} for each row"
            " begin insert into gone values (old.n); end"
        )


def drop(conn: Connection, case: Case) -> None:
    """Take the tables away."""
    for name in reversed(case.tables):
        conn.execute(f"drop table if exists {conn.dialect.quote(name)}")
    conn.execute("drop table if exists gone")


def numbers(conn: Connection, table: str) -> list[int]:
    """Which rows are left."""
    return sorted(int(n) for (n,) in conn.execute(f"select n from {conn.dialect.quote(table)}"))
