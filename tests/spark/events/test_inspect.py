"""What a look at a node tells, whoever looks."""

from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.log_switch import read_log_status
from spark.events.errors import CatalogIncomplete, NodeUninitialised, NotASlonyDatabase, UnknownCluster
from spark.events.inspect import Slon, SlonyInspection, inspect_node
from spark.events.rights import MissingRight
from spark.targets.connection import Target, connect
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, recorded_rows

# Recorded catalogs have tables, but neither functions nor views.
WITHOUT_FUNCTIONS = (
    MissingRight("CREATE_SYNC", "createevent", "EXECUTE"),
    MissingRight("CREATE_SYNC", "seqtrack", "EXECUTE"),
    MissingRight("CREATE_SYNC", "sl_seqlastvalue", "SELECT"),
    MissingRight("CLEANUP_NATIVE", "cleanupevent", "EXECUTE"),
    MissingRight("LOG_INDICES", "addpartiallogindices", "EXECUTE"),
)
SECRET = "hunter2"


def look(loaded: LoadedCatalog, *, read_only: bool = True) -> SlonyInspection:
    with loaded.connect(read_only=read_only) as conn:
        return inspect_node(conn, loaded.cluster)


@pytest.mark.parametrize("cluster", ["lab", "Night Shift"])
def test_recorded_node_is_told_in_full(catalogs: Catalogs, cluster: str) -> None:
    loaded = catalogs.load("fxa", 1, cluster=cluster)
    loaded.execute("analyze")
    found = look(loaded)
    with loaded.connect() as conn:
        assert found.catalog == read_catalog(conn, cluster)
        assert found.log_status == read_log_status(conn, found.catalog)
        [(size,)] = conn.execute("select pg_total_relation_size('sl_event')")
    rows = recorded_rows("fxa", 1)
    assert found.permissions_missing == WITHOUT_FUNCTIONS
    assert (found.slons, found.cleans_itself, found.sees_all_sessions) == ((), False, True)
    assert found.is_read_only is False
    assert found.oldest_event_at == min(datetime.fromisoformat(row[2]) for row in rows["sl_event"])
    assert found.sizes["sl_event"] == (len(rows["sl_event"]), size)
    assert {table: counted for table, (counted, _) in found.sizes.items()} == {
        "sl_event": 183,
        "sl_confirm": 154,
        "sl_seqlog": 119,
        "sl_log_1": 1484,
        "sl_log_2": 1361,
        "sl_log_script": 0,
    }
    assert found.identity.endswith(f":_{cluster}")
    assert abs(found.now - datetime.now(UTC)) < timedelta(seconds=20)
    assert found.server_version >= 120_000
    abilities = ("READ", "CONFIRM", "CLEANUP", "LOG_SWITCH", "CREATE_SYNC", "CLEANUP_NATIVE", "LOG_INDICES")
    assert [ability for ability in abilities if found.can(ability)] == [*abilities[:4]]


