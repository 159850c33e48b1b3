"""Every job that a service answers is held against the models of its kind: no field too many or too few."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
from pydantic import BaseModel

from app.jobs.running.recovery import RECOVERED_FOREIGN
from app.verbs.table import CARRIERS, verb_of

FIELDS_OF_A_JOB: Final = {"id", "kind", "params", "reason", "result", "requested_by", "throttle"}


def jobs_in(body: Any) -> Iterator[dict[str, Any]]:
    """The jobs in an answer: itself, or the items of a page."""
    found = body.get("items") if isinstance(body, dict) and isinstance(body.get("items"), list) else [body]
    yield from (each for each in found if isinstance(each, dict) and each.keys() >= FIELDS_OF_A_JOB)


def models_of(kind: str, params: dict[str, Any]) -> tuple[type[BaseModel], type[BaseModel]]:
    """The models of a job's parameters and of its result."""
    if kind == "PLAN":
        plan = verb_of(*CARRIERS[kind].carried(params)).plan
        assert plan is not None
        return plan.params, plan.result
    if kind in CARRIERS:
        return CARRIERS[kind].params[0], CARRIERS[kind].result[0]
    verb = verb_of(kind, params)
    return verb.params, verb.result


def check_job(job: dict[str, Any]) -> None:
    """Raise ValidationError unless parameters and result are exactly those of the job's kind."""
    params, result = models_of(job["kind"], job["params"])
    params.model_validate_json(json.dumps(job["params"]), strict=True, extra="forbid")
    if job["result"] is not None:
        result.model_validate_json(json.dumps(job["result"]), strict=True, extra="forbid")


def check_answer(response: httpx.Response) -> None:
    """A hook of httpx: look at the jobs of a JSON answer."""
    if response.is_success and response.headers.get("content-type", "") == "application/json":
        response.read()
        for job in jobs_in(response.json() if response.content else None):
            # Of a job that another metadata ran, `recover` knows the id alone.
            if job["reason"] != RECOVERED_FOREIGN:
                check_job(job)
