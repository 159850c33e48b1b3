"""Naive forms of the rule about tombstones, one at a time: with each of them a test must fail."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from typing import Any

from spark.formats.csn import Csn
from spark.replication.agreements import Floors
from spark.replication.consumer import apply
from spark.replication.tombstones import ceiling, units
from tests.spark.replication.broken_rule import broken_rule, does_nothing

Patch = Callable[[], AbstractContextManager[Any]]


class NaiveRule(StrEnum):
    CONSUMERS_IGNORED = "what consumers have acknowledged is not looked at"
    NO_BOUND = "no bound is kept"
    BOUND_NOT_MINDED = "a change from below the bound is applied"
    ONE_RID_IGNORED = "one replica id is not waited for"
    COVERED_BY_ITS_OWN = "only the replica id of the delete is looked at"


_REAL = ceiling.ceiling
_SORT = apply.sort_out


def _without_a_rid(conn: Any, *, now_s: int, gone: Any = ()) -> Any:
    return _REAL(conn, now_s=now_s, gone={*gone, 2})


def _endless(conn: Any, *, now_s: int, gone: Any = ()) -> Any:
    found = _REAL(conn, now_s=now_s, gone=gone)
    return replace(found, upto=None if found.upto is None else Csn("f" * 20))


def _unminded(*args: Any, **named: Any) -> Any:
    return _SORT(*args, **named | {"buried": None})


PATCHES: dict[NaiveRule, Patch] = {
    NaiveRule.CONSUMERS_IGNORED: lambda: broken_rule(ceiling, "floors", lambda *_a, **_k: Floors()),
    NaiveRule.NO_BOUND: lambda: broken_rule(units, "raise_bound", does_nothing),
    NaiveRule.BOUND_NOT_MINDED: lambda: broken_rule(apply, "sort_out", _unminded),
    NaiveRule.ONE_RID_IGNORED: lambda: broken_rule(units, "ceiling", _without_a_rid),
    NaiveRule.COVERED_BY_ITS_OWN: lambda: broken_rule(units, "ceiling", _endless),
}
