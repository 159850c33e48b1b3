"""The demo's database is one that the purge's rules have something to say about."""

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta

from app.cli.demo.data import UNROUTED_ROWS, build

NOW = datetime(2026, 11, 20, 12)


def test_database_has_delivered_stuck_disabled_and_unrouted_rows(tmp_path) -> None:
    path = tmp_path / "shop.db"
    build(path, now=NOW, rows=20_000)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*), count(distinct data_id) from sym_data").fetchone() == (
            20_000,
            20_000,
        )
        unrouted = "select count(*) from sym_data where data_id not in (select data_id from sym_data_event)"
        assert db.execute(unrouted).fetchone() == (UNROUTED_ROWS,)
        orphans = (
            "select count(*) from sym_data_event"
            " where batch_id not in (select batch_id from sym_outgoing_batch)"
        )
        assert db.execute(orphans).fetchone() == (0,)
        oldest, newest = db.execute("select min(create_time), max(create_time) from sym_data").fetchone()
        old = str(NOW - timedelta(days=5))
        stuck = "select count(*) from sym_outgoing_batch where status = 'ER' and node_id = 'store-03'"
        assert db.execute(stuck).fetchone()[0] > 0
        waiting = (
            "select count(*) from sym_outgoing_batch where status = 'NE' and node_id = ? and create_time < ?"
        )
        assert db.execute(waiting, ("store-05", old)).fetchone()[0] > 0
        assert db.execute(waiting, ("store-01", old)).fetchone()[0] == 0
        assert db.execute("select sync_enabled from sym_node where node_id = 'store-05'").fetchone() == (0,)
        last = db.execute("select max(batch_id) from sym_outgoing_batch").fetchone()
        assert db.execute("select current_value from sym_sequence").fetchone() == last
    assert oldest.startswith("2026-11-10 12:00")
    assert newest.startswith("2026-11-20 11:59")


def test_same_time_makes_the_same_database(tmp_path) -> None:
    dumps = []
    for name in ("a.db", "b.db"):
        build(tmp_path / name, now=NOW, rows=3_000)
        with closing(sqlite3.connect(tmp_path / name)) as db:
            dumps.append(list(db.iterdump()))
    assert dumps[0] == dumps[1]
