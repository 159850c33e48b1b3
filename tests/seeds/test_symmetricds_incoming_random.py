"""The document's Incoming Purge and Data Gap Purge on random databases: its own statements and the oracle."""

from __future__ import annotations

from random import Random

import pytest

from tests.oracles.symmetricds import CUTOFF, Place, create, empty, load, snapshot
from tests.oracles.symmetricds_incoming import expected_after, literal_gap_purge, literal_incoming_purge
from tests.oracles.symmetricds_random_incoming import random_gaps, random_incoming

# At most about this many chunks of a node's range: ids may be far apart, and a server fsyncs each.
CHUNKS_MAX = 20


def run_incoming(place: Place, seeds: range) -> None:
    """Hold the document's statements against the oracle on one random database for each seed."""
    create(place)
    removed = 0
    for seed in seeds:
        rng = Random(seed)
        empty(place)
        load(place, random_incoming(rng, place.version, place.collation))
        before = snapshot(place)
        ids = [row["batch_id"] for row in before["incoming_batch"]] or [0]
        limit = max(rng.choice([0, 1, 3, 20, 5000]), (max(ids) - min(ids)) // CHUNKS_MAX)
        counted = literal_incoming_purge(place, CUTOFF, batches_limit=limit)
        expected = expected_after("INCOMING", place, before, CUTOFF)
        assert snapshot(place) == expected, f"seed {seed}"
        assert counted == len(before["incoming_batch"]) - len(expected["incoming_batch"]), f"seed {seed}"
        removed += counted
    assert removed > len(seeds)


def run_gaps(place: Place, seeds: range, *, loose: bool) -> None:
    """The same for gaps; `loose` lets columns be NULL that SymmetricDS declares not null."""
    create(place, loose=loose)
    removed = 0
    for seed in seeds:
        rng = Random(seed)
        empty(place)
        load(place, random_gaps(rng, place.version, loose=loose))
        before = snapshot(place)
        counted = literal_gap_purge(place, CUTOFF)
        expected = expected_after("DATA_GAP", place, before, CUTOFF)
        assert snapshot(place) == expected, f"seed {seed}"
        removed += counted
    assert removed > len(seeds)


def test_random_incoming_batches_are_left_as_the_oracle_says(place: Place) -> None:
    """Facts, section 4: "per node min..max of (create_time<cutoff, OK); deletes all OK in that range"."""
    run_incoming(place, range(15 if place.dialect == "sqlite" else 4))


@pytest.mark.parametrize("loose", [False, True])
def test_random_data_gaps_are_left_as_the_oracle_says(place: Place, loose: bool) -> None:
    """Facts, section 4: "last_update_time < gap cutoff and status <> 'GP'"; 3.9 and later by is_expired."""
    run_gaps(place, range(15 if place.dialect == "sqlite" else 3), loose=loose)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_incoming_batches_are_left_as_the_oracle_says(place: Place) -> None:
    """The same with more seeds."""
    run_incoming(place, range(10_000, 11_000))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_data_gaps_are_left_as_the_oracle_says(place: Place) -> None:
    """The same with more seeds."""
    run_gaps(place, range(10_000, 11_000), loose=True)
