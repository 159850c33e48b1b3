"""The plan of a cycle: made by hands, kept with the cycle file by file, made again when the log has moved on.

What was obsolete stays obsolete, so a plan that was kept is good for as long as its files are what they were,
and the log still has the checkpoint that it relies on. It is made again when that one is gone, when a file
that waits could have become free (the log has moved on), and when other kinds are erased.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from sqlmodel import Session, select

from app.erase.cycle.attempt import Attempt
from app.erase.cycle.lateness import SAID
from app.erase.cycle.throttle import spread
from app.erase.messages import Message
from app.erase.record import count, note_remaining, refusal_row, spend
from app.erase.reviewed import within_reviewed
from app.erase.rows import REMAINING, CycleStep, ErasureCycle, ErasureEntries, ErasureFile, FileState
from app.erase.rules import switches_of
from app.extinction.status import extinctions_of, note_log_extinctions
from app.jobs.errors import JobFailed
from app.jobs.running.context import JobContext
from app.kit.instants import instant_text
from app.protection.queries import backup_spans
from app.stores.limits import is_limited, judge
from app.stores.models import Reach, StoreLimits, StoreMode
from app.stores.rows import Store
from app.stores.service import get_store
from spark.erase.calls.calls import LiveTerms, Mode, PlanAnswer, PlanCall, PlannedFile, Refusal, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.calls.request import ExtinctionTerms, PlanRequest
from spark.erase.errors import LogRefused
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.overwrite.witness import check_witness, is_still_planned
from spark.erase.reading.directory import Identity, Witness, file_names
from spark.erase.reasons import Cause
from spark.formats.je.log import file_number, lsn_file, lsn_offset
from spark.targets.files.log_place import log_path

VETOED_KEPT_MAX: Final = 100
NO_EXTINCTIONS: Final = ExtinctionTerms()
# Nothing that the log does makes these pass: the file is set aside, as the document does with hard links.
LASTING: Final = frozenset({Cause.HARD_LINKED, Cause.COMPARATOR, Cause.DEFERRED_WRITE, Cause.NOT_REVIEWED})
# These pass when the engine writes on, or truncates its index.
PASSING: Final = frozenset(
    {Cause.RECOVERY_INTERVAL, Cause.TAIL_OF_LOG, Cause.VLSN_INDEX, Cause.NO_VLSN, Cause.TOO_YOUNG}
)
UNTOUCHED: Final = frozenset({FileState.PENDING, FileState.NOT_SELECTED, FileState.IN_WORK})


def make_plan(attempt: Attempt) -> None:
    """Make the plan and keep it.

    Raises: JobWaiting, JobFailed.
    """
    is_first = attempt.cycle.plan is None
    known = attempt.record.read(lambda db: extinctions_of(db, get_store(db, attempt.store.id)))
    signature = log_signature(attempt.directory)
    answer = within_reviewed(attempt, _ask(attempt, known.terms))
    if not is_first:  # a crash between here and the end has it made once more
        attempt.record.change(lambda _db, cycle: setattr(cycle, "step", CycleStep.SELECTED))
    _check_limits(attempt, answer)
    is_another = _is_another_log(attempt)
    for file in answer.files:
        if is_another:
            _judge_begun(attempt, file)
        _keep_file(attempt, file, mode=answer.mode)

    def edit(db: Session, cycle: ErasureCycle) -> None:
        plans = (cycle.plan or {}).get("plans", 0) + 1
        facts = plan_facts(answer)
        made = {"planned_at": instant_text(attempt.now), "signature": signature, "plans": plans}
        made["extinctions"] = known.mark
        made |= {SAID: (cycle.plan or {}).get(SAID, 0.0)}
        cycle.plan = facts | made | witness_row(answer.witness)
        cycle.mode = answer.mode.value
        cycle.step = CycleStep.PLANNED
        if is_first:
            spread(cycle, now=attempt.now)
        spend(db, cycle, answer.costs)
        _forget_vanished(db, cycle, answer)
        note_remaining(db, cycle)
        note_log_extinctions(db, cycle.store, answer.log_extinctions, now=attempt.now)

    attempt.record.change(edit, say=None if is_first else Message.REPLANNED)
    attempt.wants_plan = False
    if is_first:
        _warn(attempt, answer)


def _ask(attempt: Attempt, extinctions: ExtinctionTerms) -> PlanAnswer:
    cutoff = attempt.cycle.cutoff_at
    assert cutoff is not None, "a cycle that plans has started"
    call = plan_call(
        attempt.store,
        attempt.directory,
        kinds=attempt.cycle.kinds,
        cutoff=cutoff,
        now=attempt.now,
        backups=backups_of(attempt.context, attempt.store),
        extinctions=extinctions,
    )
    answer = attempt.call(lambda hands: hands.plan(call))
    if answer.refusal is not None:
        raise attempt.refused(answer.refusal)
    return answer


def _check_limits(attempt: Attempt, answer: PlanAnswer) -> None:
    """End the cycle before its next write when what it has erased and would erase exceeds the store's limits.

    Raises: JobFailed.
    """
    if not is_limited(StoreLimits.model_validate(attempt.store.limits)):
        return
    rows = attempt.record.read(lambda db: _files_of(db, attempt.cycle.id))
    exceeded = judge(attempt.store, _reach(answer.files, rows)).exceeded
    if exceeded:
        raise JobFailed("LIMIT_EXCEEDED", "; ".join(exceeded))


def _files_of(db: Session, cycle_id: str) -> dict[int, ErasureFile]:
    query = select(ErasureFile).where(ErasureFile.cycle_id == cycle_id)
    return {file.number: file for file in db.exec(query).all()}


def _reach(planned: Sequence[PlannedFile], rows: Mapping[int, ErasureFile]) -> Reach:
    """What a whole cycle erases: files that it was at before as they were planned then, the others as now."""
    begun = {number: row for number, row in rows.items() if row.was_written}
    erased = [pair for row in begun.values() for pair in row.planned.values()]
    for file in planned:
        row = rows.get(file.number)
        if row is not None and row.state in REMAINING and file.number not in begun:
            erased += file.erased.values()
    return reach_of(erased, log_bytes=sum(file.identity.size for file in planned))


def reach_of(erased: Iterable[Sequence[int]], *, log_bytes: int) -> Reach:
    """What is erased, of amounts as (entries, bytes), as a share of the log's bytes."""
    pairs = list(erased)
    size = sum(pair[1] for pair in pairs)
    return Reach(
        rows=sum(pair[0] for pair in pairs), part=size, whole=log_bytes, shares="bytes of the log", bytes=size
    )


