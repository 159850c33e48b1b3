"""Typed results and parameters of jobs: every kind of the service has its class, with all that it tells.

A class may know more than the service: the library is also used with others.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from lethe_client import Job, UnexpectedAnswer, params_of, result_of
from lethe_client.job_kinds import KINDS
from lethe_client.job_params import ChangelogPurgeParams
from lethe_client.job_results import ChangelogPurgeResult, KeptArchive, PurgeResult
from lethe_client.purge_results import Plan
from pydantic import BaseModel

from app.verbs.table import CARRIERS, VERBS, verb_of


def _models(act: str) -> tuple[type[BaseModel], type[BaseModel]]:
    """Of the service, for an act as the library names it."""
    kind, _, says = act.partition(" ")
    if kind == "PLAN":
        plan = verb_of(says or "PURGE", {"kind": "OUTGOING"}).plan
        assert plan is not None
        return plan.params, plan.result
    if kind in CARRIERS:
        return CARRIERS[kind].params[0], CARRIERS[kind].result[0]
    verb = verb_of(kind, {"kind": says or "OUTGOING"})
    return verb.params, verb.result


def _names(kind: type[Any]) -> set[str]:
    return {each.name for each in fields(kind)} - {"raw"}


def _fields(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_every_kind_of_the_service_has_a_class() -> None:
    kinds = {verb.kind for verb in VERBS} | set(CARRIERS)
    assert {act.split(" ")[0] for act in KINDS} == kinds


@pytest.mark.parametrize("act", [act for act in KINDS if not act.startswith("PLAN")])
def test_a_result_has_all_fields_that_the_service_tells(act: str) -> None:
    assert _fields(_models(act)[1]) - _names(KINDS[act].result) == set()


@pytest.mark.parametrize("act", KINDS)
def test_parameters_have_all_fields_that_the_service_tells(act: str) -> None:
    assert _fields(_models(act)[0]) - _names(KINDS[act].params) == set()


def _job(kind: str, params: dict[str, Any], result: Any) -> Job:
    return Job(id="job_1", kind=kind, state="SUCCEEDED", params=params, result=result)


def test_a_result_is_a_value_of_its_kind() -> None:
    told = {"removed": {"data": 3}, "units": 2, "archive": {"directory": "/a", "rows": 3}, "counts": "EXACT"}
    found = result_of(_job("PURGE", {"kind": "OUTGOING"}, told))
    assert isinstance(found, PurgeResult)
    assert (found.removed, found.units, found.cutoff) == ({"data": 3}, 2, None)
    assert isinstance(found.archive, KeptArchive)
    assert found.archive.rows == 3
    trimmed = _job("PURGE", {"kind": "CHANGELOG"}, {"kind": "CHANGELOG", "rids": [{"rid": 1}]})
    assert isinstance(result_of(trimmed), ChangelogPurgeResult)
    assert isinstance(params_of(trimmed), ChangelogPurgeParams)
    assert isinstance(result_of(_job("PLAN", {"kind": "OUTGOING"}, {"plan_id": "job_2"})), Plan)
    planned = _job("PLAN", {"kind": "CHANGELOG"}, {"plan_id": "job_2"})
    assert isinstance(params_of(planned), ChangelogPurgeParams)


def test_what_is_not_known_or_does_not_fit_is_left_to_the_caller() -> None:
    assert result_of(_job("PURGE", {"kind": "OUTGOING"}, None)) is None
    assert result_of(_job("OF_A_LATER_VERSION", {}, {"x": 1})) is None
    with pytest.raises(UnexpectedAnswer):
        result_of(_job("PURGE", {"kind": "OUTGOING"}, {"units": "many"}))
