"""What a job that waits shows: since when, until when, why, and where it says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.fleet.models import AttentionCode
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn, read_job
from app.jobs.queries import get_job
from app.jobs.running.context import JobContext
from app.kit.texts.help import PAGE, help_of
from app.kit.texts.secrets_out import without_secrets
from tests.app.jobs.workbench import Workbench, kind

ROOT = Path(__file__).parents[3]
NAMED = re.compile(r'WaitingOn\(kind="([A-Z_]+)"')


def test_error_of_a_job_says_where_to_look_and_is_kept_without(bench: Workbench) -> None:
    def task(_context: JobContext) -> Mapping[str, Any]:
        raise JobFailed("TARGET_AUTH_FAILED", "the password is wrong")

    with bench.running(kind(task)):
        job_id = bench.submit()
        bench.until(job_id, "FAILED")
    with bench.database.reading() as db:
        row = get_job(db, job_id)
    error = read_job(row).error
    assert error is not None
    assert error.help == help_of("TARGET_AUTH_FAILED")
    assert "help" not in (row.error or {}), "a page moves; what is kept does not"


def test_wait_tells_since_when_why_and_where_to_look(bench: Workbench) -> None:
    def task(_context: JobContext) -> Mapping[str, Any]:
        raise JobWaiting(
            [WaitingOn(kind="TARGET_UNREACHABLE", ref="shop")],
            not_before=None,
            transient=True,
            detail="connection to postgresql://lethe:hunter2@db/shop failed",
        )

    with bench.running(kind(task)):
        job_id = bench.submit()
        bench.until(job_id, "WAITING")
    with bench.database.reading() as db:
        row = get_job(db, job_id)
    [shown] = read_job(row).waiting_on
    assert (shown.since, shown.next_look) == (row.waiting_since, row.not_before)
    assert shown.since is not None
    assert shown.cause == "connection to postgresql://lethe:***@db/shop failed"
    assert shown.help == f"{PAGE}#target_unreachable"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("mysql+pymysql://u:p%40ss@h/d", "mysql+pymysql://u:***@h/d"),
        ("host=h password=s3cret user=u", "host=h password=*** user=u"),
        ("password='a b c' x", "password=*** x"),
        ('{"token": "abc"}', '{"token": ***}'),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer ***"),
        ("lethe_" + "a" * 43, "lethe_***"),
        ("it has seen a greater token than 12", "it has seen a greater token than 12"),
        ("password authentication failed for user u", "password authentication failed for user u"),
    ],
)
def test_secrets_are_taken_out_of_errors(text: str, clean: str) -> None:
    assert without_secrets(text) == clean


def test_page_explains_every_code_that_leads_there() -> None:
    headings = {
        line.removeprefix("### ")
        for line in (ROOT / PAGE).read_text().splitlines()
        if line.startswith("### ")
    }
    waits = {name for path in (ROOT / "app").rglob("*.py") for name in NAMED.findall(path.read_text())}
    assert {"JOB", "STORE_SUSPENDED", "THROTTLE"} <= waits
    assert sorted((waits | {code.value for code in AttentionCode}) - headings) == []
    assert help_of("JOB_FAILED") == f"{PAGE}#job_failed"
