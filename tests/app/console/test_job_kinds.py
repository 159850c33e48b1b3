"""Jobs that a newer version has made, or an earlier one has ended, have a page."""

from __future__ import annotations

from typing import Any

import pytest

from app.auth.scopes import Role
from app.console.results.table import TELLS, tell
from app.jobs.states import JobState
from app.verbs.table import VERBS
from tests.app.console.browser import Browser
from tests.app.fleet.test_overview import Fleet


@pytest.mark.parametrize("state", list(JobState))
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("COMPACTION", {"depth": {"a": [1, {"b": None}]}}),
        ("PURGE", {"kind": "MOONS"}),
        ("PLAN", {"plan": "COMPACTION"}),
        ("BATCH", {"kind": "COMPACTION", "params": {}, "stores": ["shop"]}),
    ],
)
def test_job_of_a_newer_version_has_a_page(
    fleet: Fleet, state: JobState, kind: str, params: dict[str, Any]
) -> None:
    # Its page was an error: 409.
    browser = Browser(fleet.app)
    assert browser.login(fleet.token(Role.ADMIN)).status_code == 303
    job = fleet.job(
        state,
        kind=kind,
        params=params,
        result={"new": ["x"]},
    )
    fleet.add(fleet.store("shop"), job)
    page = browser.get(f"/console/jobs/{job.id}")
    assert page.status_code == 200, page.text
    assert job.id in page.text
    assert "rows_per_s" not in page.text.partition('id="throttle-form"')[2]


ODD: tuple[Any, ...] = (None, [], {}, "x", 5, [1], {"a": 1}, [{"a": 1}], ["x"])


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_result_whose_fields_have_other_forms_is_told_in_no_words(odd: Any) -> None:
    for verb in VERBS:
        names = verb.result.model_fields
        params = {"kind": min(verb.acts)} if verb.acts else {}
        told = tell({"kind": verb.kind, "params": params, "result": dict.fromkeys(names, odd)})
        assert isinstance(told, list), verb.name
    assert TELLS