def _warn(attempt: Attempt, answer: PlanAnswer) -> None:
    """Say what of the first plan wants a look."""
    if answer.vetoed_count:
        attempt.record.warn("VETOED", f"{answer.vetoed_count} entries are vetoed: the plan wants a look")
    kept = _maybe_extinct(answer)
    if kept:
        detail = f"{kept} entries stay: the store's filter always says MAYBE_EXTINCT"
        attempt.record.warn(str(Cause.MAYBE_EXTINCT), detail)


def _maybe_extinct(answer: PlanAnswer) -> int:
    return sum(file.kept.get(Cause.MAYBE_EXTINCT, (0, 0))[0] for file in answer.files)


def plan_call(
    store: Store,
    directory: Path,
    *,
    kinds: list[str],
    cutoff: datetime,
    now: datetime,
    protected: Mapping[int, str] | None = None,
    backups: Sequence[tuple[datetime, datetime]] = (),
    extinctions: ExtinctionTerms = NO_EXTINCTIONS,
) -> PlanCall:
    """What hands are asked to plan.

    Args:
        backups: begin and end of those that went through Lethe: JE's marker of one is no stranger's.
        extinctions: of the store.
    """
    now_ms = _ms(now)
    request = PlanRequest(
        switches=switches_of(kinds),
        created_before_ms=_ms(cutoff),
        protected=protected or {},
        now_ms=now_ms,
        erase_expired=store.erase_expired,
        extinctions=extinctions,
    )
    live = None
    if store.mode == StoreMode.LIVE:
        live = LiveTerms(
            now_ms=now_ms,
            backup_grace_ms=int(store.backup_grace.total_seconds() * 1000),
            node_grace_ms=int(store.node_grace.total_seconds() * 1000),
            backups_ms=tuple((_ms(begin), _ms(end)) for begin, end in backups),
        )
    return PlanCall(str(directory), request, live)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def backups_of(context: JobContext, store: Store) -> list[tuple[datetime, datetime]]:
    """When backups of a LIVE store went through Lethe, as far back as a marker counts."""
    if store.mode != StoreMode.LIVE:
        return []
    since = context.clock.now() - store.backup_grace
    return context.read(lambda db: backup_spans(db, store.id, since=since))


def plan_facts(answer: PlanAnswer) -> dict[str, Any]:
    """What a plan says of the whole log, as rows keep it."""
    return {
        "first_active": answer.first_active,
        "checkpoint_lsn": answer.checkpoint_lsn,
        "vetoed": [[lsn, reason] for lsn, reason in answer.vetoed[:VETOED_KEPT_MAX]],
        "vetoed_count": answer.vetoed_count,
        "missing_count": answer.missing_count,
        "vlsn": None if answer.vlsn is None else dict(answer.vlsn),
        "torn_at": None if answer.torn_at is None else list(answer.torn_at),
        "nodes_wait": answer.nodes_wait,
        "after_checkpoint": [sum(file.after_checkpoint[at] for file in answer.files) for at in (0, 1)],
    }


def place(lsn: int) -> dict[str, Any]:
    """An LSN as clients see it."""
    return {"file": f"{lsn_file(lsn):08x}.jdb", "offset": lsn_offset(lsn)}


