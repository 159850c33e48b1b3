"""The units of systemd, as systemd judges them, and the chart's monitor, which no schema here knows."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.http.service_process import LETHE

ROOT: Final = Path(__file__).parents[2]
UNITS: Final = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
EXPOSURE_MAX: Final = 2.5
ANALYZE: Final = shutil.which("systemd-analyze")


@pytest.fixture(params=UNITS, ids=lambda unit: unit.stem)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit whose program and account are some that this machine has."""
    text = request.param.read_text()
    assert (
        f"ExecStart=/opt/lethe/bin/lethe {'worker' if 'worker' in request.param.stem else 'serve'}\n" in text
    )
    assert "User=lethe\nGroup=lethe\n" in text
    made = tmp_path / request.param.name
    made.write_text(
        text.replace("/opt/lethe/bin/lethe", str(LETHE)).replace(
            "=lethe\nGroup=lethe", "=daemon\nGroup=daemon"
        )
    )
    return made


@pytest.mark.skipif(ANALYZE is None, reason="no systemd on this machine")
def test_unit_is_one_that_systemd_takes(unit: Path) -> None:
    assert ANALYZE is not None
    ran = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if unit.name in line]) == (0, [])


@pytest.mark.skipif(ANALYZE is None, reason="no systemd on this machine")
def test_unit_is_hardened(unit: Path) -> None:
    assert ANALYZE is not None
    command = [ANALYZE, "security", "--offline=true", "--no-pager", str(unit)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", ran.stdout)
    assert level is not None, ran.stderr
    assert float(level[1]) <= EXPOSURE_MAX


def test_units_differ_in_what_they_run_and_where_they_write() -> None:
    service, worker = (
        (ROOT / "deploy/systemd" / name).read_text() for name in ("lethe.service", "lethe-worker.service")
    )
    same = worker.replace("lethe-worker", "lethe").replace("lethe worker", "lethe serve")
    lines = set(same.splitlines()) ^ set(service.splitlines())
    assert all(line.startswith(("#", "Description=")) for line in lines), lines


def test_monitor_has_the_fields_of_its_resource() -> None:
    # monitoring.coreos.com/v1 is in no registry that we reach: `make deploy` leaves it out.
    text = (ROOT / "deploy/helm/lethe/templates/service-monitor.yaml").read_text()
    assert "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\n" in text
    for field in (
        "  selector:\n    matchLabels:",
        "  endpoints:\n    - port: http\n      path: /metrics",
        "authorization:\n        credentials: { name:",
    ):
        assert field in text
