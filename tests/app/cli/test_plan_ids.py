"""`--plan-id` and `--max-drift` of every command that executes a plan."""

from typing import Any

import pytest

JOB = {"id": "job_1", "kind": "ANY", "state": "QUEUED", "created_at": "2026-11-20T08:00:00Z"}
BODY: dict[str, Any] = {"plan_id": "job_7", "reason": "asked for on the command line"}


@pytest.mark.parametrize(("given", "sent"), [("0", 0), ("12", 12), ("0.25", 0.25)])
@pytest.mark.parametrize(
    ("command", "path", "more"),
    [
        (["purge", "run", "it", "--kind", "changelog"], "purges", {"kind": "CHANGELOG"}),
        (["slony", "cleanup", "it"], "event-cleanups", {}),
        (["erasure", "start", "it", "--duration", "PT0S"], "erasure-cycles", {"duration": "PT0S"}),
        (
            [
                "extinction",
                "discard",
                "it",
                "--database",
                "d",
                "--label",
                "old",
                "--confirm-keys-never-reused",
            ],
            "extinctions",
            {"databases": ["d"], "label": "old", "confirm_keys_never_reused": True},
        ),
    ],
)
def test_a_reviewed_plan_is_named_with_what_may_be_gone_of_it(
    service, lethe, command: list[str], path: str, more: dict[str, Any], given: str, sent: float
) -> None:
    service.on("GET /v1/stores/it", (200, {"id": "it", "kind": "JE"}, {"ETag": '"1"'}))
    url = f"POST /v1/stores/it/{path}"
    service.on(url, (202, JOB))
    run = lethe(*command, "--plan-id", "job_7", "--max-drift", given, "--no-wait")
    assert run.code == 0, run.err
    [body] = service.bodies(url)
    assert body == BODY | {"max_drift": sent} | more
    assert type(body["max_drift"]) is type(sent)


@pytest.mark.parametrize("option", ["--period", "--min-file-age"])
def test_the_age_of_files_is_the_plans(service, lethe, option: str) -> None:
    run = lethe("erasure", "start", "it", "--plan-id", "job_7", option, "P1D", "--json")
    assert (run.code, run.json()["code"]) == (64, "USAGE")
    assert service.asked == []


@pytest.mark.parametrize(
    ("command", "plan", "hint"),
    [
        (
            [
                "purge",
                "rows",
                "it",
                "--table",
                "ticket",
                "--older-than",
                "P9D",
                "--time-column",
                "at",
                "--archive",
                "--plan",
            ],
            {
                "plan_id": "job_7",
                "kind": "ROWS",
                "store": "it",
                "tables": [{"table": "ticket", "rows": 5, "rows_to_remove": 2}],
                "warnings": [],
            },
            "lethe purge rows it --table ticket --archive --plan-id job_7",
        ),
        (
            ["purge", "plan", "it", "--kind", "changelog"],
            {
                "plan_id": "job_7",
                "kind": "CHANGELOG",
                "store": "it",
                "rids": [{"rid": 1, "rows": 5, "rows_to_remove": 2}],
                "rows_to_remove": 2,
            },
            "lethe purge run it --kind CHANGELOG --plan-id job_7",
        ),
    ],
)
def test_what_a_plan_says_to_run_is_what_was_planned(
    service, lethe, command: list[str], plan: dict[str, Any], hint: str
) -> None:
    """Rows that were to be kept went unkept, and a plan of a changelog was run as one of OUTGOING."""
    service.on("POST /v1/stores/it/purges", (200, plan))
    run = lethe(*command)
    assert run.code == 0, run.err
    assert f"Run exactly this: {hint}" in " ".join((run.out + run.err).split())
