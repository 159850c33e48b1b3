"""Random attacks on one copy, drawn from a seed; and what must be true when all is quiet again."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

from app.jobs.errors import LeaseLost
from spark.formats.csn import Csn
from tests.app.replication.copy_world import Ending, Kept, Lead, Node, World

KEYS: Final = [b"k%02d" % number for number in range(12)]
CHANCE: Final = 0.3
WILD: Final = 6
QUIET: Final = 14
EXPLAINED: Final = {
    "CONSUMER_AHEAD",
    "DIED",
    "DIVERGED",
    "HALTED",
    "HISTORY_UNPROVEN",
    "NEEDS_TOTAL",
    "REPLICA_INITIALIZING",
    "REPLICA_NOT_ONLINE",
    "REPLICA_PUT_BACK",
    "UNPROVEN",
    "UP_TO_DATE",
    "BATCH_GAP",
    "REPLICA_BUSY",
    "SESSION_NOT_FOUND",
    "STALE_EPOCH",
    "PREV_GAP",
    "SESSION_ENDED",
    "TOTAL_INCOMPLETE",
}
"""How an attempt may end; each has a page of the runbook that says what to do."""

SHORT: Final = {"DIED", "HALTED", "REPLICA_INITIALIZING", "UNPROVEN", "UP_TO_DATE"}
"""What says it all."""


class Chaos:
    """One trial.

    Attributes:
        happened: what it went through.
        trail: the same in order, for whoever looks into a failure.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.random = Random(seed)
        self.world = world
        self.happened: Counter[str] = Counter()
        self.trail: list[str] = []
        self.written: dict[Csn, tuple[bytes, bytes | None]] = {}
        self.kept: dict[str, list[Kept]] = {"a": [], "c": []}
        self.left = {"a": 2, "c": 2, "died": 3}
        self.returning = Lead(world.c, world.a, 5)

    def run(self) -> None:
        """All of it.

        Raises: AssertionError, with the trail in its notes.
        """
        try:
            self._begin()
            self._attack()
            self.world.quiet()
            self._settle()
            self.judge()
            self._write(self.world.a)
            self._write(self.world.a)
            self._settle()
            self.judge()
        except BaseException as error:
            error.add_note("\n".join(self.trail[-60:]))
            raise

    def _note(self, what: str, detail: object = "") -> None:
        self.happened[what] += 1
        self.trail.append(f"{what} {detail}")

    # -- before, while and between

    def _begin(self) -> None:
        world, dice = self.world, self.random
        for key in KEYS[:9]:
            self._write(world.a, key, b"first")
        for _ in range(3):
            self._write(world.b)
        world.meet()
        if dice.random() < 0.5:
            self._note("LEVEL BEFORE", self._lead("INCREMENTAL"))
            if dice.random() < 0.4:
                self._write(world.c)
        self.kept["c"].append(world.c.back_up())
        for _ in range(3):
            self._write(world.a, dice.choice(KEYS), None)
        world.meet()
        self.kept["a"].append(world.a.back_up())
        if dice.random() < 0.6:
            self._bury()

    def _attack(self) -> None:
        world = self.world
        world.hook = self._maybe
        world.lead.submit(discard=True)
        for _ in range(WILD):
            ending = world.lead.attempt()
            self._ended(ending)
            if ending.code == "UP_TO_DATE":
                return
            self._between()
            if ending.has_ended:
                world.lead.submit(discard=True)

    def _ended(self, ending: Ending) -> None:
        self._note(f"ENDED {ending.code}", ending.detail)
        assert ending.code in EXPLAINED, ending
        assert ending.detail or ending.code in ("UP_TO_DATE", "HALTED", "DIED", "REPLICA_INITIALIZING"), (
            ending
        )
        self._check_shown()

    def _maybe(self, step: str) -> None:
        self.trail.append(step)
        if self.random.random() > CHANCE:
            return
        acts = (
            self._write_a,
            self._write_b,
            self._bury,
            self._trim,
            self._back_up,
            self._put_back,
            self._die,
        )
        self.random.choices(acts, (4, 2, 3, 1, 2, 3, 1))[0]()
        self._write_c()

    def _write(self, node: Node, key: bytes | None = None, value: bytes | None = b"?") -> None:
        if value == b"?":
            value = None if self.random.random() < 0.4 else b"v%d" % len(self.written)
        key = key or self.random.choice(KEYS)
        csn = node.write(key, value)
        if csn is not None:
            self.written[Csn(csn)] = (key, value)
            self._note(f"WRITE {node.name}", f"{key!r} {value!r} {csn}")

    def _write_a(self) -> None:
        self._write(self.world.a)

    def _write_b(self) -> None:
        self._write(self.world.b)
        if self.world.a.state().replica.status == "ONLINE":
            self.world.bring()

    def _write_c(self) -> None:
        """Nothing is written into half a copy."""
        node = self.world.c
        if node.state().replica.status == "INITIALIZING":
            assert node.write(KEYS[0], b"no") is None

    def _bury(self) -> None:
        self._note("BURIED", f"{self.world.a.bury()} {self.world.a.state().replica.buried}")

    def _trim(self) -> None:
        own = self.world.a.state().vectors.ruv.get(1)
        if own is not None:
            self._note("TRIMMED", self.world.a.trim(own))

    def _back_up(self) -> None:
        name = self.random.choice("ac")
        self.kept[name].append(self._node(name).back_up())
        self._note(f"BACKUP {name}")

    def _put_back(self) -> None:
        name = self.random.choice("aac")
        if self.left[name]:
            self.left[name] -= 1
            self._node(name).put_back(self.random.choice(self.kept[name]))
            self._note(f"PUT BACK {name}", self._node(name).rows("select rid, max_csn from replica_ruv"))

    def _die(self) -> None:
        if self.left["died"]:
            self.left["died"] -= 1
            raise LeaseLost

    def _between(self) -> None:
        """No process of the supplier is there: its metadata may be put back too, and others may come."""
        world, chance = self.world, self.random.random()
        if chance < 0.2 and self.left["a"]:
            self.left["a"] -= 1
            kept = self.random.choice(self.kept["a"])
            world.a.put_back(kept, target=self.random.random() < 0.6, metadata=True)
            self._note("MACHINE PUT BACK")
            world.lead.submit(discard=True)
        elif chance < 0.4:
            world.lead.expire()
            self._rival()
        self._heal(world.a)
        world.lead.expire()

    def _rival(self) -> None:
        """Another supplier begins a copy, and ends it or not."""
        steps = self.random.randrange(3, 14)
        seen = len(self.world.steps)

        def hook(_step: str) -> None:
            if len(self.world.steps) - seen > steps:
                raise LeaseLost

        self.world.hook = hook
        self.world.rival.submit(discard=True)
        self._note("RIVAL", self.world.rival.attempt())
        self.world.hook = self._maybe

    def _heal(self, node: Node) -> None:
        """What an operator does with one that was put back: others bring what it lacks, or it is lost."""
        if node.state().replica.status == "RESTORED":
            self.world.meet()
        if node.state().replica.status == "RESTORED":
            node.recover()
            self._note(f"RECOVERED {node.name}")

    def _node(self, name: str) -> Node:
        return self.world.a if name == "a" else self.world.c

    # -- the end

    def _lead(self, mode: str) -> Ending:
        return self.world.lead.run(mode, discard=mode == "TOTAL")

    def _settle(self) -> None:
        """Sessions until the consumer is level, as the runbook has it.

        Raises: AssertionError: it never ends.
        """
        world = self.world
        for _ in range(QUIET):
            world.lead.expire()
            status = world.c.state().replica.status
            if status == "ONLINE":
                self._return()
            self._heal(world.a)
            self._heal(world.c)
            world.meet()
            ending = self._lead("TOTAL" if status == "INITIALIZING" else "INCREMENTAL")
            self._ended(ending)
            if ending.code in ("NEEDS_TOTAL", "DIVERGED", "HALTED", "UNPROVEN", "HISTORY_UNPROVEN"):
                ending = self._lead("TOTAL")
                self._ended(ending)
            states = (world.a.state(), world.c.state())
            is_level = states[0].vectors.ruv == states[1].vectors.ruv
            if (
                ending.code == "UP_TO_DATE"
                and is_level
                and {each.replica.status for each in states} == {"ONLINE"}
            ):
                return
        raise AssertionError(f"it never ends: {ending}")

    def _return(self) -> None:
        """The consumer brings back what its supplier has lost; what it got as a copy only by a copy."""
        ending = self.returning.run("INCREMENTAL")
        self.trail.append(f"RETURNING {ending}")
        if ending.code == "NEEDS_TOTAL":
            self.trail.append(f"RETURNING {self.returning.run('TOTAL', discard=True)}")

    def _is_level(self) -> bool:
        supplier, consumer = self.world.a.state(), self.world.c.state()
        is_online = {supplier.replica.status, consumer.replica.status} == {"ONLINE"}
        return is_online and supplier.vectors.ruv == consumer.vectors.ruv

    def _check_shown(self) -> None:
        """A consumer that may be read has no entry that its RUV does not cover."""
        found = self.world.c.state()
        if found.replica.status == "INITIALIZING":
            return
        for key, (csn, value) in self.world.c.entries().items():
            assert csn <= found.vectors.ruv.get(Csn(csn).rid, ""), (key, csn, value, found.vectors.ruv)

    def judge(self) -> None:
        """The consumer shows what its supplier shows, and would refuse what its supplier would."""
        supplier, consumer = self.world.a, self.world.c
        self._check_shown()
        there, here = supplier.entries(), consumer.entries()
        assert _live(here) == _live(there)
        assert consumer.state().vectors.ruv == supplier.state().vectors.ruv
        bound = consumer.state().replica.buried or ""
        for key, (csn, value) in there.items():
            if value is None:
                assert here.get(key, ("", None))[0] >= csn or bound >= csn, f"{key!r} {csn} may come back"
        for key, csn in self._deleted().items():
            assert here.get(key, ("", None))[0] >= csn or bound >= csn, f"{key!r} {csn} may come back"

    def _deleted(self) -> dict[bytes, Csn]:
        """The keys whose newest change that the supplier has is a delete."""
        found = self.world.a.state()
        logged = {csn for (csn,) in self.world.a.rows("select csn from replica_changelog")}
        newest: dict[bytes, Csn] = {}
        for csn, (key, _) in self.written.items():
            if csn in logged:
                newest[key] = max(csn, newest.get(key, csn))
        assert found.replica.status == "ONLINE"
        return {key: csn for key, csn in newest.items() if self.written[csn][1] is None}


def _live(entries: dict[bytes, tuple[str, bytes | None]]) -> dict[bytes, tuple[str, bytes | None]]:
    return {key: found for key, found in entries.items() if found[1] is not None}
