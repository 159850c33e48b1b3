"""Texts of others that look like something of the API break no page, and are shown as they are."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.console.rendering import environment
from app.console.words import shape
from app.jobs.states import JobState
from tests.app.console.browser import Browser
from tests.app.fleet.test_overview import Fleet

# A country, nothing, more days than there are, no date, times beyond all calendars.
LOOK_ALIKES = (
    "PT",
    "P1DT",
    "P99999999999999D",
    "2026-13-45T99:99:99Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "٢٠٢٦-01-01T00:00:00Z",
)


def fields(value: dict[str, Any]) -> str:
    """What is shown of fields of the API."""
    template = environment().from_string('{% import "macros.html" as m %}{{ m.fields(value) }}')
    return template.render(value=value)


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_text_that_only_looks_like_a_time_is_text(text: str) -> None:
    assert shape(text) == "text"
    assert text in fields({"detail": text})


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_pages_show_labels_and_parameters_whatever_they_look_like(
    fleet: Fleet, browser: Browser, text: str
) -> None:
    # A store with the label country=PT had no page: 500.
    job = fleet.job(JobState.FAILED, params={"kind": "ROWS", "table": text}, finished_at=fleet.clock.now())
    fleet.add(fleet.store("shop", labels={"country": text}), job)
    page = browser.get("/console/stores/shop")
    assert page.status_code == 200, page.text
    assert f"country={text}" in page.text
    page = browser.get(f"/console/jobs/{job.id}")
    assert page.status_code == 200, page.text
    assert text in page.text


@pytest.mark.parametrize("name", ["node", "channel", "node_id", "channels", "database", "requested_by"])
def test_names_of_others_are_shown_as_they_are_written(name: str) -> None:
    # A node STORE_001 was called "store 001", which no command finds.
    shown = fields({name: ["STORE_001"] if name.endswith("s") else "STORE_001"})
    assert "STORE_001" in shown


def test_names_of_labels_and_tables_are_no_names_of_the_api() -> None:
    shown = fields({"labels": {"costCentre": "EU_WEST", "lease": "PT5M"}})
    assert "costCentre=EU_WEST, lease=PT5M" in shown
    shown = fields({"removed": {"image_bytes": 5_000, "orders_s": 90}})
    assert "kB" not in shown
    assert "min" not in shown


def test_page_of_a_job_is_bounded_whatever_it_has_reached(fleet: Fleet, browser: Browser) -> None:
    stores = {f"store-{number}": {"job_id": None, "state": "REFUSED"} for number in range(2_000)}
    job = fleet.job(
        JobState.SUCCEEDED,
        store=None,
        kind="BATCH",
        params={"kind": "PURGE", "params": {}, "stores": list(stores)},
        result={"stores": stores},
        finished_at=fleet.clock.now(),
    )
    fleet.add(job)
    page = browser.get(f"/console/jobs/{job.id}")
    assert page.status_code == 200
    assert "store-99" in page.text
    assert "store-1999" not in page.text
    assert "1\u202f900 more" in page.text
    assert len(page.content) < 200 * 1024


def test_json_is_cut_where_it_is_long() -> None:
    deep: Any = [[number] for number in range(20_000)]
    shown = fields({"odd": deep})
    assert len(shown) < 21_000
    assert "cut: the API has all of it" in shown
    assert "cut" not in fields({"odd": [[1]]})
    assert json.dumps(1) in fields({"odd": [[1]]})


def test_end_that_a_job_has_foretold_is_shown_while_it_holds(fleet: Fleet, browser: Browser) -> None:
    # A paused job ended "20 min ago" by its page.
    now = fleet.clock.now()
    ahead, past = (
        {
            "unit": "rows",
            "done": 5,
            "total": 10,
            "total_is_estimate": False,
            "fraction": 0.5,
            "rate_per_s": 2.0,
            "eta": (now + by).isoformat(),
        }
        for by in (timedelta(minutes=20), -timedelta(minutes=20))
    )
    thrott, away = ([{"kind": kind, "ref": "x"}] for kind in ("THROTTLE", "TARGET_UNREACHABLE"))
    jobs = {
        "runs": fleet.job(JobState.RUNNING, progress=ahead, started_at=now),
        "late": fleet.job(JobState.RUNNING, progress=past, started_at=now),
        "rests": fleet.job(JobState.PAUSED, progress=ahead, started_at=now),
        "paced": fleet.job(JobState.WAITING, progress=ahead, started_at=now, waiting_on=thrott),
        "away": fleet.job(JobState.WAITING, progress=ahead, started_at=now, waiting_on=away),
    }
    fleet.add(fleet.store("shop"), *jobs.values())
    seen = {
        name: "<dt>Ends</dt>" in browser.get(f"/console/jobs/{job.id}").text for name, job in jobs.items()
    }
    assert seen == {"runs": True, "late": False, "rests": False, "paced": True, "away": False}
