"""READY exactly when slonik's own wait would end: random clusters that move on, and a naive slonik."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from spark.events.preconditions.judge import judge
from spark.events.preconditions.records import (
    Command,
    Enabling,
    Newest,
    Question,
    Runner,
    Running,
    Subscriptions,
    View,
)
from spark.events.records import Node
from tests.spark.events.naive_slonik import NaiveSlonik, Rows

SEEDS = range(60)
SEEDS_LONG = range(60, 1_060)
STEPS = 12
SUBSCRIBING = ("SUBSCRIBE_SET", "ENABLE_SUBSCRIPTION")
TYPES = ("SYNC", "SYNC", "STORE_PATH", "DROP_SET", "STORE_SET", *SUBSCRIBING)


def view_of(node: int, rows: Rows) -> View:
    """What a node with these rows tells."""

    def newest(types: Callable[[str], bool]) -> dict[int, Newest]:
        found: dict[int, Newest] = {}
        for origin, seqno, kind, _, _ in sorted(rows.events):
            if types(kind):
                found[origin] = Newest(seqno, kind)
        return found

    pairs = {(o, r) for o, r, _ in rows.confirms}
    return View(
        node,
        tuple(Node(n, active, failed, None) for n, (active, failed) in sorted(rows.nodes.items())),
        any=newest(lambda _: True),
        config=newest(lambda kind: kind != "SYNC"),
        drop_set=newest(lambda kind: kind == "DROP_SET"),
        confirmed={pair: rows.confirmed(*pair) or 0 for pair in pairs},
        enabling=tuple(
            Enabling(o, s, kind, int(set_id), int(receiver))
            for o, s, kind, set_id, receiver in rows.events
            if kind in SUBSCRIBING
        ),
        running=Running(
            rows.xmin,
            rows.xmax,
            tuple(Runner(1, xid, "app", "ann", "active", 1.0) for xid in sorted(rows.running)),
        ),
        subscriptions=Subscriptions(dict(rows.sets), tuple(rows.subscriptions)),
        paths=frozenset(rows.paths),
    )


@dataclass
class Dice:
    """A cluster that moves on at random."""

    source: random.Random
    nodes: dict[int, Rows]
    made: dict[int, list[tuple[int, int, str, str, str]]]

    @classmethod
    def throw(cls, seed: int) -> Dice:
        source = random.Random(seed)
        ids = list(range(1, source.choice((2, 3, 3, 4)) + 1))
        dice = cls(source, {n: Rows() for n in ids}, {n: [] for n in ids})
        active = {n: source.random() < 0.9 for n in ids}
        for node, rows in dice.nodes.items():
            known = [n for n in ids if n == node or source.random() < 0.95]
            rows.nodes = {n: (active[n], source.random() < 0.05) for n in known}
            rows.sets = {s: source.choice(ids) for s in (1, 2)}
            rows.paths = {(a, b) for a in ids for b in ids if a != b and source.random() < 0.8}
            rows.subscriptions = [
                (s, source.choice(ids), r, source.random() < 0.8) for s in (1, 2) for r in ids
            ]
        for origin in ids:
            for receiver in ids:
                if origin != receiver and source.random() < 0.9:
                    for rows in dice.nodes.values():
                        rows.confirms.append((origin, receiver, 0))
        for _ in range(source.randrange(25)):
            dice.step()
        return dice

    def step(self) -> None:
        """An event is made, or is processed somewhere, or a confirmation travels, or a transaction ends."""
        source, ids = self.source, list(self.nodes)
        what = source.random()
        if what < 0.25:
            origin = source.choice(ids)
            event = (
                origin,
                len(self.made[origin]) + 1,
                source.choice(TYPES),
                str(source.choice((1, 2))),
                str(source.choice(ids)),
            )
            self.made[origin].append(event)
            self.nodes[origin].events.append(event)
        elif what < 0.6:
            self._process(*source.sample(ids, 2))
        elif what < 0.8:
            giver, taker = source.sample(ids, 2)
            self.nodes[taker].confirms += source.sample(
                self.nodes[giver].confirms, min(3, len(self.nodes[giver].confirms))
            )
        elif what < 0.98:
            self._transact(source.choice(ids))
        else:
            rows, node = self.nodes[source.choice(ids)], source.choice(ids)
            rows.nodes[node] = (not rows.nodes.get(node, (True, False))[0], False)

    def _process(self, origin: int, receiver: int) -> None:
        rows = self.nodes[receiver]
        has = sum(event[0] == origin for event in rows.events)
        for event in self.made[origin][has : has + self.source.choice((1, 2, 9))]:
            rows.events.append(event)
            rows.confirms.append((origin, receiver, event[1]))

    def _transact(self, node: int) -> None:
        rows = self.nodes[node]
        if rows.running and self.source.random() < 0.5:
            ended = self.source.choice(sorted(rows.running)[-2:])
            rows.running.discard(ended)
            rows.latest_completed = max(rows.latest_completed, ended)
        else:
            rows.running.add(rows.next_xid)
            rows.next_xid += 1

    def ask(self, command: Command) -> tuple[Question, Callable[[NaiveSlonik], bool], int | None]:
        """A command about nodes at random, how slonik waits before it, and where the one before was."""
        one, two = self.source.sample(list(self.nodes), 2)
        previous = self.source.choice([None, *self.nodes])
        sets = frozenset({1, 2})
        asked: dict[Command, tuple[Question, Callable[[NaiveSlonik], bool]]] = {
            Command.SUBSCRIBE_SET: (
                Question(command, one, event_node=two, previous=previous),
                lambda s: s.subscribe_set(one, two),
            ),
            Command.RESUBSCRIBE_NODE: (
                Question(command, one, event_node=two, previous=previous),
                lambda s: s.subscribe_set(one, two),
            ),
            Command.CLONE_PREPARE: (
                Question(command, one, event_node=one, previous=previous),
                lambda s: s.clone_prepare(one),
            ),
            Command.STORE_NODE: (
                Question(command, one, other=two, event_node=one, previous=previous),
                lambda s: s.store_node(two, one),
            ),
            Command.CREATE_SET: (
                Question(command, one, event_node=one, previous=previous),
                lambda s: s.create_set(one),
            ),
            Command.DROP_NODE: (Question(command, two, other=one), lambda s: s.drop_node(two, one)),
            Command.SUBMIT_TO_OTHER_NODE: (Question(command, one, other=two), lambda s: s.move_set(one)),
            Command.MOVE_SET: (
                Question(command, one, event_node=one, previous=previous),
                lambda s: s.move_set(one),
            ),
            Command.MERGE_SET: (
                Question(command, one, event_node=one, previous=previous, sets=sets),
                lambda s: s.merge_set(one, set(sets)),
            ),
            Command.LOCK_SET: (Question(command, one), lambda s: s.lock_set(one)),
            Command.FAILOVER: (Question(command, two, other=one), lambda s: s.failover(two, one)),
        }
        question, over = asked[command]
        return question, over, two if command is Command.SUBMIT_TO_OTHER_NODE else previous

    def views(self) -> dict[int, View]:
        return {node: view_of(node, rows) for node, rows in self.nodes.items()}


def agree(seed: int, command: Command) -> bool:
    """Wait with both from one moment on, to the end; whether there was anything to wait for."""
    dice = Dice.throw(seed)
    question, over, previous = dice.ask(command)
    slonik = NaiveSlonik(dice.nodes, previous=previous)
    verdict = judge(question, dice.views(), as_program=True)
    fixed = dict(verdict.fixed)
    for step in range(STEPS):
        assert verdict.is_met == over(slonik), (seed, command, step, question, verdict)
        if verdict.is_met:
            return step > 0
        dice.step()
        verdict = judge(question, dice.views(), as_program=True, fixed=fixed)
        assert {key: verdict.fixed[key] for key in verdict.fixed if key in fixed} == {
            key: fixed[key] for key in verdict.fixed if key in fixed
        }
    return True


def check(seeds: range) -> None:
    waited = dict.fromkeys(Command, 0)
    for seed in seeds:
        for command in Command:
            waited[command] += agree(seed, command)
    assert all(waited.values()), waited


def test_program_is_ready_exactly_when_slonik_would_go_on() -> None:
    check(SEEDS)


@pytest.mark.long
def test_program_is_ready_exactly_when_slonik_would_go_on_many_times() -> None:
    check(SEEDS_LONG)
