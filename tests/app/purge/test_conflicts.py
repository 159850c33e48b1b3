"""Signs that the program purges by itself: what is switched on, what is on by default, the swapped names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.purge.conflicts import conflicts
from spark.formats.symmetricds import Layout, Version
from spark.purge.reading.inspect import Inspection


def _inspection(version: Version, own: dict[str, str | None]) -> Inspection:
    return Inspection(
        layout=Layout(version, frozenset(), (), common_batches=True, data_gap_has_status=version == "2.x"),
        server_version=150_000,
        identity="postgresql:1:1:public",
        now=datetime(2026, 11, 20, tzinfo=UTC),
        time_encoding="timestamp",
        permissions_missing=(),
        can_create_ledger=True,
        read_only=False,
        sizes={},
        sym_parameter=own,
        own_purge_running=(),
    )


def test_3x_that_says_nothing_is_on_by_default() -> None:
    [sign] = conflicts(_inspection("3.x", {}))
    assert "on by default: start.purge.outgoing.job and start.purge.incoming.job" in sign
    assert "swapped" in sign


@pytest.mark.parametrize("value", ["true", " TRUE ", "1"])
@pytest.mark.parametrize("name", ["start.purge.job", "start.purge.outgoing.job", "start.purge.incoming.job"])
def test_each_switch_that_is_on_is_named_with_the_swapped_names(name: str, value: str) -> None:
    signs = conflicts(_inspection("3.x", {name: value}))
    assert signs[0] == f"{name} is {value} in sym_parameter"
    assert "swapped" in signs[-1]


def test_both_switches_off_is_quiet_and_one_alone_is_not() -> None:
    off: dict[str, str | None] = {"start.purge.outgoing.job": "false", "start.purge.incoming.job": "false"}
    assert conflicts(_inspection("3.x", off)) == []
    [sign] = conflicts(_inspection("3.x", {"start.purge.outgoing.job": "false"}))
    assert "on by default: start.purge.incoming.job;" in sign


def test_2x_with_its_own_job_on_is_told_about_the_lock() -> None:
    signs = conflicts(_inspection("2.x", {"start.purge.job": "true"}))
    assert signs[0] == "start.purge.job is true in sym_parameter"
    assert "cluster.lock.enabled" in signs[1]
    assert conflicts(_inspection("2.x", {"start.purge.job": "false"})) == []


def test_what_runs_now_comes_first() -> None:
    running = replace(_inspection("3.x", {}), own_purge_running=("backend 7 is deleting",))
    assert conflicts(running)[0] == "backend 7 is deleting"
