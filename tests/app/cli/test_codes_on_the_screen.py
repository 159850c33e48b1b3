"""Whatever code stands on the screen, the command says how to learn what it means, and what else it knows."""

from typing import Any

import pytest

from app.cli.main import main

WAITING: dict[str, Any] = {
    "id": "job_1",
    "kind": "PURGE",
    "state": "WAITING",
    "store": "shop",
    "waiting_on": [
        {
            "kind": "TARGET_FULL",
            "ref": "shop",
            "until": None,
            "since": "2026-11-20T10:00:00Z",
            "next_look": "2026-11-20T10:05:00Z",
            "cause": "could not extend file",
            "help": "docs/reference/runbook.md#target_full",
        }
    ],
}
FAILED: dict[str, Any] = {
    "id": "job_2",
    "kind": "PURGE",
    "state": "FAILED",
    "store": "shop",
    "error": {"code": "TARGET_AUTH_FAILED", "title": "x", "detail": "no", "retryable": False},
}
OVERVIEW: dict[str, Any] = {
    "at": "2026-11-20T11:30:00Z",
    "counters": {"stores": 1, "jobs": {}, "backups": 0, "ended_last_day": {}},
    "attention": [
        {
            "code": "WAITS_LONG",
            "severity": "WARNING",
            "store": "shop",
            "since": "2026-11-20T10:00:00Z",
            "subject": "jobs/job_1",
            "detail": "TARGET_FULL",
            "help": "docs/reference/runbook.md#waits_long",
        }
    ],
    "attention_total": 1,
    "stores": [],
    "batches": [],
    "next_page_token": "",
}


def test_job_that_waits_says_since_when_why_and_what_it_means(lethe, service) -> None:
    service.on("GET /v1/jobs/job_1", (200, WAITING))
    run = lethe("job", "show", "job_1")
    assert run.code == 0
    assert "Waits for TARGET_FULL shop" in run.out
    for known in ("2026-11-20 10:00:00Z", "2026-11-20 10:05:00Z", "could not extend file", "#target_full"):
        assert known in run.out
    assert "lethe explain TARGET_FULL" in run.err


def test_job_that_failed_says_what_it_means(lethe, service) -> None:
    service.on("GET /v1/jobs/job_2", (200, FAILED))
    assert "lethe explain TARGET_AUTH_FAILED" in lethe("job", "show", "job_2").err


def test_status_says_what_its_codes_mean(lethe, service) -> None:
    service.on("GET /v1/overview", (200, OVERVIEW))
    run = lethe("status")
    assert run.code == 0, run.err
    shown = run.out
    assert "lethe job show job_1" in shown
    assert "lethe explain WAITS_LONG" in shown
    assert "lethe explain TARGET_FULL" in shown


def test_request_that_is_not_valid_says_what_its_code_means(lethe, service) -> None:
    problem = {"code": "RETENTION_TOO_SHORT", "detail": "no", "retryable": False}
    service.on("GET /v1/stores/shop", (422, problem))
    run = lethe("store", "show", "shop")
    assert run.code == 64
    assert "lethe explain RETENTION_TOO_SHORT" in run.err


def test_a_line_that_is_not_valid_says_nothing_of_codes(lethe, service) -> None:
    assert "lethe explain" not in lethe("store", "bogus").err


def test_explain_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TARGET_FULL"]) == 0
    assert "docs/reference/runbook.md#target_full" in capsys.readouterr().out
