"""The committed OpenAPI document is the one that the code serves, and tells a client all it needs."""

import functools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.style.source_files import ROOT

COMMITTED = ROOT / "openapi" / "openapi.json"
METHODS = {"get", "put", "post", "patch", "delete"}
# Rates say per what; a difference has a sign, which ISO 8601 durations have not.
WITH_UNIT = {
    "rate_per_s",
    "rows_per_s",
    "max_rows_per_s",
    "bytes_per_s",
    "clock_difference_s",
    "abort_latency_ms",
}
# Told by results before they had a schema; answers keep their fields.
WITH_UNIT |= {"longest_hold_ms"}
PROBLEM = "application/problem+json"
JSON = "application/json"

Operation = tuple[str, dict[str, Any]]


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(COMMITTED.read_text())
    return document


def _operations() -> Iterator[Operation]:
    """("POST /v1/...", operation) of every operation below /v1."""
    for path, item in _document()["paths"].items():
        for method, operation in item.items():
            if method in METHODS and path.startswith("/v1"):
                yield f"{method.upper()} {path}", operation


def _resolve(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        name = schema["$ref"].removeprefix("#/components/schemas/")
        schema = _document()["components"]["schemas"][name]
    return schema


def _has_example(content: dict[str, Any]) -> bool:
    schema = _resolve(content.get("schema", {}))
    return any(key in place for place in (content, schema) for key in ("example", "examples"))


def _error_responses(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {code: value for code, value in operation["responses"].items() if code[0] in "45d"}


def test_committed_document_equals_the_code() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "app.openapi"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == COMMITTED.read_text(), "openapi/openapi.json is stale: make openapi"


def test_schemas_are_named_after_what_they_are_not_after_modules() -> None:
    """Two classes of one name would give both the names of their modules, in every client."""
    assert [name for name in _document()["components"]["schemas"] if "__" in name] == []


def test_operations_below_v1_exist() -> None:
    assert any(name == "GET /v1/jobs/{job_id}" or name == "GET /v1/jobs/{id}" for name, _ in _operations())


def test_operations_have_an_id_of_their_own_and_a_summary() -> None:
    ids = [operation.get("operationId", "") for _, operation in _operations()]
    assert sorted(name for name in set(ids) if ids.count(name) > 1 or not name) == []
    assert [name for name, operation in _operations() if not operation.get("summary")] == []


def test_operations_describe_their_errors_as_problems() -> None:
    wrong = []
    for name, operation in _operations():
        errors = _error_responses(operation)
        if not {"401", "403"} <= errors.keys():
            wrong.append(f"{name}: 401 or 403 is missing")
        wrong += [
            f"{name}: {code} is not described as a problem"
            for code, response in errors.items()
            if set(response.get("content", {})) != {PROBLEM} or not response.get("description")
        ]
    assert wrong == []


def test_paths_that_name_something_describe_that_it_may_be_missing() -> None:
    named = [(name, operation) for name, operation in _operations() if "{" in name]
    assert [name for name, operation in named if "404" not in operation["responses"]] == []


def test_request_bodies_have_an_example() -> None:
    without = [
        f"{name} {kind}"
        for name, operation in _operations()
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
        if not _has_example(content)
    ]
    assert without == []


def test_json_answers_have_an_example() -> None:
    without = [
        f"{name} {code}"
        for name, operation in _operations()
        for code, response in operation["responses"].items()
        if code.startswith("2") and JSON in response.get("content", {})
        if not _has_example(response["content"][JSON])
    ]
    assert without == []


def test_operations_ask_for_a_token() -> None:
    everywhere = _document().get("security", [])
    assert [name for name, operation in _operations() if not operation.get("security", everywhere)] == []


def test_answers_describe_the_headers_that_a_client_goes_on_with() -> None:
    without = [
        f"{name} {code} {header}"
        for name, operation in _operations()
        for code, wanted in (("202", {"Location", "Retry-After", "ETag"}),)
        if code in operation["responses"]
        for header in sorted(wanted - operation["responses"][code].get("headers", {}).keys())
    ]
    assert without == []


def test_durations_are_iso_8601_and_carry_no_unit_in_their_name() -> None:
    named = {
        f"{schema}.{name}"
        for schema, definition in _document()["components"]["schemas"].items()
        for name in definition.get("properties", {})
        if name.endswith(("_s", "_ms", "_seconds")) and name not in WITH_UNIT
    }
    assert named == set()


def test_each_kind_of_job_has_its_own_parameters_and_result() -> None:
    """Both were free objects: a client had to guess what a purge tells and what a cleanup tells."""
    job = _document()["components"]["schemas"]["JobRead"]
    assert job.get("discriminator", {}).get("propertyName") == "kind"
    mapping = job["discriminator"]["mapping"]
    assert {each["$ref"] for each in job["oneOf"]} == set(mapping.values())
    for kind, reference in mapping.items():
        common, own = _resolve({"$ref": reference})["allOf"]
        assert _resolve(common)["required"]
        assert own["properties"]["kind"]["const"] == kind
        for name in ("params", "result"):
            choices = own["properties"][name].get("anyOf") or own["properties"][name]["allOf"]
            shown = [_resolve(choice) for choice in choices if choice != {"type": "null"}]
            assert all(schema.get("properties") for schema in shown), f"{kind}.{name}"
