"""The rows of a cycle as its job writes them.

Invariants:
- every write is one transaction that also touches the job's row under its fencing token: whoever has lost
  the job writes nothing here either;
- what a call has cost is added to file, cycle and store in the transaction that notes what it did;
- a cycle that has ended is not changed any more.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import delete, func, update
from sqlmodel import Session, col, select

from app.clock import SystemClock
from app.erase.left_over import note_left_over
from app.erase.messages import Message, message
from app.erase.rows import (
    ACTIVE,
    COUNTS,
    REMAINING,
    CycleState,
    CycleStep,
    ErasureCycle,
    ErasureEntries,
    ErasureFile,
    ErasureStore,
    FileState,
)
from app.figures.series import Series
from app.figures.sums import note
from app.jobs.running.context import JobContext
from app.jobs.writing import EVENT_WARNING
from app.outbox.facts import Fact
from app.outbox.writing import tell
from spark.erase.calls.calls import Costs, Refusal

FSYNC_TIMES_MAX: Final = 300
T = TypeVar("T")


class CycleEnded(Exception):
    """Somebody else has ended the cycle: a change of the period, a settled abort."""


def count(db: Session, cycle: ErasureCycle, **added: int) -> None:
    """Add to the counts of a cycle and of its store."""
    assert set(added) <= set(COUNTS), added
    for name, value in added.items():
        setattr(cycle, name, getattr(cycle, name) + value)
    values = {name: getattr(ErasureStore, name) + value for name, value in added.items()}
    if values:
        db.execute(
            update(ErasureStore)
            .where(col(ErasureStore.store) == cycle.store)
            .values(**values)
            .execution_options(synchronize_session=False)
        )


def store_row(db: Session, store_id: str, *, now: datetime) -> ErasureStore:
    """The sums of a store; made where there are none yet, under the store's lock."""
    row = db.get(ErasureStore, store_id)
    if row is None:
        row = ErasureStore(store=store_id, updated_at=now)
        db.add(row)
        db.flush()
    return row


def note_remaining(db: Session, cycle: ErasureCycle) -> None:
    """Count the files that are yet to be processed."""
    db.flush()
    query = select(func.count()).select_from(ErasureFile)
    cycle.files_remaining = db.exec(
        query.where(ErasureFile.cycle_id == cycle.id, col(ErasureFile.state).in_(sorted(REMAINING)))
    ).one()


def end_cycle(db: Session, cycle: ErasureCycle, state: CycleState, *, now: datetime) -> None:
    """Write the end of a cycle, and drop what only its work needed."""
    assert state not in ACTIVE
    note_remaining(db, cycle)
    note_left_over(db, cycle, state, now=now)
    cycle.state, cycle.ended_at, cycle.next_at = state, now, None
    cycle.step = CycleStep.DONE
    cycle.version += 1
    cycle.updated_at = now
    db.add(cycle)
    db.execute(delete(ErasureEntries).where(col(ErasureEntries.cycle_id) == cycle.id))
    db.flush()


def tell_unproven(db: Session, cycle: ErasureCycle, file: str, *, now: datetime) -> None:
    """Tell webhooks of a file that is not proved to be erased."""
    data = {"store": cycle.store, "cycle_id": cycle.id, "job_id": cycle.job_id, "file": file}
    subject = f"stores/{cycle.store}/erasure-cycles/{cycle.id}"
    tell(db, Fact.ERASURE_UNPROVEN, store=cycle.store, subject=subject, data=data, now=now)


