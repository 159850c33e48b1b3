"""The way of a metadata database to head: from empty, after a copy, and never from a future."""

import json
import os
import sqlite3
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlmodel import select

from app.db import Database
from app.replication.rows import Agreement
from app.secrets.errors import SecretUnavailable
from app.secrets.rows import Secret
from app.secrets.service import unusable_secrets
from app.settings import Settings
from app.stores.rows import Store
from app.stores.targets import target_of
from app.tables import metadata
from migrations.upgrade import (
    ADVISORY_KEY,
    copy_before_upgrade,
    current_revision,
    head_revision,
    is_known,
    upgrade,
    upgrade_within,
)
from tests.conftest import SharedServer
from tests.forge import LETHE, Forked, start_lethe
from tests.migrations.steps import step_down, step_up

ROOT = Path(__file__).resolve().parents[2]


def differences(database: Database) -> list[object]:
    with database.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def test_empty_database_comes_to_head_and_equals_the_models(empty_database: Database) -> None:
    assert current_revision(empty_database) is None
    upgrade(empty_database)
    assert current_revision(empty_database) == head_revision()
    assert is_known(head_revision())
    assert differences(empty_database) == []
    with empty_database.reading() as db:
        tables = set(sa.inspect(db.connection()).get_table_names())
        assert tables == {*metadata.tables, "alembic_version"}
        assert (
            db.execute(sa.text("select value from counters where name = 'fencing_token'")).scalar_one() == 0
        )


def test_upgrade_again_changes_nothing(empty_database: Database) -> None:
    upgrade(empty_database)
    with empty_database.transaction() as db:
        db.execute(sa.text("update counters set value = 41"))
    upgrade(empty_database)
    with empty_database.reading() as db:
        assert db.execute(sa.text("select value from counters")).scalar_one() == 41


def test_upgrades_at_once_run_one_after_the_other(empty_database: Database, tmp_path: Path) -> None:
    url = empty_database.url.render_as_string(hide_password=False)
    # alembic's own environment is one per process: what races here is the database
    both = [lethe("migrate", data_dir=tmp_path, url=url) for _ in range(2)]
    assert [ended(one) for one in both] == [(0, "")] * 2
    assert current_revision(empty_database) == head_revision()


@pytest.mark.postgresql
@pytest.mark.parametrize("turn", ["pg_advisory_lock", "pg_advisory_lock_shared"], ids=["upgrade", "backup"])
def test_upgrade_waits_for_another_longer_than_a_request_waits(postgresql_url: str, turn: str) -> None:
    hasty = Database(postgresql_url, lock_timeout_ms=100, statement_timeout_ms=300)
    with closing(Database(postgresql_url)) as other, ThreadPoolExecutor(1) as pool, other.reading() as db:
        db.execute(sa.text(f"select {turn}({ADVISORY_KEY})"))
        upgrading = pool.submit(upgrade, hasty)
        with pytest.raises(TimeoutError):
            upgrading.result(timeout=1)
        db.execute(sa.text("select pg_advisory_unlock_all()"))
        upgrading.result(timeout=60)
    assert current_revision(hasty) == head_revision()
    with hasty.reading() as db:  # nothing of it is left to the pool
        assert db.execute(sa.text("show lock_timeout")).scalar_one() == "100ms"
    hasty.close()


def test_downgrade_leaves_nothing_behind(empty_database: Database) -> None:
    upgrade(empty_database)
    step_down(empty_database, "base")
    with empty_database.reading() as db:
        assert set(sa.inspect(db.connection()).get_table_names()) == {"alembic_version"}


def test_failed_upgrade_leaves_the_database_as_it_was(empty_database: Database) -> None:
    with empty_database.engine.begin() as connection:  # a table in the way of one of the last steps
        connection.exec_driver_sql("create table job_events (surplus integer)")
    with pytest.raises(sa.exc.DBAPIError):
        upgrade(empty_database)
    assert current_revision(empty_database) is None
    with empty_database.reading() as db:
        assert set(sa.inspect(db.connection()).get_table_names()) == {"job_events"}


def test_copy_before_an_upgrade_holds_what_only_the_log_had(tmp_path: Path) -> None:
    # facts/locks.md: "A plain copy of a WAL database was empty: copy with VACUUM INTO."
    database = Database(f"sqlite:///{tmp_path / 'lethe.db'}")
    upgrade(database)
    with database.transaction() as db:
        db.execute(sa.text("update counters set value = 41"))
    for _ in range(2):  # a second start replaces the copy
        copy = copy_before_upgrade(database, head_revision())
    database.close()
    assert copy == tmp_path / f"lethe.before-{head_revision()}.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("select value from counters").fetchall() == [(41,)]
        assert copied.execute("select version_num from alembic_version").fetchall() == [(head_revision(),)]


