"""Two people throttle one job: what the second has not touched stays as the first has set it."""

from __future__ import annotations

import re

from app.auth.scopes import Role
from app.jobs.states import JobState
from tests.app.console.browser import Browser
from tests.app.fleet.test_overview import Fleet

HIDDEN = re.compile(r'name="(was\.\w+)" data-keep value="([^"]*)"')


def test_bound_that_somebody_else_has_set_meanwhile_stays(fleet: Fleet) -> None:
    # The form sent all of its fields: the bound of the other went without a word.
    one, other = Browser(fleet.app), Browser(fleet.app)
    for browser in (one, other):
        assert browser.login(fleet.token(Role.ADMIN)).status_code == 303
    job = fleet.job(JobState.PAUSED, params={"kind": "OUTGOING"})
    fleet.add(fleet.store("shop"), job)
    url = f"/console/jobs/{job.id}"
    shown = dict(HIDDEN.findall(one.get(url).text))
    assert shown == {"was.rows_per_s": "", "was.intensity": ""} or "was.rows_per_s" in shown
    assert other.post(f"{url}/throttle", rows_per_s="50", reason="it hurts", **shown).status_code == 303
    assert one.post(f"{url}/throttle", rows_per_s="", intensity="0.5", reason="x", **shown).status_code == 303
    token = fleet.token(Role.ADMIN)
    requested = fleet.get(f"/v1/jobs/{job.id}", token).json()["throttle"]["requested"]
    assert (requested["rows_per_s"], requested["intensity"]) == (50, 0.5)
    shown = dict(HIDDEN.findall(one.get(url).text))
    assert shown["was.rows_per_s"] == "50.0"
    fields = {"rows_per_s": "", "intensity": "0.5"}
    assert one.post(f"{url}/throttle", reason="x", **fields, **shown).status_code == 303
    requested = fleet.get(f"/v1/jobs/{job.id}", token).json()["throttle"]["requested"]
    assert (requested["rows_per_s"], requested["intensity"]) == (None, 0.5)
