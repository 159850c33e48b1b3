"""Page 3: the list of jobs, and one job with what it waits for, its progress, its events and its buttons."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import Query, Request
from starlette.responses import Response

from app.auth.scopes import Scope
from app.console.acting import ActDep, show_again
from app.console.acts.choices import StoreAct
from app.console.calls import Api
from app.console.rendering import render
from app.console.results.table import ODD, tell
from app.console.sessions import ApiDep, SignedInDep
from app.errors import NotFound, Unprocessable
from app.jobs.api import STARTING
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.states import TERMINAL, JobState
from app.kit.http.routing import new_router
from app.kit.values import Text
from app.stores.models import StoreKind
from app.verbs.table import CARRIERS, verb_of

PAGE: Final = 50
EVENTS_SHOWN: Final = 50
CHILDREN_SHOWN: Final = 50
CHAIN_MAX: Final = 5
TOLD: Final = ["state", "warning", "throttle"]
"""Progress is a bar; a list of it would hide the rest."""
VERBS: Final = ("pause", "resume", "abort", "retry")
BOUNDS: Final = ("rows_per_s", "bytes_per_s", "intensity")
GROUPED: Final = re.compile(r"[1-9]\d{0,2}(,\d{3})+")
"""To some a thousand, to others one."""
WAS: Final = "was."
"""Before the name of a bound: what its field held when the page was made."""
AGAIN: Final = frozenset({JobState.FAILED, JobState.ABORTED, JobState.ABANDONED})
PAUSABLE: Final = frozenset({JobState.QUEUED, JobState.WAITING, JobState.RUNNING})
router = new_router(include_in_schema=False)


@router.get("/console/jobs")
async def get_jobs(
    request: Request,
    signed_in: SignedInDep,
    api: ApiDep,
    state: Annotated[Text, Query(max_length=20)] = "",
    kind: Annotated[Text, Query(max_length=40)] = "",
    store: Annotated[Text, Query(max_length=63)] = "",
    parent: Annotated[Text, Query(max_length=40)] = "",
    page_token: Annotated[Text, Query(max_length=2_000)] = "",
) -> Response:
    """Jobs, newest first, narrowed by a form that is a plain GET."""
    asked = {"state": state, "kind": kind.upper().strip(), "store": store.strip(), "parent": parent}
    given = {name: value for name, value in asked.items() if value}
    more = {"page_token": page_token} if page_token else {}
    found = await api.get("jobs", view="summary", page_size=PAGE, **given, **more)
    token = found["next_page_token"]
    older = "/console/jobs?" + urlencode({**given, "page_token": token}) if token else None
    return render(
        request, "jobs.html", signed_in, jobs=found["items"], asked=asked, older=older, states=list(JobState)
    )


@router.get("/console/jobs/{job_id}")
async def get_job(request: Request, signed_in: SignedInDep, api: ApiDep, job_id: str) -> Response:
    """One job, live."""
    job = await api.get("jobs", job_id)
    events = await api.get("jobs", job_id, "events", last=EVENTS_SHOWN, type=TOLD)
    children = await api.get("jobs", parent=job_id, view="summary", page_size=CHILDREN_SHOWN)
    return render(
        request,
        "job.html",
        signed_in,
        job=job,
        events=list(reversed(events["items"])),
        children=children,
        told=tell(job),
        plan=_plan_page(job),
        chain=await _chain(api, job),
        can=_can(request, job),
        kept=await _bounds(request, api, job),
        bounds=BOUNDS,
    )


def _plan_page(job: Mapping[str, Any]) -> str | None:
    """Where a plan is read as people read it; None: it is none, or of a kind that has no such page."""
    if job["kind"] != JOB_PLAN or job["store"] is None or job["state"] != JobState.SUCCEEDED:
        return None
    try:
        kind, params = CARRIERS[JOB_PLAN].carried(job["params"])
        verb = verb_of(kind, params)
    except ODD:
        return None
    act = StoreAct(verb, params["kind"] if verb.acts else None)
    return f"/console/stores/{job['store']}/acts/{act.key}/plans/{job['id']}"


async def _chain(api: Api, job: Mapping[str, Any]) -> list[Any]:
    """The jobs that this one is a retry of, the nearest first; a few."""
    found: list[Any] = []
    earlier = job["retried_from"]
    while earlier is not None and len(found) < CHAIN_MAX:
        former = await api.find("jobs", earlier)
        if former is None:
            break
        found.append(former)
        earlier = former["retried_from"]
    return found


def _can(request: Request, job: Mapping[str, Any]) -> dict[str, list[str]]:
    """What may be done with a job as it stands, and the scopes that each needs."""
    state = JobState(job["state"])
    control = [str(Scope.JOBS_CONTROL)]
    again = control + sorted(_scopes_of(request, job))
    found = {}
    if state in PAUSABLE:
        found["pause"] = control
    if state in (JobState.PAUSED, JobState.PAUSING):
        found["resume"] = again
    if state not in TERMINAL and state != JobState.ABORTING:
        found["abort"] = control
    if state in AGAIN:
        found["retry"] = again
    return found


def _scopes_of(request: Request, job: Mapping[str, Any]) -> frozenset[str]:
    """What the request needed that made a job; all, where this version knows its kind no more."""
    try:
        return frozenset(map(str, request.app.state.scopes_of(job["kind"], job["params"])))
    except ODD:
        return frozenset(map(str, STARTING))


async def _bounds(request: Request, api: Api, job: Mapping[str, Any]) -> frozenset[str]:
    """The bounds of a throttle that it keeps; none, where this version knows its kind no more."""
    if JobState(job["state"]) in TERMINAL:
        return frozenset()
    store = None if job["store"] is None else await api.find("stores", job["store"])
    if job["store"] is not None and store is None:
        return frozenset()
    kind = None if store is None else StoreKind(store["kind"])
    try:
        return frozenset(request.app.state.bounds_of(job["kind"], job["params"], kind))
    except ODD:
        return frozenset()


@router.post("/console/jobs/{job_id}/throttle")
async def post_throttle(act: ActDep, job_id: str) -> Response:
    """Replace the bounds of a job; an empty field takes its bound away.

    A field that is as the page showed it leaves its bound as it is by now: somebody else may have set it.
    """
    asked = {name: _bound(act, name) for name in BOUNDS}
    untouched = [name for name in BOUNDS if act.fields.get(WAS + name) == act.fields.get(name, "")]
    if untouched:
        now = (await act.api.get("jobs", job_id))["throttle"]["requested"] or {}
        asked |= {name: now.get(name) for name in untouched}
    await act.send("PATCH", "jobs", job_id, "throttle", body=asked)
    return show_again(f"/console/jobs/{job_id}")


def _bound(act: ActDep, name: str) -> float | None:
    given = act.fields.get(name, "").strip()
    if GROUPED.fullmatch(given):
        detail = f"{name}: {given} may be {given.replace(',', '')} or {given.replace(',', '.')}; write it so"
        raise Unprocessable(detail, code="INVALID_REQUEST")
    try:
        found = float(given.replace(",", ".")) if given else None
    except ValueError:
        found = math.nan
    if found is not None and not math.isfinite(found):
        raise Unprocessable(f"{name}: a number, or nothing", code="INVALID_REQUEST")
    return found


@router.post("/console/jobs/{job_id}/{verb}")
async def post_verb(act: ActDep, job_id: str, verb: str) -> Response:
    """Pause, resume, abort or retry a job."""
    if verb not in VERBS:
        raise NotFound("there is no such button")
    found = await act.send("POST", "jobs", f"{job_id}:{verb}", body={"reason": act.reason})
    return show_again(f"/console/jobs/{found['id']}")
