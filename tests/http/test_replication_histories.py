"""A whole machine that was put back and written to: never green, nothing goes. Source: issue 15, B1."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.replica_stores import ConsumerStore
from tests.http.service_process import ServiceProcess
from tests.http.supplying import Pair, agree, entries, make_pair, token_file, write


def _copy(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target, timeout=10)) as after:
        before.backup(after)


def _own(rows: MetadataRows, store: ConsumerStore) -> list[Any]:
    return rows.query(f"select incarnation, own_max_csn from replicas where store = '{store.id}'")


@pytest.mark.parametrize("mode", ["INCREMENTAL", "TOTAL"])
def test_a_machine_put_back_and_written_to_is_diverged_on_both_ways(
    http: httpx.Client, service: ServiceProcess, roots: Path, tmp_path: Path, mode: str
) -> None:
    pair, rows = make_pair(http, service, roots), MetadataRows(service)
    token = f"file:{token_file(service, roots)}"
    made = agree(http, pair.consumer.id, pair.supplier.id, url=service.url, token=token).json()
    back = Pair(pair.consumer, pair.supplier, made)
    write(pair.supplier, 2, prefix="a")
    pair.run("SUCCEEDED")
    back.run("SUCCEEDED")
    assert pair.supplier.path is not None
    _copy(pair.supplier.path, tmp_path / "kept.db")
    [(incarnation, own_max)] = _own(rows, pair.supplier)
    write(pair.supplier, 3, prefix="lost")
    pair.run("SUCCEEDED")
    _copy(tmp_path / "kept.db", pair.supplier.path)
    rows.execute(
        f"update replicas set incarnation = '{incarnation}', own_max_csn = '{own_max}'"
        f" where store = '{pair.supplier.id}'"
    )
    write(pair.supplier, 1, prefix="new")
    before = entries(pair.supplier), entries(pair.consumer)
    for each in (pair, back):
        compared = each.compare()
        assert (compared["outcome"], compared["diverged"]) == ("DIVERGED", [1])
        job = each.run("FAILED", mode=mode)
        assert job["error"]["code"] in ("DIVERGED", "CONSUMER_AHEAD")
        if job["error"]["code"] == "DIVERGED":
            assert each.session_of(job)["outcome"] == "DIVERGED"
        assert each.status()["last_update_status_json"]["state"] == "red"
    assert (entries(pair.supplier), entries(pair.consumer)) == before
    assert sum(key.startswith("lost") for key in entries(pair.consumer)) == 3
