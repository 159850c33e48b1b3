"""How results of plans, and of purges that execute them, are shown to people."""

import pytest


def job(kind: str, state: str, result: object) -> dict[str, object]:
    return {"id": "job_1", "kind": kind, "store": "shop", "state": state, "result": result}


@pytest.mark.parametrize("verb", ["show", "watch"])
def test_plans_show_ids_as_they_are_and_amounts_in_groups(lethe, service, verb) -> None:
    warning = {"code": "NULL_CREATE_TIME", "table": "sym_data", "count": 1005, "sample": [13, 1003, 1006]}
    result = {"tables": [{"table": "sym_data", "rows": 2000}], "warnings": [warning | {"detail": "stay"}]}
    service.on("GET /v1/jobs/job_1", (200, job("PLAN", "SUCCEEDED", result)))
    run = lethe("job", verb, "job_1")
    assert "sample=13, 1003, 1006" in run.out
    assert "rows=2,000" in run.out
    assert "count=1,005" in run.out


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("SUCCEEDED", "1,008 (they are not there any more, or are needed now)"),
        ("ABORTED", "1,008"),
    ],
)
def test_plan_run_again_says_that_its_rows_are_gone_or_needed(lethe, service, state, said) -> None:
    result = {"removed": {"data": 0}, "counts": "EXACT", "units": 0, "fewer_than_planned": 1008}
    service.on("GET /v1/jobs/job_1", (200, job("PURGE", state, result)))
    out = lethe("job", "watch", "job_1").out.splitlines()
    [line] = [line for line in out if "of the plan" in line]
    assert line.split("  ")[0] == "rows of the plan that did not go"
    assert line.endswith(f"  {said}")
