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


def test_service_on_postgresql_proves_that_it_hears_news(postgresql_service: ServiceProcess) -> None:
    with postgresql_service.http() as http:
        lines = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
    assert float(lines["lethe_news_silence_seconds"]) < 120
    assert float(lines["lethe_news_reconnects_total"]) >= 0