def _keep_file(attempt: Attempt, planned: PlannedFile, *, mode: Mode) -> None:
    """Keep what is planned in one file; one that was begun keeps the plan that it was begun by."""

    def edit(db: Session, cycle: ErasureCycle) -> None:
        file = db.get(ErasureFile, (cycle.id, planned.number))
        if file is None:  # younger than the cycle
            file = ErasureFile(cycle_id=cycle.id, number=planned.number, state=FileState.NOT_SELECTED)
            file.created_ms = planned.created_ms
        if file.state not in UNTOUCHED or file.was_written:
            return
        if file.state == FileState.IN_WORK:  # hashed, and nothing was written to it
            file.state, file.sha256_before, file.sha256_expected = FileState.PENDING, None, None
        _describe(file, planned)
        file.mode = mode.value
        db.add(file)
        if file.state != FileState.PENDING:
            return
        if LASTING & set(planned.causes):
            file.state, file.finished_at = FileState.KEPT, attempt.now
        _keep_entries(db, cycle, planned)

    attempt.record.change(edit)


def _is_another_log(attempt: Attempt) -> bool:
    """Whether the log lacks what the plan so far relies on: put back, cut off, or cleaned since."""
    witness = witness_of_row(attempt.cycle)
    if witness is None:
        return False
    try:
        check_witness(FileLayer(), attempt.directory, witness)
    except Refused:
        return True
    return False


def _judge_begun(attempt: Attempt, planned: PlannedFile) -> None:
    """End a file that was begun, unless the new plan, too, would erase all that is left of it."""

    def edit(db: Session, cycle: ErasureCycle) -> None:
        file = db.get(ErasureFile, (cycle.id, planned.number))
        if file is None or file.state not in REMAINING or not file.was_written:
            return
        kept = db.get_one(ErasureEntries, (cycle.id, file.number)).entries
        if is_still_planned(kept, file.rows_done, planned.entries):
            return
        detail = "the log is another than planned: what is left here is not obsolete in it, or not provably"
        file.state, file.finished_at = FileState.REFUSED, attempt.now
        file.refusal = refusal_row(Refusal(RefusalCode.LOG_MOVED, detail))
        db.add(file)

    attempt.record.change(edit)


def witness_row(witness: Witness | None) -> dict[str, Any]:
    """A witness as rows keep it."""
    row = None if witness is None else {"lsn": witness.lsn, "entry": witness.entry.hex()}
    return {"witness": row}


def witness_of_row(cycle: ErasureCycle) -> Witness | None:
    """What must stand in the log whenever something of the plan is done."""
    row = (cycle.plan or {}).get("witness")
    return None if row is None else Witness(row["lsn"], bytes.fromhex(row["entry"]))


def _describe(file: ErasureFile, planned: PlannedFile) -> None:
    causes = dict(planned.causes)
    if file.state == FileState.NOT_SELECTED and not causes:
        causes = {str(Cause.TOO_YOUNG): "created after the cycle's cut-off"}
    file.size_bytes = planned.identity.size
    file.identity = identity_row(planned.identity)
    file.causes = [[str(cause), detail] for cause, detail in causes.items()]
    file.planned = {reason: list(pair) for reason, pair in planned.erased.items()}
    file.kept = {str(cause): list(pair) for cause, pair in planned.kept.items()}
    file.extinct = {name: list(pair) for name, pair in planned.extinct.items()} or None
    file.in_use = planned.in_use or None
    file.entry_count = planned.entry_count
    file.is_reserved, file.is_barren = planned.reserved, planned.barren


def _keep_entries(db: Session, cycle: ErasureCycle, planned: PlannedFile) -> None:
    kept = db.get(ErasureEntries, (cycle.id, planned.number))
    if kept is None:
        kept = ErasureEntries(cycle_id=cycle.id, number=planned.number, entries=planned.entries)
    kept.entries = planned.entries
    db.add(kept)


def _forget_vanished(db: Session, cycle: ErasureCycle, answer: PlanAnswer) -> None:
    """Files that were selected and are not there any more: JE's cleaner was faster."""
    there = {file.number for file in answer.files}
    query = select(ErasureFile).where(
        ErasureFile.cycle_id == cycle.id, ErasureFile.state == FileState.PENDING
    )
    for file in db.exec(query).all():
        if file.number not in there:
            file.state = FileState.ALREADY_DELETED
            db.add(file)
            count(db, cycle, files_already_deleted=1)


def identity_row(identity: Identity) -> dict[str, int]:
    """An identity as rows keep it."""
    return {
        "device": identity.device,
        "inode": identity.inode,
        "size": identity.size,
        "links": identity.links,
        "mtime_ns": identity.mtime_ns,
    }


def identity_of_row(file: ErasureFile) -> Identity:
    """The identity of a file as it was planned."""
    assert file.identity is not None, "a planned file has an identity"
    return Identity(**file.identity)


def log_signature(directory: Path) -> list[int]:
    """What tells that the log has moved on: how many files, the last one's number, size and time."""
    try:
        names = file_names(directory)
        last = os.stat(log_path(directory, file_number(names[-1])), follow_symlinks=False)
    except (OSError, LogRefused):
        return []
    return [len(names), int(names[-1][:8], 16), last.st_size, last.st_mtime_ns]