class Record:
    """The rows of one cycle in the hands of one attempt."""

    def __init__(self, context: JobContext, cycle: ErasureCycle) -> None:
        self.context = context
        self.cycle = cycle

    def change(
        self,
        edit: Callable[[Session, ErasureCycle], T],
        *,
        say: Message | None = None,
        is_news: bool = True,
        **facts: Any,
    ) -> T:
        """Change the cycle and what belongs to it.

        Args:
            say: the message that tells of it, with these facts.
            is_news: whether it may concern anybody but its readers.
        Raises: CycleEnded, LeaseLost.
        """

        def effect(db: Session) -> tuple[ErasureCycle, T]:
            self.context.change(db, {})  # first: it locks the job's row, and fails where that is not ours
            row = db.get_one(ErasureCycle, self.cycle.id, with_for_update=True)
            if row.state not in ACTIVE:
                raise CycleEnded(row.state)
            done = edit(db, row)
            row.version += 1
            row.updated_at = self.context.clock.now()
            db.add(row)
            db.flush()
            if say is not None:
                self.context.change(db, {}, message(db, row, say, **facts))
            return row, done

        self.cycle, done = self.context.write(effect, is_news=is_news)
        return done

    def change_file(
        self,
        number: int,
        edit: Callable[[Session, ErasureCycle, ErasureFile], None],
        *,
        costs: Costs | None = None,
        say: Message | None = None,
        **facts: Any,
    ) -> ErasureFile:
        """Change one file, and add what was spent on it: nobody waits for that."""

        def both(db: Session, cycle: ErasureCycle) -> ErasureFile:
            file = db.get_one(ErasureFile, (cycle.id, number))
            edit(db, cycle, file)
            if costs is not None:
                spend(db, cycle, costs, file)
            db.add(file)
            note_remaining(db, cycle)
            return file

        return self.change(both, say=say, is_news=False, **facts)

    def note(self, what: Message, **facts: Any) -> None:
        """Say something without a change."""
        self.change(lambda _db, _cycle: None, say=what, **facts)

    def warn(self, code: str, detail: str) -> None:
        """Add a warning to the job's events."""
        self.context.note(EVENT_WARNING, {"code": code, "detail": detail})

    def read(self, ask: Callable[[Session], T]) -> T:
        """Ask the metadata."""
        return self.context.read(ask)

    def files(self, *states: FileState) -> list[ErasureFile]:
        """Files of the cycle in these states, ascending."""

        def ask(db: Session) -> list[ErasureFile]:
            query = select(ErasureFile).where(ErasureFile.cycle_id == self.cycle.id)
            if states:
                query = query.where(col(ErasureFile.state).in_(sorted(states)))
            return list(db.exec(query.order_by(col(ErasureFile.number))).all())

        return self.read(ask)

    def entries(self, number: int) -> bytes:
        """The planned entries of a file."""
        return self.read(lambda db: db.get_one(ErasureEntries, (self.cycle.id, number)).entries)

    def refresh(self) -> ErasureCycle:
        """Read the cycle's row again."""
        self.cycle = self.read(lambda db: db.get_one(ErasureCycle, self.cycle.id))
        return self.cycle


def spend(db: Session, cycle: ErasureCycle, costs: Costs, file: ErasureFile | None = None) -> None:
    """Add what a call has cost."""
    spent = {
        "fsyncs": costs.fsyncs,
        "reads": costs.reads,
        "read_bytes": costs.read_bytes,
        "writes": costs.writes,
        "write_bytes": costs.write_bytes,
    }
    count(db, cycle, **spent)
    if costs.write_bytes:
        now = SystemClock().now()
        note(db, Series.BYTES_ERASED, float(costs.write_bytes), store=cycle.store, now=now)
    if file is None:
        return
    for name, value in spent.items():
        setattr(file, name, getattr(file, name) + value)
    times = [*file.fsync_s, *(round(each, 6) for each in costs.fsync_s)]
    file.fsync_s = times[:FSYNC_TIMES_MAX]


def refusal_row(refusal: Refusal, *, step: str | None = None) -> dict[str, Any]:
    """A refusal as rows keep it."""
    row = {"code": refusal.code.value, "detail": refusal.detail, "ref": refusal.ref}
    return row | {"offset": refusal.offset, "step": step}
