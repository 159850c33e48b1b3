"""Exports and imports whose service is killed at many moments: the job ends well, and nothing is left."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.replicas import Pair, Site, register
from tests.journeys.service import Service, serving

pytestmark = [pytest.mark.journey, pytest.mark.long]
ENTRIES = 40_000
DELAYS_S = (0.02, 0.15, 0.4, 0.8, 1.5)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = {"LETHE_SPARK__ENABLED": "false", "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1"}
    with serving(tmp_path_factory.mktemp("snapshots"), settings) as made:
        yield made


def _killed(site: Site, what: str, path: Path, *, delay_s: float) -> dict[str, object]:
    """Begin a job, kill its service a moment later, and wait for the job's end."""
    job = site.done("POST", f"{site.path}/{what}", 202, json={"path": str(path)})
    time.sleep(delay_s)
    site.service.crash()
    ended = Pair(site, site, "").wait(job["id"])
    assert ended["state"] == "SUCCEEDED", ended
    result: dict[str, object] = ended["result"]
    return result


def test_whenever_the_service_dies_the_file_is_whole_and_the_replica_full(
    service: Service, tmp_path: Path
) -> None:
    supplier = register(service, "from", f"sqlite:///{tmp_path}/from.db", 1)
    for part in range(4):
        supplier.write(ENTRIES // 4, prefix=f"p{part}", value=b"v" * 400)
    kept = supplier.entries()
    for delay_s in DELAYS_S:
        number = next(_numbers)
        path = tmp_path / f"snapshot-{number}"
        exported = _killed(supplier, "replica-exports", path, delay_s=delay_s)
        assert (exported["entries"], exported["bytes"]) == (ENTRIES, path.stat().st_size)
        consumer = register(service, f"to-{number}", f"sqlite:///{tmp_path}/to-{number}.db", 1 + number)
        imported = _killed(consumer, "replica-imports", path, delay_s=delay_s)
        assert imported["entries"] == ENTRIES
        assert consumer.entries() == kept
        assert consumer.ruv() == supplier.ruv()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
