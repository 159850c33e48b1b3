"""Audit rows as the service writes them, and the raw tables as an adversary sees them."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy as sa
from lethe_client.audit_chain import Fault, row_hash

from app.audit.reading import check_chain
from app.audit.witness import fault_of, seen_by
from app.auth.rows import AuditChain, AuditEvent
from app.db import Database
from app.kit.ids import new_id

EPOCH = datetime(2026, 11, 1, tzinfo=UTC)
EVENTS: Any = AuditEvent.__table__  # type: ignore[attr-defined]
CHAIN: Any = AuditChain.__table__  # type: ignore[attr-defined]
DETAILS: tuple[dict[str, Any], ...] = (
    {},
    {"text": "a\nb\u00fc\U0001f600", "number": 2**53 + 1, "half": 0.1, "none": None},
    {"nested": {"b": [1, {"a": True}], "a": -0.0}, "1": "\u2028"},
)


def event(number: int, *, at: datetime | None = None) -> AuditEvent:
    """One that a mutation leaves."""
    return AuditEvent(
        id=new_id("aud"),
        at=at or EPOCH + timedelta(microseconds=number * 1_000_001),
        token_id=None if number % 3 else "tok_1",
        actor=f"ann {number % 5}",
        action="store.change",
        subject_type="store",
        subject_id=str(number),
        store=None if number % 2 else "shop",
        request_id=f"req {number}",
        detail=DETAILS[number % len(DETAILS)],
    )


def write(database: Database, rows: int) -> None:
    """Some transactions with one row or several."""
    number = 0
    while number < rows:
        with database.transaction() as db:
            for _ in range(1 + number % 3):
                db.add(event(number))
                number += 1


def write_for_ever(url: str) -> NoReturn:
    """A row in each transaction until the process is killed; says so behind the third."""
    database = Database(url)
    for number in count():
        with database.transaction() as db:
            db.add(event(number))
        if number == 2:
            print("ready", flush=True)
    raise AssertionError


def faults(database: Database, data_dir: Path | None = None) -> list[Fault]:
    """What the check of a whole chain finds."""
    found = check_chain(database, after=None, rows_max=10**9)
    assert found.is_whole
    seen = seen_by(data_dir) if data_dir is not None else None
    extra = None
    if seen is not None:
        with database.reading() as db:
            extra = fault_of(db, seen, now=database.now(db))
    return found.check.faults + ([extra] if extra is not None else [])


@dataclass
class Tables:
    """All rows of both tables, to be edited and put back."""

    events: list[dict[str, Any]]
    chain: list[dict[str, Any]]

    @classmethod
    def read(cls, database: Database) -> Tables:
        """As they are."""
        with database.engine.connect() as connection:
            events = [
                dict(row) for row in connection.execute(sa.select(EVENTS).order_by(EVENTS.c.seq)).mappings()
            ]
            chain = [dict(row) for row in connection.execute(sa.select(CHAIN)).mappings()]
        return cls(events, chain)

    @staticmethod
    def column_type(name: str) -> Any:
        """How a column of the audit rows is written."""
        return EVENTS.c[name].type

    def put(self, database: Database) -> None:
        """Write them past the service."""
        with database.engine.begin() as connection:
            connection.execute(sa.delete(EVENTS))
            connection.execute(sa.delete(CHAIN))
            for table, rows in ((EVENTS, self.events), (CHAIN, self.chain)):
                if rows:
                    connection.execute(sa.insert(table), rows)

    def copy(self) -> Tables:
        """One that may be edited."""
        return copy.deepcopy(self)

    def rechain(self, first: int) -> None:
        """Give the rows from an index on hashes that fit, and the head too."""
        for index in range(first, len(self.events)):
            row = self.events[index]
            row["previous_hash"] = self.events[index - 1]["hash"] if index else self.chain[0]["anchor_hash"]
            row["hash"] = row_hash(row)
        self.chain[0] |= {"seq": self.events[-1]["seq"], "hash": self.events[-1]["hash"]}


def other_value(rng: random.Random, name: str, value: Any) -> Any:
    """Another value of a column."""
    if name == "at":
        return value + timedelta(microseconds=rng.choice((-1, 1, 10**6)))
    if name == "detail":
        return {**value, "text": "forged"} if rng.random() < 0.5 else {"text": "forged"}
    if name in ("hash", "previous_hash"):
        return f"{rng.getrandbits(256):064x}"
    if name == "seq":
        return value + 10**6
    return None if value is not None and name in ("token_id", "store", "request_id") else f"{value}x"
