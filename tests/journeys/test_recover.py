"""The metadata comes back from an older copy than its targets have seen: refused first, then recovered."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lethe_client import Conflict

from tests.forge import run_lethe
from tests.journeys.crashes import build_large
from tests.journeys.ground import CUTOFF, add_store, assert_exact, expect, instant, purge_request
from tests.journeys.service import LETHE, Service, environment, serving, succeeded
from tests.oracles.symmetricds import Place, snapshot

pytestmark = pytest.mark.journey

CONFIGURATION = 78


@contextmanager
def _stopped(service: Service) -> Iterator[Path]:
    """The metadata file of a service that has ended in good order; started again by the test itself."""
    assert service.stop() == 0
    yield service.data_dir / "lethe.db"


def _recover(service: Service, store: str, *options: str) -> dict[str, Any]:
    """`lethe recover STORE --json`."""
    where = ["--url", service.url, "--data-dir", service.data_dir]
    done = run_lethe([LETHE, "recover", store, *where, "--json", *options], env=environment({}))
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def _purge_early(service: Service, store: str, place: Place) -> str:
    """A purge with an earlier cut-off than the oracle's, so that something is left for the last one."""
    request = purge_request(place, cutoff=instant(place, local=CUTOFF - timedelta(hours=2)))
    job = service.client.purges.create(store, request)
    succeeded(service.client, job.id)
    return job.id


def test_old_metadata_is_refused_until_it_is_recovered(tmp_path: Path, postgresql_url: str) -> None:
    """EPOCH_AHEAD for each store that has seen more, exit 78 when every store has; `lethe recover` ends it.

    Where every store was ahead, nothing could take one back: the service that had to be asked had ended.
    """
    places = {"lite": Place(f"sqlite:///{tmp_path}/lite.db"), "post": Place(postgresql_url)}
    copy = tmp_path / "copy.db"
    with serving(tmp_path / "service") as service:
        for store, place in places.items():
            build_large(place, 12, rows=150)
            add_store(service.client, store, place)
            _purge_early(service, store, place)
        with closing(sqlite3.connect(service.data_dir / "lethe.db")) as source:
            source.execute(f"vacuum into '{copy}'")
        # Jobs that the copy knows nothing of; the second store sees the greater epoch.
        lost = {store: [_purge_early(service, store, places[store]) for _ in range(2)] for store in places}
        with _stopped(service) as metadata:
            for suffix in ("-wal", "-shm"):
                metadata.with_name(metadata.name + suffix).unlink(missing_ok=True)
            shutil.copy(copy, metadata)
        service.spawn()
        assert service.wait_end() == CONFIGURATION
        assert "EPOCH_AHEAD" in service.tail()
        found = _recover(service, "lite", "--offline")
        assert found["epoch_after"] > found["epoch_before"]
        assert sorted(found["foreign_jobs"]) == sorted(lost["lite"])
        service.start()
        _assert_refused_then_recovered(service, places, lost)


def _assert_refused_then_recovered(
    service: Service, places: dict[str, Place], lost: dict[str, list[str]]
) -> None:
    client, before = service.client, snapshot(places["post"])
    with pytest.raises(Conflict) as refused:
        client.purges.create("post", purge_request(places["post"]))
    assert refused.value.code == "EPOCH_AHEAD"
    assert snapshot(places["post"]) == before
    _purge_exactly(service, "lite", places["lite"])
    found = _recover(service, "post")
    assert found["epoch_after"] > found["epoch_before"]
    assert sorted(found["foreign_jobs"]) == sorted(lost["post"])
    for job_id in (*lost["lite"], *lost["post"]):
        job = client.jobs.get(job_id)
        assert (job.state, job.reason) == ("ABORTED", "RECOVERED_FOREIGN")
    audited = [each.actor for each in client.audit.list() if each.action == "store.recover"]
    assert sorted(str(actor) for actor in audited) == ["admin", "lethe recover --offline"]
    _purge_exactly(service, "post", places["post"])


def _purge_exactly(service: Service, store: str, place: Place) -> None:
    expected = expect(place, snapshot(place))
    job = service.client.purges.create(store, purge_request(place))
    assert_exact(place, expected, succeeded(service.client, job.id))
