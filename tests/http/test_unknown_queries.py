"""A query parameter that an operation does not read is refused, by every operation alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ROOT, ServiceProcess
from tests.http.test_bad_tokens import METHODS, _fill

DOCUMENT: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: nothing is read."""
    return sqlite_service


def _operations() -> Iterator[tuple[str, str, set[str]]]:
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                described = item[method].get("parameters", ())
                yield method, path, {each["name"] for each in described if each["in"] == "query"}


def test_every_operation_refuses_a_name_that_it_does_not_read(http: httpx.Client) -> None:
    wrong = []
    for method, path, names in _operations():
        answer = http.request(method, _fill(path), params={"stat": "RUNNING"}, json=None)
        if answer.status_code != 422:
            wrong.append((method, path, answer.status_code))
            continue
        told = problem(answer, 422, "INVALID_REQUEST")
        assert told["errors"] == [{"pointer": "query:stat", "detail": "there is no such parameter"}]
        if set(told["allowed"]) != names:
            wrong.append((method, path, told["allowed"]))
    assert wrong == []


def test_typo_in_a_filter_lists_nothing(http: httpx.Client) -> None:
    # It listed every job.
    told = problem(http.get("/v1/jobs?stat=RUNNING"), 422, "INVALID_REQUEST")
    assert "this takes created_after, ended_after, kind" in told["detail"]
    assert http.head("/v1/jobs?stat=RUNNING").status_code == 422
    assert http.get("/v1/jobs?state=RUNNING").status_code == 200


def test_stranger_learns_nothing_of_the_parameters(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/v1/jobs?stat=RUNNING")
    assert answer.status_code in (401, 422)
    assert "job_" not in answer.text
