"""Purges that recur where a store's `start.purge.*.job` is on.

Neither the target's own parameters nor a value for all stores switch one on; a purge whose own switch says no
is not submitted, whatever switches on all.
"""

from datetime import datetime
from functools import partial

from sqlmodel import Session

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.parameters.service import GlobalValues, effective_among, global_values
from app.purge.models import PurgeKind, PurgeTickRead
from app.purge.purging import unseen
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import submit_looked
from app.sweeps.recurring import Ticked, submit_recurring
from app.sweeps.tick import Recurring, Schedule, shown_tick, submit_due

ALL_JOBS = "start.purge.job"
OUTGOING_JOB = "start.purge.outgoing.job"
INCOMING_JOB = "start.purge.incoming.job"
# The purge of gaps is part of the outgoing job since 3.9.
SWITCHES = {
    PurgeKind.OUTGOING: OUTGOING_JOB,
    PurgeKind.INCOMING: INCOMING_JOB,
    PurgeKind.DATA_GAP: OUTGOING_JOB,
}
CRONS = {
    PurgeKind.OUTGOING: "job.purge.outgoing.cron",
    PurgeKind.INCOMING: "job.purge.incoming.cron",
    PurgeKind.DATA_GAP: "job.purge.datagaps.cron",
}
EVERY_FOUR_HOURS = "0 0 */4 * * *"
"""What 3.x does; a cron that somebody has set goes over it."""


def wanted_purges(values: GlobalValues, store: Store) -> list[Schedule]:
    """What a store's own parameters ask for."""
    if store.kind != StoreKind.SYMMETRICDS:
        return []
    all_on = store.parameters.get(ALL_JOBS) is True
    kinds = [kind for kind in SWITCHES if store.parameters.get(SWITCHES[kind], all_on) is True]
    return [
        Schedule(kind.value, cron=_cron(values, store, kind, all_on=all_on), time_zone=store.time_zone)
        for kind in kinds
    ]


def _cron(values: GlobalValues, store: Store, kind: PurgeKind, *, all_on: bool) -> str:
    is_set = CRONS[kind] in store.parameters or CRONS[kind] in values
    if not (is_set or all_on):
        return EVERY_FOUR_HOURS
    return str(effective_among(values, CRONS[kind], store.parameters))


def _submit(db: Session, settings: Settings, store: Store, schedule: Schedule, now: datetime) -> Ticked:
    kind = PurgeKind(schedule.kind)
    switch = ALL_JOBS if store.parameters.get(ALL_JOBS) is True else SWITCHES[kind]
    fields, reason = {"kind": kind.value}, f"{switch} is on"
    return submit_recurring(
        db,
        store,
        scope=Scope.PURGES_WRITE,
        submit=lambda caller: submit_looked(
            db, store, unseen(db, store, fields), caller=caller, reason=reason, settings=settings, now=now
        ),
        action=Action.PURGE_CREATE,
        detail=lambda job: {"kind": kind.value, "reason": job.reason},
        now=now,
    )


PURGES = Recurring(
    store_kind=StoreKind.SYMMETRICDS,
    kinds=frozenset(kind.value for kind in SWITCHES),
    wanted=wanted_purges,
    submit=_submit,
)
tick_once = partial(submit_due, PURGES)


def list_ticks(db: Session, store: Store, *, now: datetime) -> list[PurgeTickRead]:
    """The purges of a store that recur; one just switched on has its first time computed."""
    return [
        PurgeTickRead.model_validate(shown_tick(db, PURGES, store, item, now=now))
        for item in wanted_purges(global_values(db), store)
    ]
