"""A request that waits for a precondition: looks, and rests between them without thread, connection or lock.

Rules:
- looks have few threads, few for each store, and a deadline (turns.py): nodes that hang hold up no other
  request, nor this one for ever;
- what has to be read anew from all nodes is read seldom: their lists of events are long;
- who has gone is not looked for any more: nothing of a wait is left in the service or at a node;
- the answer is what the last look told, never what was hoped for meanwhile.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Final

from fastapi import Request

from app.auth.access import clock_of, database_of, settings_of
from app.auth.service import Caller
from app.events.nodes import ASKING_MAX_S
from app.events.preconditions.models import PreconditionRead, PreconditionRequest
from app.events.preconditions.service import AGAIN_MAX_S, Asked, ask_again, ask_first
from app.events.preconditions.turns import Looks
from app.jobs.api import watch_of
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.events.waiting import pause_s
from spark.targets.errors import TargetUnreachable

OWN_MAX_S: Final = 15.0
"""For the store's own node and for a turn, besides what the other nodes have."""
LOOK_AT_ALL_PAUSE_S: Final = 5.0
GONE_EVERY_S: Final = 1.0
"""So often a resting request asks whether its client is still there, and whether the service stops."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """One request."""

    http: Request
    store: Store
    request: PreconditionRequest
    caller: Caller
    began_s: float
    deadline_s: float


async def answer(
    http: Request, store: Store, request: PreconditionRequest, *, caller: Caller, wait_s: int
) -> PreconditionRead:
    """The precondition as it is now, or as soon as it is met, `wait_s` at most.

    Raises: UnknownNode, InvalidRequest, TooMany; ServiceError: the store's own node cannot be asked.
    """
    now_s = clock_of(http).boottime_s()
    wait = _Wait(http, store, request, caller, now_s, now_s + wait_s)
    if wait_s == 0:
        return (await _first(wait, request, max_s=ASKING_MAX_S)).answer
    with watch_of(http).place():
        asked = await _first(wait, request, max_s=AGAIN_MAX_S)
        while not asked.answer.met and (left_s := wait.deadline_s - clock_of(http).boottime_s()) > 0:
            if not await _rested(wait, min(left_s, _pause_s(wait, asked))):
                break
            asked = await _again(wait, asked)
        return asked.answer


def _pause_s(wait: _Wait, asked: Asked) -> float:
    waited_s = clock_of(wait.http).boottime_s() - wait.began_s
    return max(pause_s(waited_s), LOOK_AT_ALL_PAUSE_S if asked.has_to_ask_all else 0.0)


async def _rested(wait: _Wait, pause_s: float) -> bool:
    """Rest; False: the client has gone, or the service stops."""
    clock, watch = clock_of(wait.http), watch_of(wait.http)
    end_s = clock.boottime_s() + pause_s
    while not watch.is_closed and not await wait.http.is_disconnected():
        left_s = end_s - clock.boottime_s()
        if left_s <= 0:
            return True
        await asyncio.sleep(min(left_s, GONE_EVERY_S))
    return False


async def _first(wait: _Wait, request: PreconditionRequest, *, max_s: float) -> Asked:
    """Look at all.

    Raises: ServiceError: the store's own node did not answer, or not in time.
    """
    database, settings = database_of(wait.http), settings_of(wait.http)
    look = partial(ask_first, database, settings, wait.store, request, caller=wait.caller, max_s=max_s)
    try:
        return await _looks(wait.http).look(wait.store.id, look, max_s=max_s + OWN_MAX_S)
    except TargetUnreachable as error:
        raise service_error(error) from error


async def _again(wait: _Wait, asked: Asked) -> Asked:
    """Look at those whose word counts, or at all again where somebody was not there the first time.

    Where that is not done in time what the last look told stands, and is told.
    """
    if asked.has_to_ask_all:
        request = wait.request.model_copy(update={"awaited": asked.answer.awaited})
        return await _first(wait, request, max_s=AGAIN_MAX_S)
    look = partial(ask_again, database_of(wait.http), settings_of(wait.http), asked)
    try:
        return await _looks(wait.http).look(wait.store.id, look, max_s=AGAIN_MAX_S + OWN_MAX_S)
    except TargetUnreachable:
        return asked


def _looks(http: Request) -> Looks:
    """The looks of this application; made in its own loop, when the first one asks."""
    state = http.app.state
    if getattr(state, "precondition_looks", None) is None:
        state.precondition_looks = Looks()
    found: Looks = state.precondition_looks
    return found
