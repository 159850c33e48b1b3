"""Random requests made from the OpenAPI document: no 5xx, and no answer that the document does not describe.

The document that is committed is the one that is served (test_problems.py). The service stands on PostgreSQL
metadata, which is the stricter of the two; half of the requests name things that exist.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.config import (
    CoveragePhaseConfig,
    ExamplesPhaseConfig,
    GenerationConfig,
    PhasesConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.generation import GenerationMode
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conftest import SharedServer
from tests.http.service_process import ROOT, ServiceProcess
from tests.http.shop import Shop, wait_for
from tests.http.targets import copy_reference
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, Templates

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 2
EXAMPLES_LONG = 400
COVERING = 8
"""Of the requests that cover a description, one after the other; some have more than 300."""
# Waits are cut to a second, so that Prefer does not make the run slow.
SETTINGS = {"LETHE_WAIT_MAX_S": "1", "LETHE_PLAN_WAIT_DEFAULT_S": "1", "LETHE_ALLOWED_HOSTS": "127.0.0.1"}
SETTINGS |= {"LETHE_STREAM_MAX_S": "0.1"}


def _config() -> SchemathesisConfig:
    modes = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
    project = ProjectConfig(
        generation=GenerationConfig(modes=modes),
        phases=PhasesConfig(
            coverage=CoveragePhaseConfig(unexpected_methods={"query"}),
            examples=ExamplesPhaseConfig(enabled=True),
        ),
    )
    return SchemathesisConfig(projects=ProjectsConfig(default=project))


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def _as_bytes(_context: Any, value: Any) -> bytes:
    """Bodies that are no JSON go as they are made."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


DESCRIPTION = ROOT / "openapi" / "openapi.json"
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, methods in json.loads(DESCRIPTION.read_text())["paths"].items()
    for method in methods
]


@cache
def _schema() -> BaseSchema:
    return schemathesis.openapi.from_path(str(DESCRIPTION), config=_config())


@dataclass(frozen=True)
class Known:
    """A service and ids of things that it has."""

    service: ServiceProcess
    http: httpx.Client
    asked_by: requests.Session
    path: Path
    names: dict[str, list[str]]


@pytest.fixture(scope="module")
def known(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: SharedServer, slony_templates: Templates
) -> Iterator[Known]:
    """A service with a store, jobs that have ended in every way, an archive and a token."""
    directory = tmp_path_factory.mktemp("conformance")
    name = f"lethe_conformance_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"create database {name}")
    settings_ = SETTINGS | {"LETHE_ALLOWED_ROOTS": str(directory)}
    url = postgresql_server.url(name)
    node = Catalogs(slony_templates)
    service = ServiceProcess(directory, metadata_url=url, settings=settings_).start()
    with service.http() as http, requests.Session() as asked_by:
        path = copy_reference(directory / "known.sqlite")
        names = _populate(http, path)
        _register_node(http, node.load("fxa", 1))
        yield Known(service, http, asked_by, path, names)
    assert service.stop() == 0
    assert service.traces() == []
    node.drop()
    postgresql_server.execute(f"drop database if exists {name} with (force)")


def _register_node(http: httpx.Client, catalog: LoadedCatalog) -> None:
    body = {"id": "known-node", "kind": "SLONY", "url": catalog.url, "cluster": catalog.cluster}
    assert http.post("/v1/stores", json=body).status_code == 201


def _populate(http: httpx.Client, path: Path) -> dict[str, list[str]]:
    _register(http, path)
    shop = Shop(http=http, id="known", path=path)
    done = shop.purge(archive={"format": "PARQUET"}).json()["id"]
    wait_for(http, done)
    plan = shop.plan().json()["plan_id"]
    http.post("/v1/stores/known:suspend", json={"reason": "r"})
    aborted = shop.purge().json()["id"]
    http.post(f"/v1/jobs/{aborted}:abort", json={})
    wait_for(http, aborted)
    http.post("/v1/stores/known:resume")
    token = http.post("/v1/tokens", json={"name": "known", "scopes": ["jobs:read"]}).json()["id"]
    replica = {"id": "known-replica", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{path}.replica"}
    assert http.post("/v1/stores", json=replica).status_code == 201
    change = {"database": "ZA==", "key": "aw==", "value": "dg=="}
    assert http.post("/v1/stores/known-replica/changes", json=change).status_code == 200
    discarded = {"databases": ["ZA=="], "start_key": "eg==", "label": "l", "confirm_keys_never_reused": True}
    extinction = http.post("/v1/stores/known-replica/extinctions", json=discarded).json()["subject"]["id"]
    return {
        "store_id": ["known", "known-replica", "known-node"],
        "extinction_id": [extinction],
        "origin": ["1"],
        "seqno": ["5000000071"],
        "database": ["ZA"],
        "key": ["aw"],
        "job_id": [done, plan, aborted],
        "token_id": [token],
        "name": ["purge.retention.minutes", "job.purge.max.num.data.to.delete.in.tx"],
    }


def _register(http: httpx.Client, path: Path) -> None:
    """The store, unless a former request has left it as it was."""
    if http.get("/v1/stores/known").status_code == 404:
        body = {"id": "known", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201


def _with_known_names(case: Case, known: Known) -> None:
    """Let every second request name what exists; which ones depends on nothing but the request."""
    random = Random(repr((case.path_parameters, case.query, case.body)))
    parameters: Any = case.path_parameters
    if isinstance(parameters, dict) and random.random() < 0.5:
        for name in parameters:
            parameters[name] = random.choice(known.names.get(name, [parameters[name]]))
        takes_if_match = any(item.name == "If-Match" for item in case.operation.headers)
        if takes_if_match and random.random() < 0.5:
            case.headers["If-Match"] = "*"


@pytest.fixture
def populated(known: Known) -> Known:
    """The service, its store registered again where an earlier request removed it."""
    _register(known.http, known.path)
    return known


def _conforms(case: Case, known: Known) -> None:
    _with_known_names(case, known)
    headers = {"Authorization": f"Bearer {known.service.token}"}
    response = case.call(base_url=known.service.url, session=known.asked_by, headers=headers, timeout=30)
    case.validate_response(response, checks=CHECKS)


def _look(operation: str, known: Known, how: settings, *, covering: int | None = None) -> None:
    """Ask an operation for what schemathesis makes of its description.

    With `covering`, no more than these of the requests that it lists beforehand, from all over the list.
    Its own `parametrize` would make all requests of all operations while tests are collected, in each worker.
    """

    @how
    def conforms(case: Case) -> None:
        _conforms(case, known)

    schema = _schema()
    look = build_operation_test(
        config=schema.config,
        operation=schema.find_operation_by_label(operation),
        test_func=conforms,
        given_kwargs={},
        feedback=FeedbackSources(),
    )
    if covering is not None:
        _thin(look, covering)
    look()


def _thin(look: Any, count: int) -> None:
    """Leave at most so many of a test's explicit examples: every n-th, as neighbours differ in little."""
    listed = look.hypothesis_explicit_examples
    listed[:] = listed[:: max(1, -(-len(listed) // count))]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.postgresql
def test_answers_of_an_operation_are_those_that_it_describes(operation: str, populated: Known) -> None:
    few = settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    _look(operation, populated, few, covering=COVERING)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.postgresql
@pytest.mark.long
def test_many_answers_of_an_operation_are_those_that_it_describes(operation: str, populated: Known) -> None:
    many = settings(max_examples=EXAMPLES_LONG, deadline=None, suppress_health_check=list(HealthCheck))
    _look(operation, populated, many)
