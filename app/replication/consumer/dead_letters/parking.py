"""Batches that have arrived before their turn: they wait without a thread and without a connection.

Invariants:
- of one session at most `in_flight` batches are here, of one token `per_token_max`, of all sessions
  `batches_max`: one more is sent away before anything of it is read;
- a batch takes its turn when none before it is here: then the target alone says whether it is the next one;
- one whose predecessors do not come, to this process or another one, is told so after its time.
Only the event loop's thread touches it. Source: design.md, Replication ("the consumer parks later ones").
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from app.replication.consumer.errors import TooManyBatches
from spark.replication.session_errors import BatchGap

LOOK_AGAIN_S: Final = 0.5
"""The batch before may have gone to another instance."""

SessionKey = tuple[str, str]
Outcome = TypeVar("Outcome")


@dataclass(slots=True)
class _Session:
    """The batches of one session that are here: (epoch, number)."""

    here: list[tuple[int, int]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def has_before(self, epoch: int, batch_seq: int) -> bool:
        return any(one == epoch and seq < batch_seq for one, seq in self.here)

    def tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ParkingLot:
    """All batches that this process holds.

    Args:
        wait_max_s: how long a batch waits for one that is not here.
    """

    def __init__(self, *, in_flight: int, batches_max: int, per_token_max: int, wait_max_s: float) -> None:
        self._in_flight = in_flight
        self._per_token_max = per_token_max
        self._tokens: Counter[str] = Counter()
        self._batches_max = batches_max
        self._wait_max_s = wait_max_s
        self._sessions: dict[SessionKey, _Session] = {}

    @contextmanager
    def place(self, key: SessionKey, *, token: str, epoch: int, batch_seq: int) -> Iterator["Place"]:
        """A place for one batch, from before it is read until it is answered.

        Args:
            token: whose share of all places it takes.
        Raises: TooManyBatches.
        """
        if sum(len(each.here) for each in self._sessions.values()) >= self._batches_max:
            raise TooManyBatches("too many batches of all sessions are here")
        if self._tokens[token] >= self._per_token_max:
            raise TooManyBatches(f"{self._per_token_max} batches of this token are here")
        session = self._sessions.setdefault(key, _Session())
        if len(session.here) >= self._in_flight:
            raise TooManyBatches(f"{self._in_flight} batches of this session are here")
        batch = (epoch, batch_seq)
        session.here.append(batch)
        self._tokens[token] += 1
        assert len(session.here) <= self._in_flight
        assert self._tokens[token] <= self._per_token_max
        try:
            yield Place(session, epoch, batch_seq, wait_max_s=self._wait_max_s)
        finally:
            session.here.remove(batch)
            self._tokens[token] -= 1
            if not self._tokens[token]:
                del self._tokens[token]
            session.tell()
            if not session.here:
                del self._sessions[key]


class Place:
    """One batch among those of its session."""

    def __init__(self, session: _Session, epoch: int, batch_seq: int, *, wait_max_s: float) -> None:
        self._session = session
        self._epoch = epoch
        self._batch_seq = batch_seq
        self._wait_max_s = wait_max_s

    async def in_turn(self, apply: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Apply the batch when its turn has come.

        Those before it that are here are waited for: each of them ends. A missing one is waited for up to the
        limit, from the arrival of this batch on.

        Raises: BatchGap: it did not come; what `apply` raises.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._wait_max_s
        while True:
            while self._session.has_before(self._epoch, self._batch_seq):
                await self._session.changed.wait()
            changed = self._session.changed
            try:
                return await apply()
            except BatchGap:
                left_s = give_up - loop.time()
                if left_s <= 0:
                    raise
            try:
                await asyncio.wait_for(changed.wait(), min(left_s, LOOK_AGAIN_S))
            except TimeoutError:
                continue
