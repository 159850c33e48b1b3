"""A data directory that was copied while its service works on: two processes, one id, one metadata."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import httpx
import pytest

from tests.journeys.crashes import build_large
from tests.journeys.ground import add_store, assert_exact, expect, purge_request
from tests.journeys.service import Service, started, succeeded, until
from tests.oracles.symmetricds import Place, snapshot

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]

NAMED = "another process works under the id of this one"
LOOKS_S = 5.0
SOON_S = 20.0


def _readiness(service: Service) -> int:
    return httpx.get(f"{service.url}/readyz").status_code


def test_a_copy_takes_nothing_from_its_original_and_goes_on_when_that_has_ended(
    tmp_path: Path, postgresql_url: str
) -> None:
    """The copy took the running job away at its start; on another machine it wrote into a second archive."""
    place = Place(f"sqlite:///{tmp_path}/shop.db")
    build_large(place, 14, rows=200)
    expected = expect(place, snapshot(place))
    settings = {"LETHE_METADATA_URL": postgresql_url, "LETHE_MIGRATE": "true"}
    request = purge_request(place, archive=True, max_rows_in_tx=5, rows_per_s=10)
    copy = Service(tmp_path / "copy", settings)
    with started(Service(tmp_path / "original", settings)) as original:
        client = original.client
        add_store(client, "shop", place)
        job_id = client.purges.create("shop", request).id
        until(lambda: (client.jobs.get(job_id).progress.done or 0) > 10)
        shutil.copytree(original.data_dir, copy.data_dir)
        copy.spawn()
        try:
            until(lambda: NAMED in copy.log.read_text())
            time.sleep(LOOKS_S)
            assert client.jobs.get(job_id).raw["attempt"] == 1
            client.jobs.throttle(job_id, lift=True)
            assert_exact(place, expected, succeeded(client, job_id))
            assert client.jobs.get(job_id).raw["attempt"] == 1
            assert _readiness(copy) == 503
            assert original.stop() == 0
            until(lambda: _readiness(copy) == 200, timeout_s=SOON_S)
        finally:
            copy.kill9()
