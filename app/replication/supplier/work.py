"""One lease of a session: what is decided, sent and acknowledged in it.

Invariants:
- what has to be sent is decided by the consumer's own RUV, at every acquire and after every window; nothing
  that is remembered here can make a change be left out;
- a window is decided by one snapshot, taken before anything of it is read;
- of a replica id of which the consumer has refused a record nothing more is sent in this session.

Source: facts/replication-decision-table, section 6; replication-session-changelog.
"""

import math
from contextlib import ExitStack
from typing import Any, Final

from app.jobs.errors import JobStopped
from app.replication.peer.answers import PeerAnswerInvalid, PeerError, PeerRefused, PeerUnanswered
from app.replication.replica.replicas import writer_turn
from app.replication.rows import SessionOutcome
from app.replication.supplier.copying import (
    BoundNotKept,
    CopyOutdated,
    copy_entries,
    require_followable,
)
from app.replication.supplier.extinctions import (
    copy_extinctions,
    note_consumer,
    require_copy_supported,
    require_supported,
)
from app.replication.supplier.ground import Ground
from app.replication.supplier.history import compare_histories
from app.replication.supplier.lease import (
    Lease,
    acquire,
    compare_own,
    confirm_release,
    consumer_side,
    give_back,
    release_complete,
)
from app.replication.supplier.pipeline import Pipeline, Sent
from app.replication.supplier.resuming import Standing
from app.replication.supplier.slices import SlicedSource, choose_engine, remove_spool
from app.replication.supplier.windows import (
    ClassicSource,
    Source,
    WindowSource,
    batch_bounds,
    reading_connection,
)
from spark.replication.dead_letters import Refused
from spark.replication.records import SessionMode, Snapshot
from spark.replication.replica.replica import snapshot
from spark.replication.sessions.supplying import end_supplying, note_supplying
from spark.replication.supplier.backlog import count_missing
from spark.replication.supplier.changelog_pages import ChangelogDamaged, ChangelogIncomplete
from spark.replication.supplier.decide import Decision, Outcome, Reason, Strategy, Supplier, Window, decide
from spark.targets.connection import Connection
from spark.targets.errors import TargetStatementTimeout

WINDOWS_MAX: Final = 10_000
ROWS_UNCOUNTED: Final = 2**62
UNPROVED: Final = frozenset({"CHANGES_UNPROVEN", "DIVERGED"})
"""What a consumer says of changes that their supplier has lost before it could prove them."""


class Again(Exception):
    """Acquire and decide anew, at once."""


class Halted(Exception):
    """The consumer has refused a record: its replica id waits for it."""


class Yielded(Exception):
    """A limit of the session is reached."""


class NeedsTotal(Exception):
    """Changes cannot bring the consumer level."""

    def __init__(self, decision: Decision, detail: str) -> None:
        super().__init__(detail)
        self.decision = decision
        self.detail = detail


def foreign(error: PeerError) -> NeedsTotal:
    """A consumer of another generation does not even give its lease."""
    return NeedsTotal(Decision(Outcome.NEEDS_TOTAL, reason=Reason.GENERATION_MISMATCH), error.detail)


