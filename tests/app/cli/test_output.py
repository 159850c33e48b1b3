"""How one value looks to people."""

from datetime import timedelta

import pytest

from app.cli.main import main
from app.cli.shell.output import cell, named_cell


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "0.0 s"),
        (timedelta(seconds=6.1), "6.1 s"),
        (timedelta(seconds=87), "0:01:27"),
        (timedelta(days=14, hours=7, minutes=54, seconds=21.6), "14 d 7:54:21"),
    ],
)
def test_duration_is_written_for_people(span: timedelta, text: str) -> None:
    assert cell(span) == text


def test_ids_have_no_groups_of_digits_and_amounts_have() -> None:
    warning = {"code": "NODES_DISABLED", "count": 1005, "sample": [13, 18, 1003, 1006]}
    assert cell([warning]) == "code=NODES_DISABLED, count=1,005, sample=13, 18, 1003, 1006"
    assert cell({"batch_id": 1003, "rows": 1003, "oldest_batch": 4711}) == (
        "batch_id=1003, rows=1,003, oldest_batch=4711"
    )
    assert named_cell("resent after purge: batch", 1003) == "1003"
    assert named_cell("batches", 1003) == "1,003"
    assert named_cell("vlsn", {"first": 1003, "last": None}) == "first=1003"
    assert cell([True, None, 2.5, 1003]) == "yes, -, 2.50, 1003"


@pytest.mark.parametrize("words", [["job", "list"], ["job", "show", "job_1"]])
def test_text_of_others_steers_no_terminal(service, capsys, words) -> None:
    """A tenant's reason cleared the screen of whoever listed the jobs."""
    reason = "a\x1b[2J\x1b]0;b\x07\x9b31m\x7f\r"
    job = {"id": "job_1", "kind": "PURGE", "store": "shop", "state": "SUCCEEDED", "reason": reason}
    service.on("GET /v1/jobs", (200, {"items": [job], "next_page_token": None}))
    service.on("GET /v1/jobs/job_1", (200, job))
    assert main([*words, "--url", service.url]) == 0
    shown = capsys.readouterr().out
    assert "a\u241b[2J\u241b]0;b" in shown
    assert all(each.isprintable() or each == "\n" for each in shown)
