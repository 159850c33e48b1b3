"""An upgrade of PostgreSQL metadata beside a former version that is being used."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lethe_client import Lethe, PurgeRequest

from app.db import Database
from migrations.upgrade import current_revision, head_revision
from tests.journeys.service import Service, environment, started
from tests.migrations.former import SETTINGS, WITH_PEERS, as_former, former_code

pytestmark = pytest.mark.postgresql

CLIENTS = 6
REQUEST = PurgeRequest(kind="OUTGOING", retention_minutes=100_000, overlap="QUEUE")


def _ask(client: Lethe, number: int, over: threading.Event, done: list[int], faults: list[str]) -> None:
    """Requests that write to the tables of an upgrade, each in an order of its own."""
    turn = 0
    while not over.is_set():
        turn += 1
        try:
            store = f"busy-{number}-{turn}"
            client.stores.create(
                store, f"sqlite:////nowhere/{store}.db", kind="SYMMETRICDS", runs_on=["nobody"]
            )
            client.purges.create(store, REQUEST)
            done.append(number)
        except Exception as fault:  # noqa: BLE001 -- the test tells it
            faults.append(repr(fault))


def test_metadata_in_use_comes_to_head(tmp_path: Path, postgresql_url: str) -> None:
    (tmp_path / "code").mkdir()
    former = former_code(WITH_PEERS, tmp_path / "code")
    if former is None:
        pytest.skip("this clone has no history: the former version's code is not here")
    settings = {**SETTINGS, "LETHE_METADATA_URL": postgresql_url, "LETHE_MIGRATE": "true"}
    old = Service(tmp_path / "old", settings)
    as_former(old, former)
    over = threading.Event()
    done: list[int] = []
    faults: list[str] = []
    with started(old):
        threads = [
            threading.Thread(target=_ask, args=(old.client, number, over, done, faults))
            for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        over.wait(3.0)
        command = [sys.executable, "-m", "app.cli.main", "migrate", "--data-dir", str(tmp_path / "new")]
        ended = subprocess.run(
            command, env=environment(settings), capture_output=True, text=True, timeout=120, check=False
        )
        before = len(done)
        over.wait(2.0)
        over.set()
        for thread in threads:
            thread.join(60)
        lines = old.log.read_text().splitlines()
        fives = [line for line in lines if '"status": 5' in line and "/readyz" not in line]
    print(f"{before} + {len(done) - before} turns, faults: {faults}, answers: {fives}, {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    database = Database(postgresql_url)
    assert current_revision(database) == head_revision()
    database.close()
    assert faults == []
    assert fives == [], "requests wait for it, and no longer than they may"
    assert len(done) > before