def test_copy_of_a_start_that_was_slower_does_not_replace_that_of_before_the_upgrade(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'lethe.db'}")
    with database.engine.begin() as connection:
        upgrade_within(connection, "0025")
    copy = copy_before_upgrade(database, "0025")  # two starts have read this revision, and one is quicker
    upgrade(database)
    assert copy_before_upgrade(database, "0025") is None
    database.close()
    assert copy is not None
    with closing(sqlite3.connect(copy)) as copied:
        assert copied.execute("select version_num from alembic_version").fetchall() == [("0025",)]
    assert sorted(path.name for path in tmp_path.glob("*before*")) == [copy.name]


def test_upgrade_of_a_file_waits_for_the_one_that_upgrades_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.kit.metadata.engines.SQLITE_BUSY_TIMEOUT_MS", 100)
    path = tmp_path / "lethe.db"
    hasty = Database(f"sqlite:///{path}")
    with hasty.engine.begin() as connection:
        upgrade_within(connection, "0025")
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as pool:
        other.execute("begin immediate")
        upgrading = pool.submit(upgrade, hasty)
        with pytest.raises(TimeoutError):
            upgrading.result(timeout=1)
        other.execute("rollback")
        upgrading.result(timeout=60)
    assert current_revision(hasty) == head_revision()
    with hasty.engine.connect() as connection:  # nothing of it is left to the pool
        assert connection.exec_driver_sql("pragma busy_timeout").scalar_one() == 100
    hasty.close()


def test_a_switch_that_did_nothing_before_does_not_begin_to_purge(empty_database: Database) -> None:
    """Revision 0001 took `start.purge.job` for the program's own switch; since 0002 it makes Lethe purge."""
    step_up(empty_database, "0001")
    store = (
        "insert into stores (id, kind, url, table_prefix, time_zone, labels, runs_on, parameters, limits,"
        " version, is_suspended, target_parameters, created_at, updated_at) values ('shop', 'SYMMETRICDS',"
        " 'sqlite:////x', 'sym_', 'UTC', '{}', '[]', :parameters, '{}', 1, false, '{}',"
        " '2026-01-01', '2026-01-01')"
    )
    kept = '{"start.purge.job": true, "purge.retention.minutes": 60}'
    with empty_database.transaction() as db:
        db.execute(sa.text(store), {"parameters": kept})
    upgrade(empty_database)
    with empty_database.reading() as db:
        [(parameters,)] = db.execute(sa.text("select parameters from stores")).all()
    found = json.loads(parameters) if isinstance(parameters, str) else parameters
    assert found == {"purge.retention.minutes": 60}


FORMER = {
    # store: url, reference, the host that its secret is bound to
    "plain": ("postgresql+psycopg://u@db.example/shop", "env:SHOP_PASSWORD", "db.example:5432"),
    "six": ("postgresql+psycopg://u@[::1]:6000/shop", "file:/etc/lethe/shop", "[::1]:6000"),
    "own": ("postgresql+psycopg://u@/shop", "env:LETHE_SECRET_OWN", "socket"),
    "socket": ("postgresql+psycopg://u@/shop?host=/run/pg", "env:LETHE_SECRET_OWN", "/run/pg"),
    "maria": ("mysql+pymysql://u@db.example:3307/shop", "file:/etc/shadow", "db.example:3307"),
    "maria-socket": ("mysql+pymysql://u@/shop?unix_socket=/run/m/m.sock", "env:PATH", "/run/m"),
}


