"""The work at one file: hash it, overwrite it round by round, read it again and prove it.

Invariants:
- the row that says "written from now on" is durable before the first write, and the file's digest is
  invalidated in the same transaction;
- after every round its end is durable before the next one begins; a round that may have been done in part is
  done again, which is legal: its entries are as planned, or of type 43;
- a proof that failed ends the file as UNPROVEN; nothing tries it again as a success.

Source: facts eraser-behaviour, 5; design.md, Erase.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from sqlmodel import Session

from app.erase.cycle.attempt import Answer, Attempt
from app.erase.cycle.planning import identity_of_row, witness_of_row, witness_row
from app.erase.cycle.throttle import DELETE_SHARE, READ_UNITS_PER_BYTE, UNITS_PER_BYTE, pace_of, round_units
from app.erase.messages import Message
from app.erase.record import count, refusal_row, tell_unproven
from app.erase.rows import ErasureCycle, ErasureFile, FileState
from app.jobs.models import WaitingOn
from app.protection.service import invalidate_digest, note_digest, protected_files
from app.stores.rows import StoreMode
from spark.erase.calls.calls import (
    DeleteReservedCall,
    Mode,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    Refusal,
    RefusalCode,
    RoundAnswer,
    RoundCall,
)
from spark.erase.hands.hands import Hands, HandsLost
from spark.erase.overwrite.rounds import RoundSlice, slice_entries, split_rounds
from spark.erase.reasons import Cause

FILE_LOCKED_S: Final = 1.0
UNKNOWN_RANGE_S: Final = 60.0
STOPPED_PAUSE_S: Final = 0.05
A = TypeVar("A", bound=Answer)

ENDS_FILE: Final = {
    RefusalCode.ALREADY_DELETED: FileState.ALREADY_DELETED,
    RefusalCode.FILE_REPLACED: FileState.REFUSED,
    RefusalCode.FILE_RESIZED: FileState.REFUSED,
    RefusalCode.HARD_LINKED: FileState.KEPT,
    RefusalCode.HEADER_CHANGED: FileState.REFUSED,
    RefusalCode.FILE_TOUCHED: FileState.REFUSED,
    RefusalCode.DISK_ERROR: FileState.REFUSED,
    RefusalCode.UNPROVEN: FileState.UNPROVEN,
    RefusalCode.LOG_REFUSED: FileState.REFUSED,
}
"""Refusals that end the file, and only the file."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """A file that is left alone for a while, without a protection that this metadata knows."""

    until: datetime
    waiting_on: WaitingOn


class FileLeft(Exception):
    """The file in work is left, for now or for good; its row says why."""

    def __init__(self, blocked: Blocked | None = None) -> None:
        super().__init__()
        self.blocked = blocked


class FileWork:
    """One file in the hands of one attempt."""

    def __init__(self, attempt: Attempt, file: ErasureFile) -> None:
        self.attempt = attempt
        self.file = file

    def run(self) -> None:
        """Work at the file until it is done.

        Raises: FileLeft, JobWaiting, JobStopped, JobFailed, EndReached.
        """
        file, self.attempt.works_at = self.file, self.file_name
        if self._may_delete():
            self._delete()
        elif file.entry_count == 0:
            self._note_clean()
        else:
            entries = self.attempt.record.entries(file.number)
            is_first = self._prepare(entries)
            self._rounds(entries, is_first=is_first)
            self._prove(entries)
        self._show_progress(force=True)

    # -- without rounds

    def _may_delete(self) -> bool:
        wanted = self.attempt.store.delete_reserved_files and self._mode is Mode.CLOSED
        # One whose deletion was begun has no hash: a crash may have left it renamed, with all its bytes.
        is_overwritten = self.file.was_written and self.file.sha256_expected is not None
        return wanted and self.file.is_reserved and self.file.is_barren and not is_overwritten

    def _note_clean(self) -> None:
        """Nothing to erase: the plan has read through it, and that is all that is charged."""
        began = self.attempt.begin()

        def edit(_db: Session, cycle: ErasureCycle, row: ErasureFile) -> None:
            self._pay(cycle, row, row.size_bytes * READ_UNITS_PER_BYTE, began)
            self._finish(cycle, row, FileState.CLEAN)

        self._change(edit)

    def _delete(self) -> None:
        """Delete a reserved file that holds nothing: cheaper than to erase it."""
        epoch = self.attempt.claim()
        began = self.attempt.begin()
        self._leave_if_protected()
        was_begun = self.file.was_written
        self._change(self._announce)
        identity, witness = identity_of_row(self.file), witness_of_row(self.attempt.cycle)
        number = self.file.number
        call = DeleteReservedCall(self._directory, number, epoch, identity, witness, was_begun)
        answer = self._write(lambda hands: hands.delete_reserved(call))
        if answer.refusal is not None:
            self._refused(answer.refusal, answer)
        assert answer.deleted, "what was not refused was done"

        def edit(db: Session, cycle: ErasureCycle, row: ErasureFile) -> None:
            count(db, cycle, files_deleted=1)
            self._pay(cycle, row, round(row.size_bytes * DELETE_SHARE), began)
            self._finish(cycle, row, FileState.DELETED)

        self._change(edit, answer, say=Message.FILE, outcome="DELETED")

    # -- before the rounds

    def _prepare(self, entries: bytes) -> bool:
        """Hash the file, unless that was done and nothing is uncertain.

        Returns: whether nothing of ours has been written to it yet.
        """
        file = self.file
        if file.rows_done:
            return False
        if file.sha256_expected is not None and not file.was_written:
            return True  # the first round compares its time
        began = self.attempt.begin()
        planned = identity_of_row(file)
        call = PrepareCall(self._directory, file.number, planned, entries, was_written=file.was_written)
        answer = self.attempt.call(lambda hands: hands.prepare(call))
        if answer.refusal is not None:
            self._refused(answer.refusal, answer)
        self._check_expected(answer)
        # A first round that may not have begun: only the time tells whether it did.
        is_first = not file.was_written or answer.mtime_ns == planned.mtime_ns

        def edit(_db: Session, cycle: ErasureCycle, row: ErasureFile) -> None:
            # Component 2 the first time; after that component 1, for which spare time was planned.
            self._pay(cycle, row, row.size_bytes * READ_UNITS_PER_BYTE, began)
            row.prepares += 1
            row.state = FileState.IN_WORK
            row.sha256_before = row.sha256_before or answer.sha256_now
            row.sha256_expected = answer.sha256_expected
            row.mtime_before_ns = row.mtime_before_ns or answer.mtime_ns
            row.refusal = None

        self._change(edit, answer)
        return is_first

    def _check_expected(self, answer: PrepareAnswer) -> None:
        """What the file will be does not change while it is overwritten, or somebody else wrote."""
        known = self.file.sha256_expected
        if self.file.was_written and known is not None and known != answer.sha256_expected:
            detail = "bytes outside of the planned entries are not what they were before the first write"
            self._refused(Refusal(RefusalCode.UNPROVEN, detail, file=self.file_name), answer)

    def _announce(self, db: Session, cycle: ErasureCycle, row: ErasureFile) -> None:
        now = self.attempt.now
        invalidate_digest(db, cycle.store, row.number, now=now)
        row.state, row.was_written = FileState.IN_WORK, True
        row.passes += 1
        row.first_write_at = row.first_write_at or now

    def _pay(self, cycle: ErasureCycle, row: ErasureFile, units: int, began: datetime) -> None:
        self.attempt.paid(cycle, units, began)
        row.charged_units += units

    def _finish(self, cycle: ErasureCycle, row: ErasureFile, state: FileState) -> None:
        """End a file; what was planned for it and not needed counts as done, and is not waited for."""
        row.state, row.finished_at = state, self.attempt.now
        cycle.done_units += max(0, row.size_bytes * UNITS_PER_BYTE - row.charged_units)

    # -- rounds

    def _rounds(self, entries: bytes, *, is_first: bool) -> None:
        slices = split_rounds(entries, file_size=identity_of_row(self.file).size)
        left = [each for each in slices if each.first >= self.file.rows_done]
        for each in left:
            began = self.attempt.begin()
            self._leave_if_protected()
            epoch = self.attempt.claim()
            if not self.file.was_written:
                self._change(self._announce)
            call = RoundCall(
                directory=self._directory,
                number=self.file.number,
                mode=self._mode,
                epoch=epoch,
                identity=identity_of_row(self.file),
                entries=slice_entries(entries, each.first, each.last),
                is_first=is_first,
                witness=witness_of_row(self.attempt.cycle),
            )
            answer = self._write(lambda hands, call=call: hands.round(call))  # type: ignore[misc]
            if answer.refusal is not None:
                self._refused(answer.refusal, answer, step=answer.step.value)
            self._note_round(each, answer, began, is_last=each is left[-1])
            is_first = False

    def _leave_if_protected(self) -> None:
        """The row decides, whatever the control file says: that may be an older copy, put back in place."""
        number, store, now = self.file.number, self.attempt.store.id, self.attempt.now
        if self.attempt.record.read(lambda db: protected_files(db, store, [number], now=now)):
            raise FileLeft

    def _note_round(self, done: RoundSlice, answer: RoundAnswer, began: datetime, *, is_last: bool) -> None:
        end = self.file.size_bytes if is_last else done.end_offset
        stretch = max(0, end - self.file.done_offset)

        def edit(_db: Session, cycle: ErasureCycle, row: ErasureFile) -> None:
            row.rows_done, row.done_offset = done.last, max(end, row.done_offset)
            row.rounds += 1
            if answer.witness is not None:
                cycle.plan = (cycle.plan or {}) | witness_row(answer.witness)
            self._pay(cycle, row, round_units(stretch), began)

        self._change(edit, answer)
        self._show_progress()

    def _write(self, do: Callable[[Hands], A]) -> A:
        """Let hands write. Where they are lost, what may have been done in part is done again."""
        try:
            return self.attempt.call_once(do, writes=True)
        except HandsLost:
            self.attempt.context.check()
            self.attempt.note_lost()
            raise FileLeft from None

    # -- after the rounds

    def _prove(self, entries: bytes) -> None:
        expected = self.file.sha256_expected
        assert expected is not None, "a file that was written was hashed before"
        call = ProveCall(self._directory, self.file.number, identity_of_row(self.file), entries, expected)
        self.attempt.context.check()  # what it reads was paid for: the last round's payment is not waited for
        answer = self.attempt.call(lambda hands: hands.prove(call))
        if answer.refusal is not None:
            self._refused(answer.refusal, answer)
        self._change(
            lambda db, cycle, row: self._note_proof(db, cycle, row, answer),
            answer,
            say=Message.FILE,
            outcome="ERASED" if answer.is_proved else "UNPROVEN",
            entries=self.file.entry_count,
            first_write=self.file.first_write_at,
        )
        if not answer.is_proved:
            self.attempt.record.warn("UNPROVEN", f"{self.file_name}: its bytes are not what they should be")

    def _note_proof(self, db: Session, cycle: ErasureCycle, row: ErasureFile, answer: ProveAnswer) -> None:
        now = self.attempt.now
        row.is_proved, row.proved_by, row.sha256_after = answer.is_proved, answer.read_by, answer.sha256_now
        row.entries_erased = answer.entries_erased
        self._finish(cycle, row, FileState.ERASED if answer.is_proved else FileState.UNPROVEN)
        if not answer.is_proved:
            tell_unproven(db, cycle, self.file_name, now=now)
        if answer.is_proved:
            count(db, cycle, files_erased=1)
            note_digest(
                db,
                cycle.store,
                row.number,
                sha256=answer.sha256_now,
                size=answer.size,
                mtime_ns=answer.mtime_ns,
                now=now,
            )

    # -- refusals

    def _refused(self, refusal: Refusal, answer: Answer, *, step: str | None = None) -> None:
        """Note a refusal and leave the file, or end the attempt.

        Raises: FileLeft, JobWaiting, JobFailed.
        """
        ends = ENDS_FILE.get(refusal.code) if refusal.file in (None, self.file_name) else None
        self._change(lambda db, cycle, row: self._note_refusal(db, cycle, row, refusal, step, ends), answer)
        if ends is not None:
            self._say_ended(refusal)
            raise FileLeft
        now = self.attempt.now
        if refusal.code is RefusalCode.STOPPED:  # whoever stopped us has left a row, or is about to
            self.attempt.context.clock.sleep(STOPPED_PAUSE_S)
            raise FileLeft
        if refusal.code is RefusalCode.PROTECTED:
            waiting = WaitingOn(kind="BACKUP", ref=refusal.ref[:200])
            raise FileLeft(Blocked(now + timedelta(seconds=UNKNOWN_RANGE_S), waiting))
        if refusal.code is RefusalCode.LOG_MOVED:
            self.attempt.wants_plan = True
            raise FileLeft
        if refusal.code is RefusalCode.FILE_LOCKED:
            waiting = WaitingOn(kind="FILE_LOCKED", ref=self.file_name)
            raise FileLeft(Blocked(now + timedelta(seconds=FILE_LOCKED_S), waiting))
        if refusal.code is RefusalCode.ENVIRONMENT_IN_USE and self._may_go_live():
            seconds = self.attempt.context.settings.erasure_environment_look_s
            waiting = WaitingOn(kind=refusal.code.value, ref=self.file_name)
            raise FileLeft(Blocked(now + timedelta(seconds=seconds), waiting))
        raise self.attempt.refused(refusal)

    def _may_go_live(self) -> bool:
        """Whether the other files are worked at meanwhile: theirs is a plan that needs no lock of JE."""
        return self.attempt.store.mode == StoreMode.LIVE and self._mode is Mode.CLOSED

    def _note_refusal(
        self,
        db: Session,
        cycle: ErasureCycle,
        row: ErasureFile,
        refusal: Refusal,
        step: str | None,
        ends: FileState | None,
    ) -> None:
        row.refusal = refusal_row(refusal, step=step)
        if ends is None:
            return
        self._finish(cycle, row, ends)
        if ends is FileState.UNPROVEN:
            row.is_proved = False
            tell_unproven(db, cycle, self.file_name, now=self.attempt.now)
        if ends is FileState.ALREADY_DELETED:
            count(db, cycle, files_already_deleted=1)
        if ends is FileState.KEPT:
            row.causes = [[str(Cause.HARD_LINKED), refusal.detail]]

    def _say_ended(self, refusal: Refusal) -> None:
        facts = {"file": self.file_name, "code": refusal.code.value, "detail": refusal.detail}
        self.attempt.record.note(Message.SKIPPED, **facts)
        self.attempt.record.warn(refusal.code.value, f"{self.file_name}: {refusal.detail}")

    # -- the row

    @property
    def file_name(self) -> str:
        """The file's name."""
        return f"{self.file.number:08x}.jdb"

    @property
    def _mode(self) -> Mode:
        """What the file's plan is good for: one begun as CLOSED is not finished beside a JE process."""
        return Mode(self.file.mode or Mode.CLOSED)

    @property
    def _directory(self) -> str:
        return str(self.attempt.directory)

    def _change(
        self,
        edit: Callable[[Session, ErasureCycle, ErasureFile], None],
        answer: Answer | None = None,
        *,
        say: Message | None = None,
        **facts: object,
    ) -> None:
        costs = None if answer is None else answer.costs
        named = {"file": self.file_name} | facts if say is not None else {}
        self.file = self.attempt.record.change_file(self.file.number, edit, costs=costs, say=say, **named)

    def _show_progress(self, *, force: bool = False) -> None:
        cycle = self.attempt.cycle
        self.attempt.context.progress(
            unit="work units",
            done=cycle.done_units,
            total=cycle.total_units or None,
            total_is_estimate=True,
            spread=pace_of(cycle, now=self.attempt.now),
            force=force,
        )
