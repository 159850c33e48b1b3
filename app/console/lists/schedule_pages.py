"""Schedules and windows: what comes by itself, when next, and what holds it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from starlette.responses import Response

from app.auth.scopes import Scope
from app.console.acting import Act, ActDep, show_again
from app.console.acts.fields import Field, body_of, fields_of
from app.console.lists.doings import SCHEDULES
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import ServiceError
from app.kit.http.routing import new_router
from app.kit.values import Text
from app.schedules.models import ScheduleCreate
from app.schedules.windows.models import WindowCreate
from app.verbs.table import SCHEDULED

NEXT_RUNS: Final = 5
PAGE_SIZE: Final = 100
FIRST: Final = frozenset({"name", "verb", "body", "cron", "store", "labels", "time_zone", "duration", "kind"})
router = new_router(include_in_schema=False)


def _schedule_fields() -> list[Field]:
    verbs = sorted(SCHEDULED)
    found = fields_of(ScheduleCreate, None, settled=frozenset(), first=FIRST)
    return [replace(each, form="select", options=verbs) if each.name == "verb" else each for each in found]


def _window_fields() -> list[Field]:
    return fields_of(WindowCreate, None, settled=frozenset(), first=FIRST)


@router.get(SCHEDULES)
async def get_schedules(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """All of both, the windows of one page."""
    schedules = await api.get("schedules", page_size=PAGE_SIZE, page_token=page_token or None)
    windows = await api.get("windows", page_size=PAGE_SIZE)
    values = {"schedules": schedules["items"], "windows": windows["items"]}
    values["more_windows"] = bool(windows["next_page_token"])
    return render(request, "schedules.html", signed_in, next_token=schedules["next_page_token"], **values)


@router.get(SCHEDULES + "/new")
def get_new_schedule(request: Request, signed_in: SignedInDep) -> Response:
    """The form of a schedule."""
    return _form(request, signed_in, "schedule", _schedule_fields())


@router.get("/console/windows/new")
def get_new_window(request: Request, signed_in: SignedInDep) -> Response:
    """The form of a window."""
    return _form(request, signed_in, "window", _window_fields())


def _form(
    request: Request,
    signed_in: SignedInDep,
    what: str,
    fields: Sequence[Field],
    act: Act | None = None,
    problem: ServiceError | None = None,
) -> Response:
    filled = {} if act is None else act.fields
    return render(request, "make.html", signed_in, problem=problem, what=what, fields=fields, filled=filled)


@router.post(SCHEDULES + "/new")
async def post_schedule(request: Request, signed_in: SignedInDep, act: ActDep) -> Response:
    """Make a schedule; it acts with the rights of the token that has signed in."""
    act.require(Scope.SCHEDULES_WRITE)
    return await _make(request, signed_in, act, "schedule", _schedule_fields())


@router.post("/console/windows/new")
async def post_window(request: Request, signed_in: SignedInDep, act: ActDep) -> Response:
    """Make a window."""
    act.require(Scope.WINDOWS_WRITE)
    return await _make(request, signed_in, act, "window", _window_fields())


async def _make(
    request: Request, signed_in: SignedInDep, act: Act, what: str, fields: Sequence[Field]
) -> Response:
    body: dict[str, Any] = body_of(fields, act.fields)
    try:
        await act.send("POST", f"{what}s", body=body)
    except ServiceError as error:
        return _form(request, signed_in, what, fields, act, error)
    return show_again(SCHEDULES)


@router.get(SCHEDULES + "/{schedule_id}")
async def get_schedule(
    request: Request, signed_in: SignedInDep, api: ApiDep, schedule_id: Annotated[str, Path(max_length=100)]
) -> Response:
    """One schedule, and when it comes next."""
    found = await api.get("schedules", schedule_id)
    runs = (
        None
        if found["cron"] is None
        else await api.find("schedules", schedule_id, "next-runs", count=NEXT_RUNS)
    )
    return render(request, "schedule.html", signed_in, schedule=found, runs=runs)
