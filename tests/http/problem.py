"""What every problem of the service must look like."""

from __future__ import annotations

from typing import Any

import httpx

KEYS = {"type", "title", "status", "detail", "instance", "code", "retryable", "help"}
TRACES = ("Traceback", 'File "', "sqlalchemy.", "psycopg.", "site-packages")


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Assert that an answer is this problem, whole and without a trace, and return it."""
    assert answer.status_code == status, f"{answer.status_code} {answer.text[:500]}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    body: dict[str, Any] = answer.json()
    assert body["code"] == code, body
    assert set(body) >= KEYS
    assert body["status"] == status
    assert body["help"] == f"docs/reference/runbook.md#{code.lower()}"
    assert body["instance"] == answer.request.url.path
    assert body["type"] == f"urn:lethe:problem:{code.lower().replace('_', '-')}"
    assert not any(mark in answer.text for mark in TRACES), answer.text
    if body["retryable"]:
        assert int(answer.headers["retry-after"]) >= 1
    return body


def pointers(body: dict[str, Any]) -> set[str]:
    """The places that a validation problem names."""
    return {item["pointer"] for item in body["errors"]}
