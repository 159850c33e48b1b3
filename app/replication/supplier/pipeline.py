"""Reader, senders and the acknowledgements that come back: what overlaps, and what bounds it.

    reader thread      reads one batch after the other, and numbers them
    sender threads     encode a batch, send it, wait for its answer; `in_flight` of them
    the caller         takes the answers in the order of their numbers, and looks whether to stop

Invariants:
- at most `in_flight` batches are sent and unanswered; at most READ_AHEAD more are read: memory is bounded by
  them, however slow the consumer is;
- numbers have no holes, and an answer is told only after those of all batches before it;
- `run` returns, or raises, only when its threads have ended: nothing is sent after it;
- the first trouble ends it; answers that come while the threads end are told all the same. Of several
  troubles the caller's own is raised, then that of the lowest number: what fails behind a gap fails by it.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from app.replication.peer.answers import Acknowledged
from app.replication.supplier.batches import Outgoing

READ_AHEAD: Final = 2
LOOK_S: Final = 0.1
PACE_SLICE_S: Final = 0.2
OF_CALLER: Final = -2
OF_READER: Final = -1


@dataclass(frozen=True, slots=True)
class Sent:
    """A batch that was sent; `acknowledged` is its answer."""

    batch_seq: int
    batch: Outgoing
    body_bytes: int
    worked_s: float
    acknowledged: Acknowledged


Send = Callable[[int, Outgoing, Callable[[], bool]], Sent]
"""Sends a batch under its number; the last argument tells whether to give up trying again."""


class Pipeline:
    """One run of batches under successive numbers.

    Args:
        send: any thread.
        pace: seconds that the reader waits before the next batch (the throttle).
    """

    def __init__(self, *, send: Send, in_flight: int, first_seq: int, pace: Callable[[], float]) -> None:
        assert in_flight >= 1, in_flight
        self._send = send
        self._in_flight = in_flight
        self._pace = pace
        self._next_seq = first_seq
        self._slots = threading.Semaphore(in_flight + READ_AHEAD)
        self._read: queue.SimpleQueue[tuple[int, Outgoing] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Sent | _Ended] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self.next_unanswered = first_seq

    def run(
        self, source: Iterator[Outgoing], *, told: Callable[[Sent], None], check: Callable[[], None]
    ) -> None:
        """Send all batches of a source.

        Args:
            source: read by the reader thread alone.
            told: each answer, in order; what it raises ends the run.
            check: asked again and again; what it raises ends the run.
        Raises: what the source, `send`, `told` or `check` have raised, the first of them.
        """
        threads = [threading.Thread(target=self._read_all, args=(source,), name="lethe-reader", daemon=True)]
        threads += [
            threading.Thread(target=self._send_all, name=f"lethe-sender-{number}", daemon=True)
            for number in range(self._in_flight)
        ]
        for thread in threads:
            thread.start()
        trouble = self._collect(len(threads), told, check)
        for thread in threads:
            thread.join()
        if trouble is not None:
            raise trouble

    # -- the caller's side

    def _collect(
        self, threads: int, told: Callable[[Sent], None], check: Callable[[], None]
    ) -> BaseException | None:
        troubles: list[_Ended] = []
        waiting: dict[int, Sent] = {}
        while threads:
            try:
                answer = self._answers.get(timeout=LOOK_S)
            except queue.Empty:
                answer = None
            if isinstance(answer, _Ended):
                threads -= 1
                if answer.trouble is not None:
                    troubles.append(answer)
            elif answer is not None:
                waiting[answer.batch_seq] = answer
            try:
                self._tell(waiting, told)
                if not troubles:
                    check()
            except BaseException as error:  # noqa: BLE001 -- raised again when the threads have ended
                troubles.append(_Ended(error, OF_CALLER))
            if troubles:
                self._stopping.set()
        return min(troubles, key=lambda each: each.rank).trouble if troubles else None

    def _tell(self, waiting: dict[int, Sent], told: Callable[[Sent], None]) -> None:
        while self.next_unanswered in waiting:
            sent = waiting.pop(self.next_unanswered)
            self.next_unanswered += 1
            self._slots.release()
            told(sent)

    # -- the threads

    def _read_all(self, source: Iterator[Outgoing]) -> None:
        trouble: BaseException | None = None
        try:
            while self._may_read():
                batch = next(source, None)
                if batch is None:
                    break
                self._read.put((self._next_seq, batch))
                self._next_seq += 1
        except BaseException as error:  # noqa: BLE001 -- raised again by `run`
            trouble = error
            self._stopping.set()
        finally:
            for _ in range(self._in_flight):
                self._read.put(None)
            self._answers.put(_Ended(trouble, OF_READER))

    def _may_read(self) -> bool:
        """Wait for room and for the throttle; whether to go on at all."""
        while not self._slots.acquire(timeout=LOOK_S):
            if self._stopping.is_set():
                return False
        while not self._stopping.is_set():
            delay_s = self._pace()
            if delay_s <= 0:
                return True
            self._stopping.wait(min(delay_s, PACE_SLICE_S))
        return False

    def _send_all(self) -> None:
        trouble: BaseException | None = None
        seq = 0
        try:
            while (item := self._read.get()) is not None and not self._stopping.is_set():
                seq, batch = item
                self._answers.put(self._send(seq, batch, self._stopping.is_set))
        except BaseException as error:  # noqa: BLE001 -- raised again by `run`
            trouble = error
            self._stopping.set()
        finally:
            self._answers.put(_Ended(trouble, seq))


@dataclass(frozen=True, slots=True)
class _Ended:
    """A thread has ended, well or not; of several troubles that of the least rank counts."""

    trouble: BaseException | None
    rank: int
