"""The protocol of the control file as programs of single steps, and the judge of what they do.

A program yields one operation at a time and is sent its result. The same programs run over a model in memory
(`control_memory`), where every interleaving is explored, and over real descriptors (`control_descriptors`).

    TRY key               take a lock exclusively, or not: bool
    LOCK key exclusive    take a lock, waiting for it
    LOCK_OR_GIVE_UP key   take a lock shared, or run out of time while it is held: bool
    UNLOCK key
    READ                  the record in force
    STOP                  the stop counter
    PUT record            the record in force from now on, but not yet the counter
    COUNT value           the counter
    CHANGE edit           all of a change at once (real descriptors)
    ROWS                  the ranges of all rows that are in force
    ROW id state range    commit a row: PREPARING, ACTIVE, ENDED
    ROW_STATE id          the state of a row, None
    WRITE number epoch    change bytes of a data file
    PROMISE range         201
    END range             the backup is over
    CLAIMED epoch, PROVED epoch
"""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any

from spark.targets.files.control_record import ControlRecord, ProtectedRange
from tests.spark.targets.released import released

Op = tuple[Any, ...]
Program = Generator[Op, Any, None]
Edit = Callable[[ControlRecord, tuple[ProtectedRange, ...]], ControlRecord]
Change = Callable[["Rules", Edit], Program]

ENVIRONMENT = "je.lck"
RECORD = "record"
FILES = (0, 1)


@dataclass(frozen=True)
class Rules:
    """The protocol; each switch that is off is a mistake that somebody could make."""

    checks_stop: bool = True
    remembers_stop_of_record: bool = True
    reads_under_lock: bool = True
    range_before_lock: bool = True
    locks_record: bool = True
    checks_epoch: bool = True
    row_before_range: bool = True
    waits_for_round: bool = True


def change_by_steps(rules: Rules, edit: Edit) -> Program:
    """What ControlFile.change does, one step at a time."""
    if rules.locks_record:
        yield ("LOCK", RECORD, True)
    record = yield ("READ",)
    rows = yield ("ROWS",)
    edited = edit(record, rows)
    yield ("PUT", edited)
    yield ("COUNT", edited.stop)
    if rules.locks_record:
        yield ("UNLOCK", RECORD)


def change_at_once(rules: Rules, edit: Edit) -> Program:
    """ControlFile.change itself."""
    yield ("CHANGE", edit)


def writer(rules: Rules, *, epoch: int, numbers: Iterable[int], writes: int = 2) -> Program:
    """One round at each of the files, with locks that are tried once."""
    for number in numbers:
        if not (yield ("TRY", ENVIRONMENT)):
            continue
        record = None if rules.reads_under_lock else (yield ("READ",))
        if not (yield ("TRY", number)):
            yield ("UNLOCK", ENVIRONMENT)
            continue
        record = (yield ("READ",)) if record is None else record
        stop = record.stop if rules.remembers_stop_of_record else (yield ("STOP",))
        may = not record.covering(number) and (record.epoch == epoch or not rules.checks_epoch)
        for _ in range(writes if may else 0):
            if rules.checks_stop and (yield ("STOP",)) != stop:
                break
            yield ("WRITE", number, epoch)
        yield ("UNLOCK", number)
        yield ("UNLOCK", ENVIRONMENT)


def protector(rules: Rules, *, held: ProtectedRange, change: Change, may_give_up: bool = False) -> Program:
    """A backup: protection, the rounds in work, 201, and its end."""

    def add(now: ControlRecord, _: object) -> ControlRecord:
        return replace(now.protecting(held), stop=now.stop + 1)

    if rules.row_before_range:
        yield ("ROW", held.id, "PREPARING", held)
    if rules.range_before_lock:
        yield from change(rules, add)
    stopped = True
    for number in FILES if rules.waits_for_round else ():
        if held.covers(number):
            stopped = yield ("LOCK_OR_GIVE_UP" if may_give_up else "LOCK", number, False)
            if not stopped:
                break
            yield ("UNLOCK", number)
    if not rules.range_before_lock:
        yield from change(rules, add)
    if stopped:
        yield ("ROW", held.id, "ACTIVE", held)
        yield ("PROMISE", held)
        yield ("END", held)
    yield from end(rules, held=held, change=change)


