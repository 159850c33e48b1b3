"""The page of a plan: it waits until the plan is made, shows it, and runs exactly this one."""

import json
import math
from typing import Annotated, Any, Final

from fastapi import Path, Request
from starlette.responses import Response

from app.console.acting import ActDep, show_again
from app.console.acts.given import Given, read_given, text_of
from app.console.acts.pages import FORM, Place, PlaceDep, check_named, job_url
from app.console.acts.reading import losses, rest_of, standing
from app.console.calls import Api
from app.console.rendering import render
from app.console.sessions import ApiDep, SignedInDep
from app.errors import NotFound, ServiceError, Unprocessable
from app.kit.http.routing import new_router

PAGE: Final = FORM + "/plans/{plan_id}"
LOOK_AGAIN_S: Final = 1
OUTDATED_STATUS: Final = 412
OUTDATED: Final = frozenset({"PLAN_NOT_USABLE", "PLAN_DIFFERS", "PLAN_NO_LONGER_HOLDS"})
BY_THE_PLAN: Final = frozenset(
    {"retention_minutes", "cutoff", "older_than", "max_entries", "period", "min_file_age"}
    | {"interval", "confirmed_before", "gone_rids", "channel_retention_minutes"}
)
"""What a plan has settled: the request that runs it names the plan instead."""
PlanId = Annotated[str, Path(pattern=r"^job_[0-9a-z]{26}$")]
router = new_router(include_in_schema=False)


@router.get(PAGE)
async def get_plan(
    request: Request, signed_in: SignedInDep, api: ApiDep, place: PlaceDep, plan_id: PlanId, given: Given = ""
) -> Response:
    """The plan; while it is made the browser looks again by itself."""
    body = read_given(given) if given else None
    job = await _plan_job(api, place, plan_id)
    headers = {"Refresh": str(LOOK_AGAIN_S)} if _waits(job) else {}
    return render(request, "plan.html", signed_in, headers=headers, **_values(place, job, body))


async def _plan_job(api: Api, place: Place, plan_id: str) -> Any:
    job = await api.get("jobs", plan_id)
    if (job["kind"], job["store"]) != ("PLAN", place.store["id"]):
        raise NotFound("this is no plan of the store")
    return job


def _waits(job: Any) -> bool:
    return job["finished_at"] is None


def _values(
    place: Place, job: Any, body: dict[str, Any] | None, problem: ServiceError | None = None
) -> dict[str, Any]:
    """What the template shows; `body` is None where the request is not known. An empty one is known."""
    plan = job["result"] if job["state"] == "SUCCEEDED" else None
    now = place.request.app.state.clock.now()
    is_refused = problem is not None and _is_outdated(problem)
    return {
        "place": place,
        "job": job,
        "waits": _waits(job),
        "plan": plan,
        "given": text_of(body or {}),
        "body": body,
        "body_text": json.dumps(body or {}, ensure_ascii=False),
        "losses": [] if plan is None else losses(plan),
        "rest": {} if plan is None else rest_of(plan),
        "standing": None if plan is None else standing(plan, now=now),
        "problem": problem,
        "is_refused": is_refused,
    }


def _is_outdated(problem: ServiceError) -> bool:
    return problem.status == OUTDATED_STATUS or problem.code in OUTDATED


@router.post(PAGE + ":run")
async def post_run(
    request: Request, signed_in: SignedInDep, place: PlaceDep, plan_id: PlanId, act: ActDep
) -> Response:
    """Run exactly this plan; one that holds no more says so, and offers a new one."""
    act.require(place.act.verb.scope)
    told = act.fields.get("given")
    body = read_given(told) if told else None
    try:
        check_named(place.store["id"], act)
        found = await act.send(
            "POST", *place.path, body=_run_body(place, body, plan_id, act.reason, act.fields)
        )
    except ServiceError as error:
        job = await _plan_job(act.api, place, plan_id)
        values = _values(place, job, body, error)
        return render(request, "plan.html", signed_in, **values)
    return show_again(job_url(found))


def _run_body(
    place: Place, body: dict[str, Any] | None, plan_id: str, reason: str | None, fields: Any
) -> dict[str, Any]:
    if body is None:
        raise Unprocessable(
            "the request of this plan is not known here; plan again", code="CONSOLE_PLAN_FIRST"
        )
    kept = {name: value for name, value in body.items() if name not in BY_THE_PLAN}
    named = place.act.fixed | kept | {"plan_id": plan_id, "reason": reason}
    drift = fields.get("max_drift", "").strip()
    return named | ({"max_drift": _number(drift)} if drift else {})


def _number(text: str) -> int | float | str:
    try:
        found = int(text) if text.isdigit() else float(text)
    except ValueError:
        return text
    return found if isinstance(found, int) or math.isfinite(found) else text
