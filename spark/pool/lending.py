"""Who has which slot, and how much was run.

Invariants:
- a slot is free or lent to one lease, never both;
- free slots go to the first who waits.

The caller of every method holds the pool's lock.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from spark.pool.lease import Lease, Lender
from spark.pool.slot import Slot
from spark.pool.snapshot import SlotView, WaitingView
from spark.pool.started import StartedSession
from spark.pool.waiting import WaitingLine


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    since: float


class Lending:
    """The slots of a pool."""

    def __init__(self, *, slots: int, queue_max: int, monotonic: Callable[[], float]) -> None:
        self.line: Final = WaitingLine(length_max=queue_max, slots=slots)
        self.jobs_run = 0
        self.jobs_on_context = 0
        self._monotonic = monotonic
        self._idle_since = monotonic()
        self._slots = [Slot(number) for number in range(slots)]
        self._free = list(self._slots)
        self._held: dict[Slot, _Held] = {}

    @property
    def has_place(self) -> bool:
        """Whether one more would be served at once."""
        return len(self.line) < len(self._free)

    @property
    def in_hand(self) -> list[Lease]:
        """The leases that are out."""
        return [held.lease for held in self._held.values()]

    @property
    def idle_s(self) -> float:
        """How long nothing has run, from the end of the last function or lease."""
        return 0.0 if self._held else self._monotonic() - self._idle_since

    def renew(self) -> None:
        """Make new slots in place of those that have ended."""
        self._slots = [Slot(slot.number) for slot in self._slots]
        self._free, self._held = list(self._slots), {}

    def begin_context(self) -> None:
        """Count from zero what runs on one context."""
        self.jobs_on_context = 0
        self._idle_since = self._monotonic()

    def grant(self, started: StartedSession, *, lender: Lender, calls: Executor) -> None:
        """Lend free slots to those who wait."""
        while self._free:
            waiter = self.line.next()
            if waiter is None:
                return
            slot = self._free.pop(0)
            assert slot not in self._held, "a slot is free or lent, never both"
            lease = Lease(waiter.terms, slot, started, lender=lender, calls=calls)
            self._held[slot] = _Held(lease, self._monotonic())
            waiter.grant(lease)

    def take_back(self, lease: Lease) -> None:
        """Free the slot of a lease; one of an earlier life of the pool has none here."""
        held = self._held.pop(lease.slot, None)
        if held is None:
            return
        now = self._monotonic()
        self._idle_since = now
        self.line.note_held(now - held.since)
        self._free.append(lease.slot)
        assert len(self._free) + len(self._held) == len(self._slots)

    def note_run(self, lease: Lease) -> None:
        """Count a function that has ended."""
        lease.slot.jobs_run += 1
        self.jobs_run += 1
        self.jobs_on_context += 1
        self._idle_since = self._monotonic()

    def mark_lost(self, why: str) -> None:
        """Tell the leases that are out that their JVM is gone."""
        for held in self._held.values():
            held.lease.mark_lost(why)

    def end(self) -> None:
        """Let the threads end."""
        for slot in self._slots:
            slot.end()

    def slot_views(self) -> tuple[SlotView, ...]:
        """The slots in the order of their numbers."""
        return tuple(self._view(slot) for slot in self._slots)

    def waiting_views(self) -> tuple[WaitingView, ...]:
        """Who waits, first come first."""
        now = self._monotonic()
        return tuple(
            WaitingView(waiter.terms.job_id, waiter.terms.job_class, now - waiter.since)
            for waiter in self.line
        )

    def _view(self, slot: Slot) -> SlotView:
        held = self._held.get(slot)
        if held is None:
            return SlotView(slot.number, "IDLE", None, None, None, slot.jobs_run)
        lease = held.lease
        held_s = self._monotonic() - held.since
        return SlotView(slot.number, "LEASED", lease.job_id, lease.job_class, held_s, slot.jobs_run)
