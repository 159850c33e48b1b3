"""The task of a plan: what a cycle would do now, and what it would not and why. Nothing is written."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from app.erase.cycle.attempt import Workshop
from app.erase.cycle.planning import backups_of, plan_call, plan_facts, reach_of
from app.erase.models import (
    AmountRead,
    CauseRead,
    CycleParams,
    ErasurePlanRead,
    PlannedFileRead,
    amounts,
)
from app.erase.place import store_of
from app.erase.queries import instant_of_ms, plan_facts_read
from app.erase.refusals import failure, in_use
from app.erase.reviewed import is_deleted, keep_reviewed
from app.extinction.status import extinctions_of, note_log_extinctions
from app.jobs.engines.hands_call import ask_hands
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import require_awake
from app.protection.service import protected_files
from app.stores.errors import StoreUrlRefused
from app.stores.limits import judge
from app.stores.models import Reach
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.calls.calls import (
    PlanAnswer,
    PlanCall,
    PlannedFile,
)
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.formats.je.log import file_name, file_number

RESERVED: Final = "RESERVED"


def run_erasure_plan(context: JobContext, *, workshop: Workshop) -> Mapping[str, Any]:
    """Plan, and return the plan that clients see.

    Raises: JobSignal.
    """
    store = store_of(context)
    require_awake(context, store)
    now = context.clock.now()
    params = CycleParams.model_validate(context.job.params)
    directory = _directory(context, store)
    cutoff = now - params.min_file_age
    call = plan_call(
        store,
        directory,
        kinds=[kind.value for kind in params.kinds],
        cutoff=cutoff,
        now=now,
        protected=_protected(context, store, directory, now=now),
        backups=backups_of(context, store),
        extinctions=context.read(lambda db: extinctions_of(db, store)).terms,
    )
    answer = _ask(context, call, workshop=workshop, directory=directory)
    context.write(lambda db: note_log_extinctions(db, store.id, answer.log_extinctions, now=now))
    keep_reviewed(context, answer, deletes=store.delete_reserved_files)
    expires_at = now + timedelta(seconds=context.settings.plan_valid_s)
    shown = _read(
        answer, store=store, params=params, cutoff=cutoff, plan_id=context.job.id, expires_at=expires_at
    )
    return shown.model_dump(mode="json")


def _directory(context: JobContext, store: Store) -> Path:
    try:
        return environment_directory(store, context.settings)
    except StoreUrlRefused as error:
        raise JobFailed(error.code, error.detail) from error


def _protected(context: JobContext, store: Store, directory: Path, *, now: datetime) -> Mapping[int, str]:
    try:
        numbers = [file_number(name) for name in file_names(directory)]
    except LogRefused as error:
        raise JobFailed(error.code, str(error)) from error
    held = context.read(lambda db: protected_files(db, store.id, numbers, now=now))
    return {number: f"{row.kind} {row.name} ({row.id})" for number, row in held.items()}


def _ask(context: JobContext, call: PlanCall, *, workshop: Workshop, directory: Path) -> PlanAnswer:
    hands, _engine = workshop.take_hands(context, context.job.params.get("engine"), directory=directory)
    answer = ask_hands(context, hands, lambda taken: taken.plan(call))
    if answer.refusal is None:
        return answer
    waiting = in_use(answer.refusal)
    if waiting is None:
        raise failure(answer.refusal)
    look_s = context.settings.erasure_environment_look_s
    raise JobWaiting([waiting], not_before=context.clock.now() + timedelta(seconds=look_s))


def _read(
    answer: PlanAnswer,
    *,
    store: Store,
    params: CycleParams,
    cutoff: datetime,
    plan_id: str,
    expires_at: datetime,
) -> ErasurePlanRead:
    files = [_file(each, deletes=store.delete_reserved_files) for each in answer.files]
    return ErasurePlanRead(
        plan_id=plan_id,
        store=store.id,
        mode=answer.mode.value,
        kinds=params.kinds,
        cutoff=cutoff,
        files=files,
        erase=_sum(amount for file in files for amount in file.erase),
        keep=_sum(amount for file in files for amount in file.keep),
        limits=judge(store, _reach(answer.files)),
        facts=plan_facts_read(plan_facts(answer)),
        expires_at=expires_at,
    )


def _reach(files: Sequence[PlannedFile]) -> Reach:
    """What a cycle would erase by this plan."""
    return reach_of(
        (pair for file in files for pair in file.erased.values()),
        log_bytes=sum(file.identity.size for file in files),
    )


def _file(planned: PlannedFile, *, deletes: bool) -> PlannedFileRead:
    keep = amounts({str(cause): pair for cause, pair in planned.kept.items()})
    if planned.reserved and planned.barren and not deletes:
        keep.append(AmountRead(code=RESERVED, entries=0, bytes=planned.identity.size))
    return PlannedFileRead(
        file=file_name(planned.number),
        size_bytes=planned.identity.size,
        created_at=instant_of_ms(planned.created_ms),
        causes=[CauseRead(cause=str(cause), detail=detail) for cause, detail in planned.causes.items()],
        erase=amounts(planned.erased),
        keep=keep,
        reserved=planned.reserved,
        deleted=is_deleted(planned, deletes=deletes),
    )


def _sum(shown: Iterable[AmountRead]) -> list[AmountRead]:
    sums: dict[str, AmountRead] = {}
    for amount in shown:
        known = sums.setdefault(amount.code, AmountRead(code=amount.code, entries=0, bytes=0))
        known.entries += amount.entries
        known.bytes += amount.bytes
    return list(sums.values())
