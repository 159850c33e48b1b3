"""The notation of the decision table: `{1: 50, 2: 60}` is a vector, `50.1` a CSN of time 50 and replica 1."""

from __future__ import annotations

from spark.formats.csn import Csn
from spark.replication.supplier.decide import Consumer, Decision, Previous, Strategy, Supplier, Vector, decide

EPOCH = 0x65000000


def at(time: int, rid: int) -> Csn:
    """The table's `time.rid`."""
    return Csn.of(EPOCH + time, 0, rid)


def vector(times: dict[int, int]) -> Vector:
    """The table's `{rid:time}`."""
    return {rid: at(time, rid) for rid, time in times.items()}


def classic(
    *,
    s: dict[int, int],
    c: dict[int, int],
    m: dict[int, int] | None = None,
    p: dict[int, int] | None = None,
    buffer: Csn | None = None,
) -> Decision:
    """CLASSIC in the table's letters; a later load where `p` and `buffer` are given."""
    previous = None if buffer is None else Previous(vector(p or {}), buffer)
    supplier = Supplier(vector(s), vector(m or {}))
    return decide(supplier, Consumer(vector(c)), strategy=Strategy.CLASSIC, previous=previous)


def window(
    *,
    s: dict[int, int],
    c: dict[int, int],
    m: dict[int, int] | None = None,
    purged: dict[int, int] | None = None,
) -> Decision:
    """WINDOW in the table's letters."""
    supplier = Supplier(vector(s), vector(m or {}), vector(purged or {}))
    return decide(supplier, Consumer(vector(c)), strategy=Strategy.WINDOW)
