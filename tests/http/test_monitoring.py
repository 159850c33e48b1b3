"""Every figure that the alert rules and the dashboard name is served by a running service."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.http.service_process import ServiceProcess

MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"
FIGURE = re.compile(r"\blethe_\w+")
FAMILY = re.compile(r"^# TYPE (\S+) (\w+)$", re.MULTILINE)


def _named() -> set[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    texts = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = (MONITORING / "lethe.rules.yml").read_text()
    texts += re.findall(r"expr: >-\n +(.+)", rules)
    return {name for text in texts for name in FIGURE.findall(text)}


def test_every_figure_that_rules_and_dashboard_name_is_served(postgresql_service: ServiceProcess) -> None:
    with postgresql_service.http() as http:
        text = http.get("/metrics").text
    served: set[str] = set()
    for family, kind in FAMILY.findall(text):
        served |= (
            {f"{family}_bucket", f"{family}_sum", f"{family}_count"} if kind == "histogram" else {family}
        )
    named = _named()
    assert len(named) > 25
    assert named - served == set()


OPERATIONS = MONITORING.parent / "reference" / "operations.md"
NAME = re.compile(r"`(_?[a-z]\w*\*?)(?:\{[\w,]+\})?`")


def _figures_of_the_page() -> list[list[str]]:
    """The figures of each row of the table, with `*` where a row stands for several."""
    table = OPERATIONS.read_text().partition("## Figures")[2].partition("\n## ")[0]
    rows = []
    for line in table.splitlines():
        if line.startswith("| `lethe_"):
            names: list[str] = []
            for name in NAME.findall(line.split(" | ")[0]):
                # `_rows` behind `lethe_x_batches`: the same beginning.
                names.append(name if name[0] != "_" else names[0].rpartition("_")[0] + name)
            rows.append(names)
    return rows


def test_every_figure_that_is_served_is_in_the_table_of_the_operations_guide(
    postgresql_service: ServiceProcess,
) -> None:
    """Those of webhooks were in no row."""
    with postgresql_service.http() as http:
        text = http.get("/metrics").text
    served = {family for family, _ in FAMILY.findall(text) if not family.endswith("_created")}
    named = [re.escape(name).replace(r"\*", r"\w*") for row in _figures_of_the_page() for name in row]
    known = re.compile("|".join(named) + "|lethe_purge_rows_removed")
    assert len(served) > 50
    assert [family for family in sorted(served) if not known.fullmatch(family)] == []


PROCESS = ("http", "spark", "news", "change_feed", "build", "api_process")


def test_rows_that_are_of_a_process_are_as_many_as_the_page_says() -> None:
    """It said five, and a sixth had been added."""
    said = re.search(r"All but the last (\w+) rows come from the metadata", OPERATIONS.read_text())
    assert said is not None
    own = [row[0].removeprefix("lethe_").startswith(PROCESS) for row in _figures_of_the_page()]
    number = ["none", "one", "two", "three", "four", "five", "six", "seven", "eight"].index(said[1])
    assert own == [False] * (len(own) - number) + [True] * number


def test_service_on_postgresql_proves_that_it_hears_news(postgresql_service: ServiceProcess) -> None:
    with postgresql_service.http() as http:
        lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines["lethe_news_silence_seconds"]) < 120
    assert float(lines["lethe_news_reconnects_total"]) >= 0
