"""Targets that are put back to an earlier state: trimming minds what a consumer lacks now, not once."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.http.replica_stores import ConsumerStore
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.supplying import Pair, entries, make_pair, write


@pytest.fixture
def pair(http: httpx.Client, service: ServiceProcess, roots: Path) -> Pair:
    return make_pair(http, service, roots)


def _execute(store: ConsumerStore, *statements: str) -> None:
    assert store.path is not None
    with closing(sqlite3.connect(store.path, timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _trim(pair: Pair) -> int:
    """Trim all that may go; how many records went."""
    _execute(pair.supplier, "update replica_changelog set logged_at_s = logged_at_s - 100000")
    body = {"kind": "CHANGELOG", "retention_minutes": 60}
    job = wait_for(pair.http, accepted(pair.http.post(f"{pair.store}/purges", json=body)), "SUCCEEDED")
    removed: int = job["result"]["removed"]["changelog"]
    return removed


def test_a_consumer_that_was_put_back_is_not_trimmed_away_from(pair: Pair) -> None:
    csn = str(write(pair.supplier, 4, prefix="a")["last_csn"])
    write(pair.supplier, 6, prefix="b")
    pair.run("SUCCEEDED")
    _execute(
        pair.consumer,
        f"delete from replica_changelog where csn > '{csn}'",
        f"delete from replica_entries where csn > '{csn}'",
        f"update replica_ruv set max_csn = '{csn}' where rid = 1",
    )
    session = pair.session_of(pair.run("SUCCEEDED", max_changes=2))
    assert session["outcome"] == "YIELDED"
    assert _trim(pair) == 6
    assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)
    assert _trim(pair) == 4


def test_a_supplier_that_was_put_back_to_before_its_agreement_trims_nothing_of_its_consumers(
    pair: Pair,
) -> None:
    write(pair.supplier, 5)
    _execute(pair.supplier, "delete from replica_agreement_ruv", "delete from replica_agreements")
    assert _trim(pair) == 0
    assert pair.session_of(pair.run("SUCCEEDED"))["outcome"] == "UP_TO_DATE"
    assert entries(pair.consumer) == entries(pair.supplier)
