"""What a real service costs that has nothing to do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.http.service_process import ServiceProcess

SETTLED_S = 10.0
WATCHED_S = 60.0
SHARE_MAX = 0.005


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_an_idle_service_takes_half_a_percent_of_a_core(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # 1.2 to 3 % before.
    url = request.getfixturevalue("postgresql_url") if kind == "postgresql" else None
    service = ServiceProcess(tmp_path, metadata_url=url).start()
    try:
        time.sleep(SETTLED_S)
        before = cpu_s(service.pid)
        time.sleep(WATCHED_S)
        share = (cpu_s(service.pid) - before) / WATCHED_S
    finally:
        service.stop()
    print(f"{share:.2%} of a core")
    assert share <= SHARE_MAX
