"""Both sides of an audit, asked at the same time: this replica in its target, the consumer over HTTP.

Rules:
- a single question is answered over the job's own connection; many of them by whoever reads for this side:
  that connection too, or workers of an engine;
- what is asked of many is given in the order of the questions, whoever was first with an answer;
- at most AHEAD questions are without an answer of either side;
- the consumer answers as many at a time as read here, two at most: the client has no more connections.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from app.jobs.errors import JobStopped
from app.jobs.running.context import JobContext
from app.replication.audits.digests import body_of, compute_digests, shown_digests
from app.replication.audits.models import DigestsRead, EntriesDigestRead, RangeDigestRead, SideRead
from app.replication.audits.narrowing import Compared
from app.replication.peer.answers import PeerAnswerInvalid
from app.replication.peer.client import PeerClient
from app.sweeps.loop import OwnConnection
from spark.formats.part import Part
from spark.replication.replica.digest import DigestStopped
from spark.replication.replica.digest_piece import Answered, DigestUnit, Wanted, run_unit
from spark.targets.connection import Connection
from spark.targets.errors import TargetCancelled
from spark.targets.work import Outcome

DigestRead = RangeDigestRead | EntriesDigestRead
MapUnits = Callable[[Iterator[DigestUnit]], Iterator[Outcome[DigestUnit, Answered]]]
UNIT: Final = "rows"
AHEAD: Final = 16
ASKED_AT_ONCE: Final = 2


class Sides:
    """This replica and its consumer.

    Attributes:
        part: which keys the consumer holds; None: all.
    """

    def __init__(
        self, context: JobContext, conn: Connection, client: PeerClient, *, part: Part | None
    ) -> None:
        self.conn = conn
        self.part = part
        self._context = context
        self._client = client
        self._rows = 0
        own: OwnConnection[DigestUnit, Answered] = OwnConnection(
            conn, self._answered, clock=context.clock.boottime_s
        )
        self._map: MapUnits = own.map
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lethe-audit")

    def close(self) -> None:
        """Wait for the consumer's last answers."""
        self._asking.shutdown(wait=True, cancel_futures=True)

    def read_by(self, map_units: MapUnits, *, workers: int) -> None:
        """Let others read for this side, before the first question of many.

        Args:
            map_units: an engine lease's `map` of `digest_work`.
        """
        self.close()
        self._map = map_units
        at_once = min(workers, ASKED_AT_ONCE)
        self._asking = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="lethe-audit")

    def both(self, wanted: Wanted) -> tuple[DigestsRead, DigestsRead]:
        """What this replica and its consumer answer to the same question.

        Raises: JobStopped; PeerError; ServiceError, TargetError.
        """
        self._context.check()
        asked = self._asking.submit(self._ask, wanted)
        with self._stopping():
            ours = compute_digests(self.conn, wanted, should_stop=self._is_stopped, part=self.part)
        theirs = asked.result()
        self._counted(ours)
        return ours, theirs

    def each(self, questions: Iterator[Wanted]) -> Iterator[tuple[Wanted, DigestsRead, DigestsRead]]:
        """Both sides' answers to many questions; drawn as there is room for them, in this thread.

        Read it to its end: who has seen enough lets the questions end.
        Raises: JobStopped; PeerError; ServiceError, TargetError; what the engine raises.
        """
        asked: deque[tuple[DigestUnit, Future[DigestsRead]]] = deque()
        answered: dict[int, Answered] = {}
        is_drawn, number = False, 0

        def draw() -> Iterator[DigestUnit]:
            nonlocal is_drawn, number
            while not is_drawn and len(asked) < AHEAD:
                wanted = next(questions, None)
                if wanted is None:
                    is_drawn = True
                    return
                unit, number = DigestUnit(number, wanted), number + 1
                asked.append((unit, self._asking.submit(self._ask, wanted)))
                yield unit

        while asked or not is_drawn:
            with self._stopping():
                for outcome in self._map(draw()):
                    self._context.check()
                    if outcome.error is not None:
                        raise outcome.error
                    assert outcome.result is not None, "a piece without an error has an answer"
                    answered[outcome.unit.number] = outcome.result
                    while asked and asked[0][0].number in answered and asked[0][1].done():
                        yield self._pair(*asked.popleft(), answered)
            if asked:
                if asked[0][0].number not in answered:
                    raise TargetCancelled("the engine takes no more pieces: the job stops")
                yield self._pair(*asked.popleft(), answered)

    def _pair(
        self, unit: DigestUnit, theirs: Future[DigestsRead], answered: dict[int, Answered]
    ) -> tuple[Wanted, DigestsRead, DigestsRead]:
        ours = shown_digests(unit.wanted, answered.pop(unit.number))
        found = theirs.result()
        self._counted(ours)
        return unit.wanted, ours, found

    def _answered(self, conn: Connection, unit: DigestUnit) -> Answered:
        return run_unit(conn, unit, part=self.part, should_stop=self._is_stopped)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        try:
            yield
        except DigestStopped as error:
            cause = self._context.stop_cause
            assert cause is not None, "nothing else stops the reading"
            raise JobStopped(cause) from error

    def _counted(self, ours: DigestsRead) -> None:
        counts = [found.count for found in ours.rids.values()]
        self._rows += sum(counts) + (ours.entries.count if ours.entries is not None else 0)
        self._context.progress(unit=UNIT, done=self._rows, total=None)

    def _is_stopped(self) -> bool:
        return self._context.stop_cause is not None

    def _ask(self, wanted: Wanted) -> DigestsRead:
        answer = self._client.digests(body_of(wanted))
        try:
            found = DigestsRead.model_validate(answer)
        except ValidationError as error:
            raise PeerAnswerInvalid(f"the answer to digests: {error.error_count()} fault(s)") from error
        if set(found.rids) != {str(rid) for rid in wanted.ranges}:
            raise PeerAnswerInvalid("the answer to digests is about other replicas than were asked for")
        if (found.entries is None) is not (wanted.entries is None):
            raise PeerAnswerInvalid("the answer to digests lacks the entries, or has them unasked")
        return found


@contextmanager
def sides_of(
    context: JobContext, conn: Connection, client: PeerClient, *, part: Part | None
) -> Iterator[Sides]:
    """Both sides for the time of a block; of a consumer that holds a part, this side's part too."""
    sides = Sides(context, conn, client, part=part)
    try:
        yield sides
    finally:
        sides.close()


def compared(ours: DigestRead, theirs: DigestRead) -> Compared:
    """Two answers side by side."""
    return Compared(
        supplier=SideRead(count=ours.count, checksum=ours.checksum),
        consumer=SideRead(count=theirs.count, checksum=theirs.checksum),
    )


def together(sides: Iterable[SideRead]) -> SideRead:
    """One side of all pieces: a single one as it is, more by the checksum of their checksums."""
    pieces = list(sides)
    if len(pieces) == 1:
        return pieces[0]
    whole = hashlib.blake2b(b"".join(bytes.fromhex(piece.checksum) for piece in pieces), digest_size=32)
    return SideRead(count=sum(piece.count for piece in pieces), checksum=whole.hexdigest())
