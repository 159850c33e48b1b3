"""A request to discard records, from its checks to its commit: at a JE store, and at a replica."""

import base64
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from fastapi import Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import clock_of, database_of, settings_of, tell_changed
from app.auth.actions import Action
from app.auth.mutation import Answer, Begun, Conclude, mutate
from app.auth.service import Caller
from app.errors import ServiceError
from app.extinction.models import ExtinctionRequest
from app.extinction.queries import get_extinction
from app.extinction.records import extinction_of, insert_row, note_logged, submit_job
from app.extinction.reviewed import ReviewedExtinction, find_plan, params_beside
from app.extinction.rows import HOLDING, ExtinctionState
from app.extinction.service import (
    check_target,
    commit_at_target,
    is_at_target,
    read_request,
    refuse_suspended,
)
from app.jobs.api import accepted
from app.jobs.queries import get_job
from app.kit.ids import new_id
from app.replication.replica.replicas import note_own_max
from app.stores.rows import Store
from app.stores.service import get_store, lock_unchanged
from spark.formats.extinction import Extinction

COMMIT_MAX: Final = timedelta(seconds=30)
"""So long another instance takes a request for alive."""


def check_request(
    request: Request, store: Store, body: ExtinctionRequest, *, is_plan: bool = False
) -> ReviewedExtinction | None:
    """The plan that a request names; returns where the request may be done, as far as can be seen now.

    Raises: ServiceError.
    """
    extinction, now = read_request(store, body, new_id("ext")), clock_of(request).now()
    refuse_suspended(store, now=now)
    reviewed = None
    if body.plan_id is not None and not is_plan:
        with database_of(request).reading() as db:
            reviewed = find_plan(
                db, store, extinction, plan_id=body.plan_id, max_drift=body.max_drift, now=now
            )
    check_target(
        database_of(request),
        settings_of(request),
        store,
        body.databases,
        discards=None if is_plan else extinction,
        reviewed=reviewed,
    )
    return reviewed


def _audit(body: ExtinctionRequest) -> dict[str, object]:
    fields = body.model_dump(mode="json", exclude={"start_key", "end_key", "confirm_keys_never_reused"})
    keys = {name: getattr(body, name) for name in ("start_key", "end_key")}
    return fields | {
        name: None if key is None else base64.b64encode(key).decode() for name, key in keys.items()
    }


def discard_in_environment(
    request: Request, caller: Caller, store: Store, body: ExtinctionRequest
) -> Response:
    """A JE store has no target to commit at: row, job and key share one transaction."""
    settings, now = settings_of(request), clock_of(request).now()
    reviewed = check_request(request, store, body)

    def effect(db: Session) -> Answer:
        current = get_store(db, store.id, lock=True)
        extinction = read_request(current, body, new_id("ext"))
        refuse_suspended(current, now=now)
        row = insert_row(
            db,
            store.id,
            extinction,
            state=ExtinctionState.RESERVED,
            now=now,
            reason=body.reason,
            requested_by=caller.name,
        )
        note_logged(db, row, now=now)
        job = submit_job(
            db,
            current,
            row,
            settings=settings,
            now=now,
            requested_by=caller.name,
            token_id=caller.token_id,
            planned=params_beside(reviewed),
        )
        return replace(accepted(job), subject_id=row.id, audit=_audit(body))

    response = mutate(
        request,
        caller,
        effect,
        action=Action.EXTINCTION_CREATE,
        subject=("extinction", ""),
        store=store.id,
        body=body,
    )
    tell_changed(request, store.id)
    return response


class Discarding:
    """An extinction of a REPLICA: reserved, committed at the target, then LOGGED with its job."""

    def __init__(self, request: Request, caller: Caller, store: Store, body: ExtinctionRequest) -> None:
        self._request = request
        self._caller = caller
        self._store = store
        self._body = body
        self._refusal: ServiceError | None = None
        self._reviewed: ReviewedExtinction | None = None

    def look(self) -> None:
        """Find out what speaks against it. What `begin` refuses, a request that is taken up may have done."""
        try:
            self._reviewed = check_request(self._request, self._store, self._body)
        except ServiceError as error:
            self._refusal = error

    def begin(self, db: Session) -> Begun:
        """Reserve: from now on its keys may be extinct.

        Raises: ServiceError: what `look` has found.
        """
        if self._refusal is not None:
            raise self._refusal
        now = clock_of(self._request).now()
        store = lock_unchanged(db, self._store, lambda store: (store.kind, store.url))
        refuse_suspended(store, now=now)
        extinction = read_request(store, self._body, new_id("ext"))
        row = insert_row(
            db,
            store.id,
            extinction,
            state=ExtinctionState.RESERVED,
            now=now,
            reason=self._body.reason,
            requested_by=self._caller.name,
        )
        return Begun(subject_id=row.id, until=now + COMMIT_MAX, audit=_audit(self._body))

    async def wait(self, begun: Begun) -> Conclude:
        """Commit at the target."""
        csn = await run_in_threadpool(self._commit, begun.subject_id)
        return partial(self._conclude, begun.subject_id, csn)

    def _commit(self, extinction_id: str) -> str:
        request = self._request
        extinction = self._reserved(extinction_id)
        database, settings = database_of(request), settings_of(request)
        if self._refusal is not None and not is_at_target(database, settings, self._store, extinction_id):
            raise self._refusal  # it holds for what was reserved, and then cut off
        now = clock_of(request).now()
        reviewed = self._reviewed
        return commit_at_target(database, settings, self._store, extinction, now=now, reviewed=reviewed)

    def _reserved(self, extinction_id: str) -> Extinction:
        with database_of(self._request).reading() as db:
            return extinction_of(get_extinction(db, self._store.id, extinction_id))

    def _conclude(self, extinction_id: str, csn: str, db: Session) -> Answer:
        """LOGGED, and its job; whoever settles may have been here before."""
        now = clock_of(self._request).now()
        store = get_store(db, self._store.id, lock=True)
        row = get_extinction(db, store.id, extinction_id)
        db.refresh(row)
        note_logged(db, row, now=now, csn=csn)
        note_own_max(db, store.id, csn, now=now)
        assert row.state in HOLDING, "it is committed at the target"
        if row.job_id is not None:
            return replace(accepted(get_job(db, row.job_id)), subject_id=row.id)
        job = submit_job(
            db,
            store,
            row,
            settings=settings_of(self._request),
            now=now,
            requested_by=self._caller.name,
            token_id=self._caller.token_id,
            planned=params_beside(self._reviewed),
        )
        return replace(accepted(job), subject_id=row.id)
