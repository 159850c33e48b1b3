"""What real 389 servers decided and sent, and a replay of it through the decision core.

The servers differ from the document in two ways that a replay must follow to come to the same sets: a change
that is the direct neighbour of the RUV copy's CSN (same second, next number) is sent though it is beyond it,
and a session whose next anchor would lie before its first one ends (issue 4492).
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spark.formats.csn import Csn
from spark.formats.ruv import parse_ruv
from spark.replication.supplier.decide import Anchor, Consumer, Previous, Strategy, Supplier, decide
from spark.replication.supplier.skip import SkipRules, Verdict
from tests.oracles.changelog_export import DATA, read_export


def _lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


DECISIONS = _lines("anchor-decisions.jsonl.gz")
SESSIONS = _lines("sessions.jsonl.gz")
# s1 had been restored from a backup and written anew before it: its changelog lacks changes of its own.
RESTORED_SESSION = 77
# The first CSN of each replica, as s1 logged it.
FIRST_CSNS = read_export("s1-changelog-full.ldif.gz").maxima.minima


def vector(load: dict[str, Any], name: str) -> dict[int, Csn]:
    """One of a load's vectors: `max`, `prev_max` or `consumer_max`."""
    return {each["rid"]: Csn(each[name]) for each in load["rids"] if each[name] is not None}


def every_csn() -> list[Csn]:
    """Every change that any export or session names, in order: what the servers' changelogs held."""
    known: set[Csn] = set()
    for name in ("s1-changelog-full.ldif.gz", "s1-changelog-trimmed.ldif"):
        known.update(read_export(name).csns)
    for session in SESSIONS:
        known.update(Csn(text) for text in (*session["sent"], *session["skipped_consumer_rid"]))
    return sorted(known)


def decide_recorded(load: dict[str, Any], *, is_later: bool) -> Anchor | None:
    """The anchor that CLASSIC takes where the server took `load["anchor"]`."""
    previous = Previous(vector(load, "prev_max"), Csn(load["rids"][0]["buf"])) if is_later else None
    supplier = Supplier(vector(load, "max"), FIRST_CSNS)
    consumer = Consumer(vector(load, "consumer_max"))
    return decide(supplier, consumer, strategy=Strategy.CLASSIC, previous=previous).anchor


@dataclass(frozen=True)
class Step:
    """One load of a session: what was in reach, and which CSN ended its buffer."""

    snapshot: dict[int, Csn]
    previous: Previous | None
    buffer_end: str


def steps(session: dict[str, Any]) -> Iterator[Step]:
    """The loads that read something, the snapshots raised by the neighbours that the server sent."""
    loads = session["loads"]
    for number, load in enumerate(loads):
        ends = load["anchor"] is None or load.get("located") is False
        if ends or (number and load["anchor"] < loads[0]["anchor"]):
            return
        following = loads[number + 1] if number + 1 < len(loads) else None
        snapshot = vector(load, "max")
        if following is not None:
            _raise_by_neighbours(snapshot, vector(load, "consumer_max"), vector(following, "consumer_max"))
        previous = Previous(vector(load, "prev_max"), Csn(load["rids"][0]["buf"])) if number else None
        yield Step(snapshot, previous, "f" * 20 if following is None else following["rids"][0]["buf"])


def _raise_by_neighbours(snapshot: dict[int, Csn], before: dict[int, Csn], after: dict[int, Csn]) -> None:
    """What the consumer has after a load beyond the copy can only have been sent as a neighbour."""
    for rid, csn in after.items():
        if rid in snapshot and csn > snapshot[rid] and csn != before.get(rid):
            assert csn.timestamp == snapshot[rid].timestamp, (rid, csn)
            assert csn.sequence == snapshot[rid].sequence + 1, (rid, csn)
            snapshot[rid] = csn


def sent_by_classic(session: dict[str, Any], changelog: list[Csn]) -> list[Csn]:
    """What CLASSIC and the skip rules send, in order."""
    seen = vector(session["loads"][0], "consumer_max")
    sent: list[Csn] = []
    for step in steps(session):
        decision = decide(
            Supplier(step.snapshot, FIRST_CSNS),
            Consumer(seen),
            strategy=Strategy.CLASSIC,
            previous=step.previous,
        )
        if decision.anchor is None:
            return sent
        rules = SkipRules(snapshot=step.snapshot, seen=seen)
        buffer = [csn for csn in changelog if is_read(csn, decision.anchor) and csn <= step.buffer_end]
        sent += [csn for csn in buffer if rules.judge(csn) is Verdict.SENT]
        seen = rules.seen
    return sent


def sent_by_window(session: dict[str, Any], changelog: list[Csn]) -> list[Csn]:
    """What WINDOW sends over the same snapshots, in its own order."""
    seen = vector(session["loads"][0], "consumer_max")
    sent: list[Csn] = []
    for step in steps(session):
        windows = decide(Supplier(step.snapshot), Consumer(seen), strategy=Strategy.WINDOW).windows
        for csn in changelog:
            if csn.rid in windows and csn in windows[csn.rid]:
                sent.append(csn)
                seen[csn.rid] = csn
    return sent


def is_read(csn: Csn, anchor: Anchor) -> bool:
    """Whether reading from the anchor comes by this change."""
    return anchor.csn is None or csn > anchor.csn or (anchor.inclusive and csn == anchor.csn)


def consumer_vector(session: dict[str, Any]) -> dict[int, Csn]:
    """The RUV that the consumer presented."""
    return parse_ruv(session["consumer_ruv"]).maxima


def supplier_vector(session: dict[str, Any]) -> dict[int, Csn]:
    """The RUV that the supplier compared it with."""
    return parse_ruv(session["supplier_ruv"]).maxima
