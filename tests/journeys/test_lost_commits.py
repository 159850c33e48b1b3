"""The network dies exactly at a COMMIT: whether it happened is asked of the ledger, never guessed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from lethe_client import Lethe

from tests.journeys.crashes import CRASHING, UNIT_ROWS, CrashedPurge, build_large
from tests.journeys.ground import add_store, expect, purge_request
from tests.journeys.service import Service, serving, succeeded
from tests.journeys.wire import CommitLosingProxy, Fate
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey


def _purge_over_bad_wire(
    client: Lethe, server: PostgresqlServer, directory: Path, *, seed: int, rate: float, rows: int
) -> CommitLosingProxy:
    rng = Random(seed)
    database = f"wire_{seed}"
    place = Place(server.create_database(database), rng.choice(("2.x", "3.x")))
    build_large(place, seed, rows=rows)

    def fate(number: int) -> Fate:
        if number == 1 or rng.random() >= rate:  # the first of all makes Lethe's own tables
            return "PASS"
        return rng.choice(("LOSE_ANSWER", "LOSE_ANSWER", "LOSE_COMMIT"))

    with CommitLosingProxy(server.port, fate) as proxy:
        store = f"wire-{seed}"
        url = place.url.replace(f":{server.port}/", f":{proxy.port}/")
        add_store(client, store, place, url=url)
        expected = expect(place, snapshot(place))
        request = purge_request(place, archive=True, max_rows_in_tx=UNIT_ROWS)
        purge = CrashedPurge(client, store, place, directory, rng)
        purge.job_id = client.purges.create(store, request).id
        result = succeeded(client, purge.job_id)
        purge.check(expected, result)
    return proxy


def test_a_commit_whose_answer_was_lost_keeps_its_archive_and_counts_once(
    standing_service: Service, standing_postgresql: PostgresqlServer, tmp_path: Path
) -> None:
    """One COMMIT of ten is cut after the server did it, or before it saw it: rows, counts, archive exact."""
    proxy = _purge_over_bad_wire(
        standing_service.client, standing_postgresql, tmp_path, seed=5, rate=0.1, rows=2_500
    )
    assert proxy.lost["LOSE_ANSWER"] >= 5, proxy.lost
    assert proxy.lost["LOSE_COMMIT"] >= 1, proxy.lost


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_lost_commits_keep_archive_and_counts(
    tmp_path: Path, standing_postgresql: PostgresqlServer
) -> None:
    """The same with more seeds, and wires that lose up to every third COMMIT."""
    lost = 0
    with serving(tmp_path / "service", CRASHING) as service:
        for seed in range(100, 112):
            rate = 0.05 + 0.28 * (seed - 100) / 12
            proxy = _purge_over_bad_wire(
                service.client, standing_postgresql, tmp_path, seed=seed, rate=rate, rows=2_000
            )
            lost += proxy.lost.total()
    assert lost >= 100
