"""Both sides of an audit, asked at the same time: this replica in its target, the consumer over HTTP."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from pydantic import ValidationError

from app.jobs.errors import JobStopped
from app.jobs.running.context import JobContext
from app.replication.audits.digests import Wanted, compute_digests
from app.replication.audits.models import DigestsRead, EntriesDigestRead, RangeDigestRead, SideRead
from app.replication.audits.narrowing import Compared
from app.replication.peer.answers import PeerAnswerInvalid
from app.replication.peer.client import PeerClient
from spark.formats.part import Part
from spark.replication.replica.digest import DigestStopped
from spark.targets.connection import Connection

DigestRead = RangeDigestRead | EntriesDigestRead
UNIT: Final = "rows"


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
        self._asking = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lethe-audit")

    def close(self) -> None:
        """Wait for the consumer's last answer."""
        self._asking.shutdown(wait=True, cancel_futures=True)

    def both(self, wanted: Wanted) -> tuple[DigestsRead, DigestsRead]:
        """What this replica and its consumer answer to the same question.

        Raises: JobStopped; PeerError; ServiceError, TargetError.
        """
        self._context.check()
        asked = self._asking.submit(self._ask, wanted)
        try:
            ours = compute_digests(self.conn, wanted, should_stop=self._is_stopped, part=self.part)
        except DigestStopped as error:
            cause = self._context.stop_cause
            assert cause is not None, "nothing else stops the reading"
            raise JobStopped(cause) from error
        theirs = asked.result()
        counts = [found.count for found in ours.rids.values()]
        self._rows += sum(counts) + (ours.entries.count if ours.entries is not None else 0)
        self._context.progress(unit=UNIT, done=self._rows, total=None)
        return ours, theirs

    def _is_stopped(self) -> bool:
        return self._context.stop_cause is not None

    def _ask(self, wanted: Wanted) -> DigestsRead:
        answer = self._client.digests(wanted.body())
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