def test_slons_are_the_sessions_that_the_cluster_knows(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute("delete from sl_nodelock", "delete from sl_components")
    with (
        closing(loaded.raw(application_name="slon.local_cleanup")) as cleaner,
        closing(loaded.raw(application_name="slon.node_1_listen")) as listener,
        closing(loaded.raw(application_name="slon.local_sync")) as of_another_cluster,
        closing(loaded.raw(application_name="psql")) as reused,
    ):
        pids = {
            name: raw.info.backend_pid
            for name, raw in (("cleaner", cleaner), ("listener", listener), ("reused", reused))
        }
        loaded.execute(
            "insert into sl_components values"
            f" ('local_cleanup', 1, 0, {pids['cleaner']}, 'SYNC', '2026-11-20 08:00Z', 7, 'SYNC'),"
            " ('remote listener', 1, 2, 999999, 'thread main loop', now(), null, 'n/a')",
            f"insert into sl_nodelock values (2, 100, {pids['listener']}), (3, 101, {pids['reused']})",
        )
        found = look(loaded)
        assert of_another_cluster.info.backend_pid not in {slon.pid for slon in found.slons}
        user = cleaner.info.user
    since = datetime(2026, 11, 20, 8, tzinfo=UTC)
    slons = [
        Slon(pids["cleaner"], "slon.local_cleanup", user, "idle", None, "SYNC", since, 7),
        Slon(pids["listener"], "slon.node_1_listen", user, "idle", 2, None, None, None),
    ]
    assert list(found.slons) == sorted(slons, key=lambda slon: slon.pid)
    assert found.cleans_itself
    assert look(loaded).slons == ()


def test_tables_that_older_catalogs_lack_are_not_needed(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute("drop table sl_components, sl_nodelock")
    found = look(loaded)
    assert found.slons == ()
    assert [one for one in found.permissions_missing if one not in WITHOUT_FUNCTIONS] == [
        MissingRight("CLEANUP", "sl_nodelock", right) for right in ("SELECT", "DELETE")
    ]


def test_session_that_holds_back_the_switch_is_told(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    with loaded.raw(autocommit=False, application_name="forgotten") as raw:
        raw.execute("lock table sl_log_1 in row exclusive mode")
        raw.execute("insert into sl_registry (reg_key) values ('x')")
        found, pid = look(loaded), raw.info.backend_pid
        raw.rollback()
    assert found.log_status is not None
    [session] = [one for one in found.log_status.sessions if one.application_name == "forgotten"]
    assert (session.pid, session.state, session.has_lock) == (pid, "idle in transaction", True)
    assert session.backend_xid is not None
    assert session.age_s is not None


def test_no_secret_is_told(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute(f"update sl_path set pa_conninfo = 'host=h password={SECRET}'")
    with loaded.raw(application_name="slon.local_listen") as raw:
        loaded.execute(f"insert into sl_nodelock values (1, 100, {raw.info.backend_pid})")
        raw.execute(f"select 'password={SECRET}'")
        found = look(loaded)
    assert len(found.slons) == 1
    assert SECRET not in repr(found)


def test_role_without_any_right_is_told_so(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxa", 1, cluster="Night Shift"), catalogs.role()
    found = look(loaded.as_role(role))
    abilities = {one.ability for one in found.permissions_missing}
    assert set(found.permissions_missing) == {
        MissingRight(ability, "_Night Shift", "USAGE") for ability in abilities
    }
    assert len(abilities) == 7
    assert (found.catalog, found.log_status, found.oldest_event_at) == (None, None, None)
    assert (found.sees_all_sessions, found.slons) == (False, ())
    assert found.sizes["sl_event"][1] > 0  # type: ignore[operator]


def test_role_that_may_not_read_who_is_a_slon_goes_by_their_names(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    with loaded.raw(application_name="slon.local_cleanup") as raw:
        found = look(loaded.as_role(role))
        user, pid = raw.info.user, raw.info.backend_pid
    assert found.slons == (Slon(pid, "slon.local_cleanup", user, None, None, None, None, None),)
    assert found.cleans_itself


def test_read_only_database_takes_nothing(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    database = loaded.url.rsplit("/", 1)[1]
    loaded.execute(f"alter database {database} set default_transaction_read_only = on")
    found = look(loaded, read_only=False)
    assert found.is_read_only
    assert (found.can("READ"), found.can("CONFIRM"), found.can("CLEANUP")) == (True, False, False)
    assert found.permissions_missing == WITHOUT_FUNCTIONS


def test_what_is_no_node_is_refused_by_its_reason(catalogs: Catalogs, postgresql_url: str) -> None:
    with (
        connect(Target(postgresql_url, schema="_lab"), application_name="lethe-test") as conn,
        pytest.raises(NotASlonyDatabase),
    ):
        inspect_node(conn, "lab")
    loaded = catalogs.load("fxa", 1)
    with loaded.connect() as conn, pytest.raises(UnknownCluster):
        inspect_node(conn, "LAB")
    loaded.execute("select setval('sl_local_node_id', -1)")
    with pytest.raises(NodeUninitialised):
        look(loaded)
    loaded.execute("drop table sl_log_script")
    with pytest.raises(CatalogIncomplete):
        look(loaded)


def test_empty_node_has_nothing_to_tell(catalogs: Catalogs) -> None:
    found = look(catalogs.empty())
    assert found.oldest_event_at is None
    assert found.catalog is not None
    assert (found.catalog.nodes, found.catalog.paths) == ((), ())
    assert found.slons == ()