def end(rules: Rules, *, held: ProtectedRange, change: Change) -> Program:
    """The end of a protection: the row first, then the range."""
    yield ("ROW", held.id, "ENDED", held)
    yield from change(rules, lambda now, _: released(now, held.id))


def recover_protection(rules: Rules, *, held: ProtectedRange, change: Change) -> Program:
    """The service starts again and finds what its backup had come to."""
    state = yield ("ROW_STATE", held.id)
    if state == "ACTIVE":
        yield ("END", held)
    if state is not None:
        yield from end(rules, held=held, change=change)


def claim(rules: Rules, *, epoch: int, numbers: Iterable[int], change: Change, writes: int = 2) -> Program:
    """A new attempt: it raises the epoch, puts the rows into force, proves that nobody writes, and writes."""

    def raise_epoch(now: ControlRecord, rows: tuple[ProtectedRange, ...]) -> ControlRecord:
        return replace(now.protecting(*rows).claimed(epoch), stop=now.stop + 1)

    yield from change(rules, raise_epoch)
    yield ("CLAIMED", epoch)
    for number in FILES:
        yield ("LOCK", number, False)
        yield ("UNLOCK", number)
    yield ("PROVED", epoch)
    yield from writer(rules, epoch=epoch, numbers=numbers, writes=writes)


@dataclass(frozen=True)
class Judge:
    """What has been promised, and what may therefore not happen; `fault` says what did."""

    rows: frozenset[tuple[str, str, ProtectedRange]] = frozenset()
    promised: frozenset[ProtectedRange] = frozenset()
    claimed: int = 0
    proved: int = 0
    late: frozenset[tuple[str, int]] = frozenset()
    fault: str = ""

    def active(self) -> tuple[ProtectedRange, ...]:
        found = [held for _, state, held in self.rows if state != "ENDED"]
        return tuple(sorted(found, key=lambda held: held.id))

    def state_of(self, name: str) -> str | None:
        return next((state for held, state, _ in self.rows if held == name), None)

    def judge(self, actor: str, op: Op) -> "Judge":
        """What is so after an operation."""
        match op:
            case ("ROW", name, state, held):
                others = {row for row in self.rows if row[0] != name}
                return replace(self, rows=frozenset(others | {(name, state, held)}))
            case ("PROMISE", held):
                return replace(self, promised=self.promised | {held})
            case ("END", held):
                return replace(self, promised=self.promised - {held})
            case ("CLAIMED", epoch):
                return replace(self, claimed=max(self.claimed, epoch))
            case ("PROVED", epoch):
                return replace(self, proved=max(self.proved, epoch))
            case ("WRITE", number, epoch):
                return self._judge_write(actor, number, epoch)
        return self

    def _judge_write(self, actor: str, number: int, epoch: int) -> "Judge":
        if any(held.covers(number) for held in self.promised):
            return replace(self, fault=f"{actor} wrote to protected file {number}")
        if epoch < self.proved:
            return replace(self, fault=f"{actor} wrote under epoch {epoch} after {self.proved} was proved")
        if epoch >= self.claimed:
            return self
        writes = 1 + next((count for name, count in self.late if name == actor), 0)
        fault = f"{actor} wrote {writes} times under epoch {epoch} after the claim of {self.claimed}"
        late = frozenset({pair for pair in self.late if pair[0] != actor} | {(actor, writes)})
        return replace(self, late=late, fault=fault if writes > 1 else "")

    def judge_record(self, record: ControlRecord) -> "Judge":
        """A promise that is not in the record in force is lost."""
        lost = [held.id for held in self.promised if held not in record.ranges]
        return replace(self, fault=f"the range of {lost[0]} is lost") if lost else self
