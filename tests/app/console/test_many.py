"""Lists that are longer than a page say so, and lead on."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

from app.archives.rows import Archive
from app.backups.rows import BackupState
from app.console.acts.reading import losses
from app.jobs.rows import Instance
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.protection.rows import Protection
from app.stores.rows import Store
from tests.app.console.browser import Browser
from tests.app.fleet.test_overview import Fleet

MORE = re.compile(r'<a href="([^"]+)">More</a>')


def archive(fleet: Fleet) -> Archive:
    now = fleet.clock.now()
    return Archive(
        job_id=new_id("job"),
        store="shop",
        resource="x",
        directory="/x",
        instance="ins_x",
        created_at=now,
        expires_at=now + timedelta(days=1),
        rows=1,
        bytes=1,
        files=1,
    )


def test_every_archive_can_be_reached_from_the_page_of_its_store(fleet: Fleet, browser: Browser) -> None:
    # The newest 25 were shown, as if there were no others: an older one could not be restored from here.
    fleet.add(fleet.store("shop"))
    kept = [archive(fleet) for _ in range(60)]
    fleet.insert(kept)
    names, url, pages = {each.job_id for each in kept}, "/console/stores/shop/parts/archives", 0
    seen: set[str] = set()
    while url:
        page = browser.get(url)
        assert page.status_code == 200, page.text
        seen |= set(re.findall(r'href="/console/archives/(job_\w+)"', page.text))
        more = MORE.findall(page.text)
        url, pages = html.unescape(more[0]) if more else "", pages + 1
    assert seen == names
    assert pages == 3


def environment(fleet: Fleet, name: str) -> Store:
    now = fleet.clock.now()
    return Store(id=name, kind="JE", url="/x", created_at=now, updated_at=now)


def protection(fleet: Fleet, store: str) -> Protection:
    now = fleet.clock.now()
    fields: dict[str, Any] = {"requested_by": "ann", "lease": timedelta(hours=1)}
    return Protection(
        id=new_id("prt"),
        store=store,
        kind="SCAN",
        name="n",
        state="ACTIVE",
        created_at=now,
        lease_expires_at=now + timedelta(hours=1),
        **fields,
    )


def test_protections_that_are_not_shown_are_told_of(fleet: Fleet, browser: Browser) -> None:
    fleet.add(environment(fleet, "few"), environment(fleet, "many"))
    fleet.insert([protection(fleet, "many") for _ in range(51)] + [protection(fleet, "few")])
    shown = browser.get("/console/backups").text.partition('id="protections"')[2]
    hint = re.findall(r'<p class="hint">(.*?)</p>', shown)
    assert len(hint) == 1
    assert ">many<" in hint[0]
    assert ">few<" not in hint[0]
    part = browser.get("/console/stores/many/parts/erasure").text
    [url] = MORE.findall(part)
    rest = browser.get(html.unescape(url)).text
    assert "Protections" in rest
    assert "<h3>Cycles</h3>" not in rest
    assert browser.get("/console/stores/many/parts/erasure?reading=7").status_code == 404


def test_overview_of_many_stores_does_not_say_that_nothing_waits(fleet: Fleet, browser: Browser) -> None:
    # A job that waited at a store of the second page was not there: "None runs or waits."
    fleet.insert([fleet.store(f"s{number:02}") for number in range(60)])
    text = browser.get("/console/").text
    assert "None runs or waits." in text
    fleet.add(fleet.job(JobState.WAITING, store="s59"))
    text = browser.get("/console/").text
    assert "None runs or waits." not in text
    assert "1 more has not ended." in text
    assert "Next due" not in text
    fleet.insert([fleet.backup(BackupState.ACTIVE, store="s59") for _ in range(5)])
    text = browser.get("/console/").text
    assert "2 more." in text.partition('id="backups"')[2]


def test_instances_that_are_not_shown_are_told_of(fleet: Fleet, browser: Browser) -> None:
    now = fleet.clock.now()
    fleet.insert(
        [
            Instance(
                id=new_id("ins"),
                hostname="h",
                pid=1,
                role="worker",
                version="1",
                started_at=now,
                heartbeat_at=now,
            )
            for _ in range(101)
        ]
    )
    page = browser.get("/console/system")
    assert page.status_code == 200, page.text
    assert "The newest 100 are shown." in page.text
    assert "SPARK_" in page.text  # an instance without Spark had no such page: 409


def test_whole_files_that_go_are_told_as_a_loss() -> None:
    # The page said "Nothing." above a button that deletes them.
    files = [
        {"file": "00000001.jdb", "size_bytes": 7_000, "deleted": True},
        {"file": "00000002.jdb", "size_bytes": 9_000, "deleted": False},
    ]
    [loss] = losses({"erase": [], "files": files})
    assert (loss.what, loss.amount, loss.detail) == ("whole files that JE has put aside", "1 file", "7.0 kB")
