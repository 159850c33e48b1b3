"""What requests about files share: their store's environment, a wait until files are quiet, its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, cast

from fastapi import Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.auth.access import clock_of, database_of, owner_of, settings_of
from app.auth.actions import Action
from app.auth.mutation import Begun, Conclude, find_replay, mutate_waiting
from app.auth.service import Caller
from app.db import Database
from app.errors import ServiceError
from app.jobs.api import watch_of
from app.kinds.parameter import as_timedelta
from app.parameters.service import effective_by_name
from app.protection.control import Environment, Quiet, environment_of, log_files
from app.protection.errors import LogFileMissing, some_names
from app.protection.files import name_of, number_of
from app.protection.reconciliation import bring_in_step
from app.protection.waiting import Silence, WaitingRoom, wait_quiet
from app.stores.api import read_row
from app.stores.rows import Store

ABORT_TIMEOUT = "je.erase.abortTimeout"


@dataclass(frozen=True, slots=True)
class Place:
    """A store, where its files lie, and which there are now."""

    store: Store
    environment: Environment
    numbers: Sequence[int]
    abort_timeout: timedelta

    def numbers_of(self, names: Sequence[str] | None) -> list[int]:
        """The numbers of named files; all that are there where none are named.

        Raises: LogFileMissing.
        """
        if names is None:
            return list(self.numbers)
        wanted = sorted({number_of(name) for name in names})
        there = set(self.numbers)
        missing = [name_of(number) for number in wanted if number not in there]
        if missing:
            raise LogFileMissing(f"not there: {some_names(missing)}")
        return wanted


def place_of(request: Request, caller: Caller, store_id: str) -> Place:
    """Look at the environment of a store; in a thread, since its directory is read.

    Raises: StoreForbidden, StoreNotFound, StoreKindWrong, EnvironmentNotHere, EnvironmentUnusable.
    """
    database = database_of(request)
    store = read_row(database, store_id, caller)
    environment = environment_of(store, settings_of(request))
    with database.reading() as db:
        timeout = as_timedelta(effective_by_name(db, ABORT_TIMEOUT, store.parameters).value)
    return Place(store, environment, log_files(environment), timeout)


def waiting_room_of(request: Request) -> WaitingRoom:
    """Where requests of this application wait for rounds to end."""
    return cast(WaitingRoom, request.app.state.waiting_room)


def _seconds_until(database: Database, until: datetime) -> float:
    with database.reading() as db:
        return max(0.0, (until - database.now(db)).total_seconds())


async def wait_until_quiet(
    request: Request, environment: Environment, protection_id: str, numbers: Sequence[int], *, until: datetime
) -> Silence:
    """Let no write to the files happen any more, or say at `until` that this could not be had.

    Raises: ServiceStopping; ServiceError: the control file cannot be used.
    """
    database = database_of(request)
    quiet = Quiet(database, environment, protection_id, numbers)
    timeout_s = await run_in_threadpool(_seconds_until, database, until)

    def is_stopping() -> bool:
        return watch_of(request).is_closed

    return await wait_quiet(quiet, timeout_s=timeout_s, clock=clock_of(request), is_stopping=is_stopping)


class Waiting(Protocol):
    """A request that waits: its effect, the wait, and the effect that the wait ends with."""

    def begin(self, db: Session) -> Begun:
        """The effect of the first transaction."""

    async def wait(self, begun: Begun) -> Conclude:
        """Wait, and return the effect of the second transaction; what it raises can be asked again."""


async def answer_after_wait(
    request: Request,
    caller: Caller,
    store_id: str,
    waiting: Callable[[Place], Waiting],
    *,
    action: Action,
    subject_type: str,
    body: object,
    failed: Callable[[Store], object] | None = None,
) -> Response:
    """Answer a request about files that waits, once for a key, and holding a seat while it waits.

    Args:
        waiting: makes the request's two effects from the files as they are now.
        action, subject_type: of the audit row.
        failed: runs in a thread after an answer that is an error.
    Raises: TooManyWaiters: before any effect; what `place_of`, `waiting` and `mutate_waiting` raise.
    """
    replay = await run_in_threadpool(find_replay, request, caller, body=body)
    if replay is not None:
        return replay
    place = await run_in_threadpool(place_of, request, caller, store_id)
    made = waiting(place)
    with waiting_room_of(request).seat():
        answer = await mutate_waiting(
            request,
            caller,
            begin=made.begin,
            wait=made.wait,
            owner=owner_of(request),
            action=action,
            subject_type=subject_type,
            store=store_id,
            body=body,
        )
    if failed is not None and answer.status_code >= 400:
        await run_in_threadpool(failed, place.store)
    return answer


def tell_control_file(request: Request, store: Store, protection_ids: Sequence[str]) -> None:
    """Let the control file of a store know that these protections have shrunk or are over."""
    try:
        environment = environment_of(store, settings_of(request))
    except ServiceError:  # not seen here any more: whoever sees it does it at its next beat
        return
    bring_in_step(database_of(request), environment, protection_ids, clock=clock_of(request))
