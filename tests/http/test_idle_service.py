"""What a real service costs that has nothing to do, bare and with stores, schedules and windows."""

from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.http.environments import write_small
from tests.http.service_process import ServiceProcess

SETTLED_S = 10.0
FIRST_CHECKS_S = 75.0
"""All stores were registered at once, and are looked at for the first time within this."""
WATCHED_S = {True: 60.0, False: 300.0}
"""With stores over a whole period of their checks, so that each is looked at once."""
SHARE_MAX = 0.005
TRANSACTIONS_MAX = 60
"""A minute."""
CHECKED = {"LETHE_STORE_CHECK_S": "300"}  # as a service does by default: tests of other things switch it off
STORES, SCHEDULES = 20, 50
TRANSACTIONS = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
NIGHTLY = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "cron": "30 2 * * *"}


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def transactions(url: str | None) -> int:
    """How many the metadata's server has seen; it tells them a second late."""
    if url is None:
        return 0
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as conn:
        [found] = conn.execute(TRANSACTIONS).fetchone() or (0,)
        return int(found)


def register(http: httpx.Client, directory: Path) -> None:
    """Stores of two kinds with what recurs switched on, schedules, and a window that is not open for long."""
    for number in range(STORES):
        path = write_small(directory / f"env-{number}")
        parameters = {"start.purge.job": True}
        url = f"sqlite:///{directory}/{number}.db"
        for body in (
            {"id": f"je-{number}", "kind": "JE", "path": str(path)},
            {"id": f"shop-{number}", "kind": "SYMMETRICDS", "url": url, "parameters": parameters},
        ):
            answer = http.post("/v1/stores", json=body)
            assert answer.status_code == 201, answer.text
    for number in range(SCHEDULES):
        answer = http.post("/v1/schedules", json=NIGHTLY | {"store": f"shop-{number % STORES}"})
        assert answer.status_code == 201, answer.text
    window = {"kind": "DENY", "cron": "0 8 1 1 *", "duration": "PT1H"}
    assert http.post("/v1/windows", json=window).status_code == 201


@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_bare", [True, False], ids=["bare", "registered"])
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_an_idle_service_takes_half_a_percent_of_a_core(
    kind: str, is_bare: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # 1.2 to 3 %, and 1,100 statements a minute, before.
    url = request.getfixturevalue("postgresql_url") if kind == "postgresql" else None
    service = ServiceProcess(tmp_path, metadata_url=url, settings=CHECKED).start()
    try:
        if not is_bare:
            with service.http() as http:
                register(http, tmp_path)
        time.sleep(SETTLED_S if is_bare else FIRST_CHECKS_S)
        watched_s = WATCHED_S[is_bare]
        before, asked_before = cpu_s(service.pid), transactions(url)
        time.sleep(watched_s)
        share = (cpu_s(service.pid) - before) / watched_s
        asked = (transactions(url) - asked_before) * 60.0 / watched_s
    finally:
        service.stop()
    print(f"{share:.2%} of a core, {asked:.0f} transactions a minute")
    assert share <= SHARE_MAX
    assert asked <= TRANSACTIONS_MAX
