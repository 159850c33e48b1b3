"""A model of whole sessions: a changelog that grows while windows or buffers of it are read.

Writers add changes of any replica only above that replica's own last one, but behind the last ones of the
others: the races of the document. The naive variants do what it warns of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

from spark.formats.csn import Csn
from spark.replication.supplier.decide import (
    Anchor,
    Consumer,
    Outcome,
    Previous,
    Strategy,
    Supplier,
    decide,
)
from spark.replication.supplier.skip import SkipRules, Verdict
from tests.oracles.replication_recordings import is_read

RIDS = (1, 2, 3)
ROUNDS_MAX = 2_000


class Variant(Enum):
    """How a session is run; all but the first two are known to be wrong."""

    WINDOW = "windows, read in pages"
    CLASSIC = "anchor, snapshot first, ties inclusive"
    ANCHOR_FIRST = "the snapshot is taken after the anchor (NOTE 1, R1)"
    TIES_EXCLUSIVE = "a tie of two anchors takes the exclusive one (K8)"
    ALWAYS_ANEW = "each load computes the initial anchor again (the QUESTION, K2)"
    NO_PENDING_LIST = "windows over a RUV that passes uncommitted changes (R4, K11)"


class NeverEnds(Exception):
    """A session went on without sending anything."""


@dataclass
class Changelog:
    """The supplier: records in order, its RUV, and what has still to be written."""

    random: Random
    writes_left: int
    records: list[Csn] = field(default_factory=list)
    ruv: dict[int, Csn] = field(default_factory=dict)
    minima: dict[int, Csn] = field(default_factory=dict)
    pending: list[Csn] = field(default_factory=list)
    passes_pending: bool = False

    def write(self, count: int) -> None:
        """Add up to `count` changes."""
        for _ in range(min(count, self.writes_left)):
            self.writes_left -= 1
            rid = self.random.choice(RIDS)
            last = self.ruv.get(rid)
            time = self.random.randint(1, 12) if last is None else last.timestamp + self.random.randint(1, 4)
            self._commit(Csn.of(time, 0, rid))

    def _commit(self, csn: Csn) -> None:
        if self.passes_pending and self.random.random() < 0.2:
            # A slow writer: its change becomes visible after later ones of the same replica.
            self.pending.append(csn)
            self.ruv[csn.rid] = csn
            return
        self._insert(csn)
        self.ruv[csn.rid] = max(csn, self.ruv.get(csn.rid, csn))

    def settle(self) -> None:
        """Let the slow writers come to their end."""
        while self.pending:
            self._insert(self.pending.pop())

    def _insert(self, csn: Csn) -> None:
        self.records = sorted([*self.records, csn])
        self.minima[csn.rid] = min(csn, self.minima.get(csn.rid, csn))

    def read(self, anchor: Anchor, count: int) -> list[Csn]:
        """A buffer of the changelog."""
        return [csn for csn in self.records if is_read(csn, anchor)][:count]


@dataclass
class Session:
    """One consumer's way to the supplier's state; `sent` is in order, `reads` counts records looked at."""

    changelog: Changelog
    variant: Variant
    buffer_rows: int
    seen: dict[int, Csn] = field(default_factory=dict)
    sent: list[Csn] = field(default_factory=list)
    reads: int = 0
    rounds: int = 0

    def run(self) -> None:
        """Until there is nothing to send.

        Raises: NeverEnds: no end in sight though nobody writes.
        """
        windowed = self.variant in (Variant.WINDOW, Variant.NO_PENDING_LIST)
        while self._window() if windowed else self._buffers():
            pass

    def _busy(self) -> None:
        self.changelog.write(self.changelog.random.randint(0, 2))
        self.rounds += 1
        if self.rounds > ROUNDS_MAX:
            raise NeverEnds(self.variant.value)

    def _supplier(self) -> Supplier:
        return Supplier(dict(self.changelog.ruv), dict(self.changelog.minima))

    def _window(self) -> bool:
        """One window in pages by the last CSN read; False: up to date."""
        decision = decide(self._supplier(), Consumer(self.seen), strategy=Strategy.WINDOW)
        if decision.outcome is Outcome.UP_TO_DATE:
            return False
        last = ""
        while True:
            self._busy()
            windows = decision.windows
            inside = [csn for csn in self.changelog.records if csn.rid in windows and csn in windows[csn.rid]]
            page = [csn for csn in inside if csn > last][: self.buffer_rows]
            if not page:
                break
            self.reads += len(page)
            self.sent += page
            last = page[-1]
        for rid, window in decision.windows.items():
            self.seen[rid] = window.upto
        return True

    def _buffers(self) -> bool:
        """One session of loads from anchors; False: its first decision was that nothing is needed."""
        previous: Previous | None = None
        started = False
        while True:
            supplier = self._supplier()
            known = None if self.variant is Variant.ALWAYS_ANEW else previous
            decision = decide(supplier, Consumer(self.seen), strategy=Strategy.CLASSIC, previous=known)
            if decision.anchor is None:
                return started
            anchor, started = self._taken(decision.anchor, previous), True
            self._busy()
            snapshot = dict(self.changelog.ruv if self.variant is Variant.ANCHOR_FIRST else supplier.ruv)
            buffer = self.changelog.read(anchor, self.buffer_rows)
            self._busy()
            if not buffer:
                return started
            self.reads += len(buffer)
            rules = SkipRules(snapshot=snapshot, seen=self.seen)
            self.sent += [csn for csn in buffer if rules.judge(csn) is Verdict.SENT]
            self.seen = rules.seen
            previous = Previous(snapshot, buffer[-1])

    def _taken(self, anchor: Anchor, previous: Previous | None) -> Anchor:
        is_tie = previous is not None and anchor == Anchor(previous.csn_buffer, inclusive=True)
        return Anchor(anchor.csn, inclusive=False) if is_tie and self._prefers_exclusive else anchor

    @property
    def _prefers_exclusive(self) -> bool:
        return self.variant is Variant.TIES_EXCLUSIVE


def run_session(seed: int, variant: Variant, *, writes: int = 25) -> tuple[Session, list[Csn]]:
    """Run sessions until the consumer is level; give the session, and what it has not sent of all changes."""
    random = Random(seed)
    changelog = Changelog(random, writes, passes_pending=variant is Variant.NO_PENDING_LIST)
    changelog.write(random.randint(0, writes))
    session = Session(changelog, variant, buffer_rows=random.randint(1, 5))
    while True:
        session.run()
        changelog.settle()
        if not changelog.writes_left:
            break
        changelog.write(changelog.writes_left)
    session.run()
    return session, sorted(set(changelog.records) - set(session.sent))
