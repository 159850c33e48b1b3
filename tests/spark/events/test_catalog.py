"""What is read of a catalog, and how its absence is told."""

import sqlite3
from pathlib import Path

import pytest

from spark.events.catalog import NODES_MAX, path_digest, read_catalog
from spark.events.errors import CatalogIncomplete, NodeUninitialised, NotASlonyDatabase, UnknownCluster
from spark.events.records import Catalog, Node
from spark.events.records import Path as SlonyPath
from spark.formats.slony import TABLES
from spark.targets.connection import Target, connect
from spark.targets.errors import TargetReadOnly, TargetSchemaUnsupported
from tests.spark.events.catalogs import Catalogs, LoadedCatalog

SL = {node: path_digest(f"dbname=sl{node} host=127.0.0.1 port=54931 user=labpg") for node in (1, 2, 3)}


def read(loaded: LoadedCatalog) -> Catalog:
    with loaded.connect(read_only=True) as conn:
        return read_catalog(conn, loaded.cluster)


@pytest.mark.parametrize("node", [1, 2, 3])
@pytest.mark.parametrize("cluster", ["lab", "Night Shift", 'a"b:c%d;', "x" * 62])
def test_recorded_catalog_is_read(catalogs: Catalogs, cluster: str, node: int) -> None:
    loaded = catalogs.load("fxc", node, cluster=cluster)
    assert read(loaded) == Catalog(
        cluster=cluster,
        schema=f"_{cluster}",
        version=None,
        local_node=node,
        nodes=tuple(Node(number, True, False, f"Node {number}") for number in (1, 2, 3)),
        paths=tuple(SlonyPath(s, c, SL[s]) for s in (1, 2, 3) for c in (1, 2, 3) if s != c),
        functions=frozenset(),
    )


def test_installed_functions_and_their_version_are_found(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1, cluster="Lab 2")
    loaded.execute(
        "create function slonyVersion() returns text language sql as 'select ''2.2.11'''",
        "create function cleanupEvent(interval) returns int language sql as 'select 0'",
        "create function public.forwardConfirm() returns int language sql as 'select 0'",
    )
    found = read(loaded)
    assert (found.version, found.functions) == ("2.2.11", frozenset({"slonyversion", "cleanupevent"}))


def test_inactive_and_failed_nodes_are_told_apart(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute(
        "update sl_node set no_active = false where no_id = 2",
        "update sl_node set no_failed = true, no_comment = null where no_id = 3",
        "insert into sl_node (no_id, no_active) values (12, null)",
    )
    found = read(loaded)
    assert found.nodes == (
        Node(1, True, False, "Node 1"),
        Node(2, False, False, "Node 2"),
        Node(3, True, True, None),
        Node(12, False, False, None),
    )
    assert found.active == (1,)


def test_database_without_any_cluster_is_not_slony(postgresql_url: str) -> None:
    with (
        connect(Target(postgresql_url, schema="_lab"), application_name="lethe-test") as conn,
        pytest.raises(NotASlonyDatabase) as caught,
    ):
        read_catalog(conn, "lab")
    assert (caught.value.code, caught.value.detail) == (
        "NOT_A_SLONY_CLUSTER",
        "no cluster of Slony-I has its catalog in this database",
    )


@pytest.mark.parametrize("asked", ["Lab", "LAB", "_lab", "lab ", "x" * 80])
def test_unknown_cluster_is_told_with_those_that_are_there(catalogs: Catalogs, asked: str) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute('create schema "_other things"', "create schema _lab_copy")
    loaded.execute('create sequence "_other things".sl_local_node_id')
    with loaded.connect() as conn, pytest.raises(UnknownCluster) as caught:
        read_catalog(conn, asked)
    assert caught.value.code == "UNKNOWN_CLUSTER"
    assert caught.value.detail == f"there is no cluster {asked!r} in this database, but 'lab', 'other things'"


@pytest.mark.parametrize("table", [*TABLES])
def test_missing_table_is_named(catalogs: Catalogs, table: str) -> None:
    loaded = catalogs.load("fxa", 1)
    # A view of that name is none of the program's tables.
    loaded.execute(f"alter table {table} rename to gone", f"create view {table} as select 1 as one")
    with pytest.raises(CatalogIncomplete) as caught:
        read(loaded)
    assert (caught.value.code, caught.value.detail) == (
        "CATALOG_INCOMPLETE",
        f"the schema of cluster 'lab' has no {table}: removed in part, or of a version before 2.2",
    )


def test_missing_sequences_are_named(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute("drop sequence sl_log_status", "drop sequence sl_local_node_id")
    with pytest.raises(CatalogIncomplete, match="has no sl_log_status, sl_local_node_id:"):
        read(loaded)


def test_catalog_of_no_node_is_uninitialised(catalogs: Catalogs) -> None:
    loaded = catalogs.load("fxa", 1)
    loaded.execute("select setval('sl_local_node_id', -1)")
    with pytest.raises(NodeUninitialised) as caught:
        read(loaded)
    assert caught.value.code == "NODE_UNINITIALISED"


def test_too_many_nodes_are_no_cluster(catalogs: Catalogs) -> None:
    loaded = catalogs.empty()
    loaded.execute(f"insert into sl_node select n, true, null, false from generate_series(1, {NODES_MAX}) n")
    assert len(read(loaded).nodes) == NODES_MAX
    loaded.execute("insert into sl_node values (5000, true, null, false)")
    with pytest.raises(TargetSchemaUnsupported, match="more than 200 rows"):
        read(loaded)


def test_role_without_rights_is_refused_by_the_server(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    with pytest.raises(TargetReadOnly, match="permission denied for schema _lab"):
        read(loaded.as_role(role))
    loaded.execute(
        f"grant usage on schema _lab to {role}",
        f"grant select on sl_local_node_id, sl_node, sl_path to {role}",
        "create function secret() returns int language sql as 'select 1'",
        "revoke execute on function secret() from public",
        "create function open() returns int language sql as 'select 1'",
    )
    found = read(loaded.as_role(role))
    assert (found.local_node, found.functions) == (1, frozenset({"open"}))


def test_file_is_no_place_for_a_cluster(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "x.db").close()
    (tmp_path / "x.db").touch()
    target = Target(f"sqlite:///{tmp_path}/x.db")
    with connect(target, application_name="lethe-test") as conn, pytest.raises(TargetSchemaUnsupported):
        read_catalog(conn, "lab")


def test_digest_of_a_path_holds_no_secret_and_no_spelling() -> None:
    digest = path_digest("host=a dbname=b user=c")
    assert digest == path_digest("dbname=b  user='c' password=hunter2 host=a sslpassword=x")
    assert digest == path_digest("postgresql://c:hunter2@a/b")
    assert digest != path_digest("host=a dbname=b user=d")
    assert path_digest("<event pending>") == path_digest("<event pending>") != path_digest("no = string =")
    assert len(digest) == 64