class Supply:
    """A session at work; used by its job's thread alone.

    Attributes:
        halted: replica ids of which the consumer has refused a record.
        unproven: replica ids of which the two histories cannot be compared.
    """

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.context = ground.context
        self.record = ground.record
        self.halted: set[int] = set()
        self.unproven: frozenset[int] = frozenset()
        self._lease: Lease | None = None
        self._standing: Standing | None = None
        self._window_rows: int | None = None
        self._expected_rows: int | None = None
        self._began_s = ground.context.clock.boottime_s()
        ground.client.within_s = self._left_s

    @property
    def is_total(self) -> bool:
        """Whether the consumer becomes a copy, and is not one yet."""
        total = self.record.total
        return self.ground.params.mode == SessionMode.TOTAL and not (total and total["is_complete"])

    def once(self) -> SessionOutcome:
        """Acquire, bring the consumer level, release.

        Raises: Again, NeedsTotal, PeerError, JobSignal.
        """
        confirm_release(self.ground)
        if self.is_total:
            require_copy_supported(self.ground)
        lease = self._lease = self._acquire()
        note_consumer(self.ground, lease)
        try:
            with lease.epoch:
                if self.is_total:
                    if not lease.acquired.is_copied:
                        copy_extinctions(self.ground, lease, check=self._check)
                    copy_entries(self.ground, lease, check=self._check, shown=self._shown)
                outcome = self._windows(lease)
                self._flush()
                self.ground.resolve_letters(self.record.ruv)
                self._release(lease, outcome)
        except (Halted, CopyOutdated, BoundNotKept) as ended:
            self._flush()
            raise Again from ended
        return outcome

    def _acquire(self) -> Lease:
        """Ask for the lease; of a TOTAL nobody may empty this replica while that is on its way."""
        conn, session_id = self.ground.conn, self.record.row.id
        if not self.is_total:
            return acquire(self.ground, self.ground.look(conn))
        with writer_turn(conn):
            note_supplying(conn, session_id)
        is_over = True
        try:
            seen = self.ground.look(conn)
            self._standing = Standing(seen)
            return acquire(self.ground, seen)
        except (JobStopped, PeerUnanswered, PeerAnswerInvalid):
            is_over = False  # it may arrive yet: the note ends by itself
            raise
        finally:
            if is_over:
                with writer_turn(conn):
                    end_supplying(conn, session_id)

    def _release(self, lease: Lease, outcome: SessionOutcome) -> None:
        """Give the lease back; a consumer that does not answer any more lets it run out."""
        if self.is_total and outcome is not SessionOutcome.HALTED:
            release_complete(self.ground, lease)
            self._lease = None
        else:
            self.give_back()

    def rest(self) -> None:
        """Write down what was told, and give back what is held: the job waits, rests or ends."""
        remove_spool(self.context)
        if not self.record.is_ended:
            self.record.save()
        self.give_back()

    def give_back(self) -> None:
        """Release what is held, without a word about why."""
        lease, self._lease = self._lease, None
        if lease is not None:
            give_back(self.ground, lease.epoch)

    # -- windows

    def _windows(self, lease: Lease) -> SessionOutcome:
        """Decide and send until nothing is missing, or a limit is reached.

        Raises: NeedsTotal, Halted, PeerError, JobSignal.
        """
        for number in range(WINDOWS_MAX):
            seen = self._look(self.ground.conn)
            if number == 0:
                self.unproven = compare_histories(self.ground, lease, seen)
                compare_own(self.ground, lease, seen)
            if self.is_total:
                require_followable(self.ground, seen)
            decision = self._decide(lease, seen)
            self.record.decided(decision, seen)
            if decision.outcome is Outcome.UP_TO_DATE:
                return self._level()
            if decision.outcome is Outcome.NEEDS_TOTAL:
                raise NeedsTotal(decision, _why_total(decision))
            windows = {rid: each for rid, each in decision.windows.items() if rid not in self.halted}
            if not windows:
                return SessionOutcome.HALTED
            # A copy is worth nothing before a window that was taken after it: no limit cuts that one short.
            is_bounded = not self.is_total or number > 0
            try:
                if is_bounded:
                    self._check_limits()
                self._send_window(lease, windows, is_bounded=is_bounded)
            except Yielded:
                return SessionOutcome.YIELDED
            except PeerRefused as refused:
                if self.is_total and self._standing is not None and refused.code in UNPROVED:
                    self._standing.require(snapshot(self.ground.conn))
                raise
            self.record.row.windows_done += 1
        return SessionOutcome.YIELDED

    def _level(self) -> SessionOutcome:
        if self.halted:
            return SessionOutcome.HALTED
        # A copy has taken over the supplier's history as it is.
        return SessionOutcome.UNPROVEN if self.unproven and not self.is_total else SessionOutcome.UP_TO_DATE

    def _look(self, conn: Connection) -> Snapshot:
        """A snapshot of which nothing may be passed over; any thread."""
        seen = self.ground.look(conn)
        assert self._lease is not None, "something is sent in it"
        require_supported(self.ground, self._lease, conn)
        if self.is_total:
            assert self._standing is not None, "a copy begins with an acquire"
            self._standing.look(seen, ruv=self.record.ruv, copied=self._lease.acquired.copied)
        return seen

    def _shown(self, seen: Snapshot) -> None:
        """A page of a copy is about to leave; any thread.

        Raises: JobFailed: this replica is not what was copied before any more.
        """
        assert self._standing is not None, "a copy begins with an acquire"
        self._standing.show(seen)
        self.ground.note_shown(seen)

    def _decide(self, lease: Lease, seen: Snapshot) -> Decision:
        vectors = seen.vectors
        return decide(
            Supplier(vectors.ruv, vectors.min, vectors.purged, seen.replica.generation),
            consumer_side(self.ground, lease),
            strategy=Strategy(self.ground.params.strategy),
        )

    def _send_window(self, lease: Lease, windows: dict[int, Window], *, is_bounded: bool) -> None:
        left = self._changes_left() if is_bounded else None
        acknowledged = self.record.acknowledged
        self._expect(windows)
        with ExitStack() as stack:
            source = self._source(stack, lease, windows)
            pipeline = Pipeline(
                send=lease.epoch.send,
                in_flight=min(self.ground.params.in_flight, lease.acquired.limits.in_flight),
                first_seq=lease.next_seq,
                pace=self.context.throttle.delay_s,
            )
            try:
                pipeline.run(source.batches(left), told=self._told, check=self._check)
            except (ChangelogIncomplete, ChangelogDamaged) as error:
                lacking = (error.rid,) if isinstance(error, ChangelogIncomplete) else ()
                raise NeedsTotal(Decision(Outcome.NEEDS_TOTAL, lacking, lacking), error.detail) from error
            finally:
                lease.next_seq = pipeline.next_unanswered
                source.count_into(self.record)
        self._flush()
        if left is not None and self._changes_left() == 0:
            raise Yielded
        if self.record.acknowledged == acknowledged:
            rids = tuple(sorted(windows))
            detail = f"the consumer acknowledges nothing of {', '.join(map(str, rids))}"
            raise NeedsTotal(Decision(Outcome.NEEDS_TOTAL, rids, rids), detail)

    def _source(self, stack: ExitStack, lease: Lease, windows: dict[int, Window]) -> Source:
        conn = stack.enter_context(reading_connection(self.ground))
        rows_max, bytes_max = batch_bounds(self.ground, lease)
        if Strategy(self.ground.params.strategy) is Strategy.WINDOW:
            engine = choose_engine(self.ground, rows=self._window_rows)
            if engine is not None:
                return SlicedSource(
                    stack, conn, self.ground, engine, windows, rows_max=rows_max, bytes_max=bytes_max
                )
            return WindowSource(conn, windows, rows_max=rows_max, bytes_max=bytes_max, part=self.ground.part)
        return ClassicSource(
            conn,
            self.ground,
            lease,
            look=self._look,
            halted=self.halted,
            rows_max=rows_max,
            bytes_max=bytes_max,
        )

    def _expect(self, windows: dict[int, Window]) -> None:
        """How much this window will bring; a count that takes too long is left out, and means: very much."""
        try:
            rows = sum(count_missing(self.ground.conn, windows).values())
        except TargetStatementTimeout:
            self._window_rows, self._expected_rows = ROWS_UNCOUNTED, None
        else:
            self._window_rows, self._expected_rows = rows, self.record.acknowledged + rows

    # -- what comes back

    def _told(self, sent: Sent) -> None:
        self.ground.bound.require(sent.acknowledged.ruv)
        self.record.told(sent)
        self.context.throttle.charge(rows=sent.batch.rows, byte_count=sent.body_bytes, worked_s=sent.worked_s)
        self.context.show_bounds()
        refused = sent.acknowledged.rejected
        if refused:
            self.ground.put_letters(_letters(sent))
            self.halted.update(each.rid for each in refused)
            raise Halted

    def _check(self) -> None:
        """Look whether to stop, and write down what was told; between two answers."""
        self.context.check()
        assert self._lease is not None, "something is sent in it"
        self._lease.epoch.check()
        if self.record.is_due:
            self._flush()
            if not self.is_total:
                self._check_limits()

    def _changes_left(self) -> int | None:
        most = self.ground.params.max_changes
        return None if most is None else max(0, most - self.record.acknowledged)

    def _check_limits(self) -> None:
        """Raise Yielded where the session has done what it may."""
        if self._changes_left() == 0:
            raise Yielded
        if self._left_s() <= 0:
            raise Yielded

    def _left_s(self) -> float:
        """How long the session may work still; a copy has no limit. Any thread."""
        most = self.ground.params.max_duration
        if most is None or self.is_total:
            return math.inf
        worked_s = self.context.job.active_s + self.context.clock.boottime_s() - self._began_s
        return most.total_seconds() - worked_s

    def _flush(self) -> None:
        """Move the acknowledged RUV in the target, then the counters in the row."""
        lease = self._lease
        if self.record.ruv and lease is not None:
            self.ground.acknowledge(self.record.ruv, consumer_rid=lease.acquired.consumer.rid)
        self.record.save(lease_until=None if lease is None else lease.epoch.until)
        entries = 0 if self.record.total is None else int(self.record.total["entries_sent"])
        self.context.progress(
            unit="changes" if self.record.total is None else "rows",
            done=self.record.acknowledged + entries,
            total=None if self._expected_rows is None else self._expected_rows + entries,
            force=True,
        )


def _letters(sent: Sent) -> list[Refused]:
    """What the consumer refused of a batch, as the dead letters keep it."""
    refused = {each.csn: each for each in sent.acknowledged.rejected}
    rows: list[dict[str, Any]] = sent.batch.records().to_pylist()
    return [
        Refused(
            refused[row["csn"]].csn,
            row["kind"],
            row["database"],
            row["key"],
            row["payload"],
            refused[row["csn"]].code,
            refused[row["csn"]].detail,
        )
        for row in rows
        if row["csn"] in refused
    ]


def _why_total(decision: Decision) -> str:
    reason = "" if decision.reason is None else decision.reason.value
    if decision.blocked_rids:
        rids = ", ".join(map(str, decision.blocked_rids))
        return f"changes of {rids} that the consumer lacks have left the changelog ({reason})"
    return f"the consumer cannot be brought level by changes: {reason}"
