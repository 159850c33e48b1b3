"""The program's own lock while Lethe purges a 2.x target: its row of sym_lock, held, renewed and given back.

Rules:
- the row is asked for after Lethe's own claim and before the first write to the purged tables;
- a job has one server id at all its attempts: what a crash left is simply taken again;
- a row that somebody younger than the timeout holds is waited for, never broken;
- a row that was lost (this process slept too long) ends the attempt at once;
- 3.x keeps its locks in memory: there no row is taken.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from app.jobs.errors import JobWaiting, StopCause
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.purge.kinds.kind import Kind, Purge
from spark.formats.symmetricds import LOCK_ACTIONS
from spark.purge.cutoff import CutoffValue, convert, instant_of
from spark.purge.reading.inspect import OWN_LOCK_PREFIX
from spark.purge.reading.sym_lock import Holder, LockUnusable, release_lock, take_lock
from spark.targets.connection import Connection, target_now
from spark.targets.errors import TargetError

TIMEOUT_PARAMETER = "cluster.lock.timeout.ms"
TIMEOUT_DEFAULT_MS = 1_800_000
TIMEOUT_MAX_DIGITS = 12
RENEWALS = 6
"""In the time of the timeout."""
RENEW_MAX_S = 60.0
LOOK_AGAIN = timedelta(seconds=15)
WAITS_FOR = "SYM_LOCK"
REF_MAX_CHARS = 200


def server_id(job_id: str) -> str:
    """How a job signs the row."""
    return f"{OWN_LOCK_PREFIX}{job_id}"


def give_back(context: JobContext, conn: Connection, kind: Kind) -> None:
    """Release what the job holds, whichever attempt took it."""
    release_lock(conn, LOCK_ACTIONS[kind.name], server_id(context.job.id))


@contextmanager
def holding(purge: Purge, kind: Kind) -> Iterator["ProgramLock"]:
    """Hold the program's lock for the time of a `with` block, where the target's program has one.

    A row that cannot be given back now is given back by the proof of silence or taken by the next attempt.

    Raises: JobWaiting: somebody else has it.
    """
    lock = ProgramLock(purge, kind)
    lock.take()
    try:
        yield lock
    finally:
        # After a lost lease another attempt of this job may hold it, under the same name.
        if purge.context.stop_cause is not StopCause.LEASE_LOST:
            with suppress(TargetError):
                give_back(purge.context, purge.conn, kind)


class ProgramLock:
    """The row of one attempt.

    Attributes:
        warnings: why no row is held where one should be.
    """

    def __init__(self, purge: Purge, kind: Kind) -> None:
        self._purge = purge
        self._action = LOCK_ACTIONS[kind.name]
        self._timeout = timedelta(milliseconds=_timeout_ms(purge.inspection.sym_parameter))
        self._is_used = purge.inspection.layout.version == "2.x"
        self._renewed_s = 0.0
        self.warnings: list[str] = []

    def take(self) -> None:
        """Hold the row from now on.

        Raises: JobWaiting: somebody else has it.
        """
        if not self._is_used:
            return
        try:
            self._take()
        except LockUnusable as unusable:
            self._is_used = False
            self.warnings.append(f"{unusable}; nothing keeps SymmetricDS's own purge out meanwhile")

    def keep(self) -> None:
        """Renew the row when it is time.

        Raises: JobWaiting: it was broken meanwhile.
        """
        due_s = min(RENEW_MAX_S, self._timeout.total_seconds() / RENEWALS)
        if not self._is_used or self._purge.context.clock.boottime_s() - self._renewed_s < due_s:
            return
        try:
            self._take()
        except TargetError as error:
            if not error.transient:
                raise
            # It is ours for as long as the timeout; the units meet the same trouble and report it.

    def _take(self) -> None:
        at_s = self._purge.context.clock.boottime_s()
        now = target_now(self._purge.conn)
        holder = take_lock(
            self._purge.conn,
            self._action,
            server_id(self._purge.context.job.id),
            now=lambda seen: self._as_kept(now, like=seen),
            is_dead=lambda seen: self._is_dead(seen, now),
        )
        if holder is not None:
            raise self._waiting(holder, now)
        self._renewed_s = at_s

    def _is_dead(self, seen: Any, now: datetime) -> bool:
        since = self._instant(seen)
        return since is not None and since < now - self._timeout

    def _instant(self, value: Any) -> datetime | None:
        if value is None:
            return None
        encoding = self._purge.inspection.time_encoding
        return instant_of(value, time_zone=self._purge.store.time_zone, encoding=encoding)

    def _as_kept(self, now: datetime, *, like: Any) -> CutoffValue:
        """What the program's own clock would write: the plain local time, also where it is shown twice."""
        encoding = "epoch_ms" if isinstance(like, int) else self._purge.inspection.time_encoding
        if encoding in ("epoch_ms", "timestamptz"):
            return convert(now, time_zone=self._purge.store.time_zone, encoding=encoding)
        local = now.astimezone(ZoneInfo(self._purge.store.time_zone)).replace(tzinfo=None)
        return local.isoformat(sep=" ", timespec="milliseconds") if encoding == "text" else local

    def _waiting(self, holder: Holder, now: datetime) -> JobWaiting:
        since = self._instant(holder.since)
        shown = "an unknown time" if since is None else instant_text(since)
        ref = f"{self._action} is held by {holder.server_id or 'nobody'} since {shown}"
        until = None if since is None or since > now else since + self._timeout
        waiting_on = [WaitingOn(kind=WAITS_FOR, ref=ref[:REF_MAX_CHARS], until=until)]
        return JobWaiting(waiting_on, not_before=self._purge.context.clock.now() + LOOK_AGAIN, detail=ref)


def _timeout_ms(parameters: Mapping[str, str | None]) -> int:
    own = str(parameters.get(TIMEOUT_PARAMETER) or "").strip()
    sane = own.isascii() and own.isdigit() and len(own) <= TIMEOUT_MAX_DIGITS
    return int(own) if sane and int(own) > 0 else TIMEOUT_DEFAULT_MS
