"""The alert rules and the dashboard that are shipped: promtool judges them, each rule has a page to read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from app.jobs.counting import QUEUED
from app.jobs.running.waits import PLANNED

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "docs" / "monitoring"
RULES, RULES_TEST = MONITORING / "lethe.rules.yml", MONITORING / "lethe.rules_test.yml"
DAYS_TEST = MONITORING / "lethe.rules_days_test.yml"
"""In longer steps: in those of a minute three days of all rules take a minute of a processor."""
ALERT = re.compile(r"^ *- alert: (\w+)$", re.MULTILINE)
RUNBOOK = re.compile(
    r"""^ *runbook_url: '{{ or \$externalLabels.lethe_runbook "(\S+)" }}(#\w+)'$""", re.MULTILINE
)


def run(promtool: str, *arguments: str) -> str:
    """What promtool says, where it has nothing against it."""
    done = subprocess.run([promtool, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_rules_are_sound(promtool: str) -> None:
    alerts = ALERT.findall(RULES.read_text())
    assert f"{len(alerts)} rules found" in run(promtool, "check", "rules", RULES.name)


def test_rules_fire_where_they_should_and_rest_where_all_is_well(promtool: str) -> None:
    assert run(promtool, "test", "rules", RULES_TEST.name, DAYS_TEST.name).count("SUCCESS") == 2


def test_rule_that_never_fires_is_found(promtool: str, tmp_path: Path) -> None:
    (tmp_path / RULES.name).write_text(RULES.read_text().replace('up{job="lethe"} == 0', "up == 2"))
    of_others = "  - name: LetheNobodyWorks"
    (tmp_path / RULES_TEST.name).write_text(RULES_TEST.read_text().partition(of_others)[0])
    done = subprocess.run(
        [promtool, "test", "rules", RULES_TEST.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "LetheDown" in done.stderr + done.stdout


def test_every_rule_is_tested_to_fire_and_to_rest() -> None:
    text = RULES_TEST.read_text() + DAYS_TEST.read_text()
    alerts = ALERT.findall(RULES.read_text())
    assert alerts
    for alert in alerts:
        cases = re.findall(rf"alertname: {alert}\n +exp_alerts:( \[\])?", text)
        assert sorted(cases) == ["", " []"], alert


def test_every_rule_leads_to_a_heading_that_is_there() -> None:
    text = RULES.read_text()
    links = RUNBOOK.findall(text)
    assert len(links) == len(ALERT.findall(text)) == len(set(links))
    for page, anchor in links:
        assert anchor.removeprefix("#") in anchors(ROOT / page), anchor


def test_rule_of_waits_leaves_out_what_is_planned() -> None:
    [causes] = re.findall(r'seconds{cause!~"([A-Z|]+)"}', RULES.read_text())
    assert set(causes.split("|")) == PLANNED | {QUEUED}  # which LetheQueueOld tells


def test_links_of_the_page_lead_to_headings_that_are_there() -> None:
    page = MONITORING / "README.md"
    for target, anchor in re.findall(r"\]\(([^)#]+)(?:#([^)]+))?\)", page.read_text()):
        there = (MONITORING / target).resolve()
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), (target, anchor)


def test_dashboard_asks_one_source_and_draws_nothing_over_another() -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    panels = dashboard["panels"]
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource"}
    for panel in panels:
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        assert all(target["expr"] for target in panel["targets"]), panel["title"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels})


def test_queries_of_the_dashboard_are_sound(promtool: str, tmp_path: Path) -> None:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) >= len(dashboard["panels"])
    rules = "".join(
        f"  - record: 'x{place}'\n    expr: >-\n      {query}\n" for place, query in enumerate(queries)
    )
    (tmp_path / "queries.yml").write_text(f"groups:\n- name: queries\n  rules:\n{rules}")
    assert f"{len(queries)} rules found" in run(promtool, "check", "rules", str(tmp_path / "queries.yml"))


def anchors(page: Path) -> set[str]:
    """What links to headings of a page end with."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", [RULES.name, RULES_TEST.name, DAYS_TEST.name, "dashboard.json"])
def test_page_names_each_file(name: str) -> None:
    assert name in (MONITORING / "README.md").read_text()