def test_references_of_before_become_secrets_that_only_their_store_and_host_may_use(
    empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no place for secrets is registered too, and read no more: a check tells how to mend it."""
    step_up(empty_database, "0001")
    store = (
        "insert into stores (id, kind, url, password, table_prefix, time_zone, labels, runs_on, parameters,"
        " limits, version, is_suspended, target_parameters, created_at, updated_at) values (:id,"
        " 'SYMMETRICDS', :url, :password, 'sym_', 'UTC', '{}', '[]', '{}', '{}', 1, false, '{}',"
        " '2026-01-01', '2026-01-01')"
    )
    agreement = (
        "insert into agreements (id, store, state, consumer_url, consumer_store, consumer_token, strategy,"
        " batch_rows, batch_bytes, in_flight, failures, sent, version, created_at, updated_at) values"
        " ('agr_1', 'plain', 'REGISTERED', 'https://east.example/base', 'there', 'file:/etc/lethe/east',"
        " 'WINDOW', 1, 1, 1, 0, '{}', 1, '2026-01-01', '2026-01-01')"
    )
    with empty_database.transaction() as db:
        for name, (url, reference, _host) in FORMER.items():
            db.execute(sa.text(store), {"id": name, "url": url, "password": reference})
        db.execute(sa.text(store), {"id": "open", "url": "sqlite:////x", "password": None})
    step_up(empty_database, "0009")
    with empty_database.transaction() as db:
        db.execute(sa.text(agreement))
    upgrade(empty_database)
    monkeypatch.setenv("LETHE_SECRET_OWN", "of-own")
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    place = Settings(data_dir=tmp_path / "data", secrets_dir=tmp_path)
    with empty_database.reading() as db:
        rows = {row.name: row for row in db.exec(select(Secret)).all()}
        stores = {row.id: row for row in db.exec(select(Store)).all()}
        [token] = db.exec(select(Agreement.consumer_token)).all()
    assert set(rows) == {f"store-{name}" for name in FORMER} | {"agreement-agr_1"}
    assert (token, rows["agreement-agr_1"].hosts) == ("secret:agreement-agr_1", ["east.example:443"])
    assert stores["open"].password is None
    for name, (_url, reference, host) in FORMER.items():
        row = rows[f"store-{name}"]
        assert (row.reference, row.stores, row.hosts, row.labels) == (reference, [name], [host], {})
        assert stores[name].password == f"secret:store-{name}"
        if reference == "env:LETHE_SECRET_OWN":
            target = target_of(stores[name], place, empty_database)
            assert (target.password, target.hosts) == ("of-own", ((host,),))
            continue
        with pytest.raises(SecretUnavailable) as refused:
            target_of(stores[name], place, empty_database)
        assert "hunter2" not in refused.value.detail
        assert f"lethe secret update store-{name} --reference" in refused.value.detail
    assert set(unusable_secrets(empty_database, place)) == set(rows) - {"store-own", "store-socket"}
    step_down(empty_database, "0009")
    with empty_database.reading() as db:
        back = dict(db.execute(sa.text("select id, password from stores")).all())
        assert back == {name: reference for name, (_, reference, _) in FORMER.items()} | {"open": None}


def test_nothing_to_copy_is_no_error(tmp_path: Path, postgresql_url: str) -> None:
    for url in (f"sqlite:///{tmp_path / 'none.db'}", "sqlite://", postgresql_url):
        database = Database(url)
        assert copy_before_upgrade(database, "0001") is None
        database.close()


@dataclass(frozen=True)
class Started:
    """A command that runs, and where its complaint goes."""

    process: subprocess.Popen[bytes] | Forked
    complaint: Path


def lethe(*arguments: str, data_dir: Path, url: str | None = None) -> Started:
    environment = os.environ | {"LETHE_DATA_DIR": str(data_dir), "LETHE_PORT": "0"}
    if url is not None:
        environment["LETHE_METADATA_URL"] = url
    complaint = data_dir.with_name(f"{uuid.uuid4().hex}.log")
    with complaint.open("wb") as errors, Path(os.devnull).open("wb") as log:
        return Started(start_lethe([LETHE, *arguments], env=environment, log=log, errors=errors), complaint)


def _from_the_future(url: str) -> None:
    database = Database(url)
    upgrade(database)
    with database.transaction() as db:
        db.execute(sa.text("update alembic_version set version_num = '9999'"))
    database.close()


def ended(started: Started) -> tuple[int, str]:
    code = started.process.wait(60)
    return code, started.complaint.read_text()


def test_processes_refuse_what_they_may_not_or_cannot_migrate(
    tmp_path: Path, postgresql_server: SharedServer, postgresql_url: str
) -> None:
    future = tmp_path / "future"
    future.mkdir()
    _from_the_future(f"sqlite:///{future / 'lethe.db'}")
    name = f"lethe_{uuid.uuid4().hex[:12]}"
    postgresql_server.execute(f"create database {name}")
    _from_the_future(postgresql_server.url(name))
    refused = {
        "serve, from the future": lethe("serve", data_dir=future),
        "migrate, from the future": lethe(
            "migrate", data_dir=tmp_path / "a", url=postgresql_server.url(name)
        ),
        "serve, empty PostgreSQL": lethe("serve", data_dir=tmp_path / "b", url=postgresql_url),
        "worker, empty PostgreSQL": lethe("worker", data_dir=tmp_path / "c", url=postgresql_url),
    }
    found = {situation: ended(process) for situation, process in refused.items()}
    postgresql_server.execute(f"drop database {name} with (force)")
    assert {situation: code for situation, (code, _) in found.items()} == dict.fromkeys(refused, 78)
    assert "9999" in found["serve, from the future"][1]
    assert "9999" in found["migrate, from the future"][1]
    assert "lethe migrate" in found["serve, empty PostgreSQL"][1]


def test_migrate_brings_postgresql_to_head(tmp_path: Path, postgresql_url: str) -> None:
    assert ended(lethe("migrate", data_dir=tmp_path, url=postgresql_url))[0] == 0
    database = Database(postgresql_url)
    assert current_revision(database) == head_revision()
    database.close()
