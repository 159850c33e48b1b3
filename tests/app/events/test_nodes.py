"""Which catalogs are of one cluster: its name alone does not tell."""

from dataclasses import replace

import pytest

from app.events.nodes import is_same_cluster
from spark.events.catalog import path_digest
from spark.events.records import Catalog, Node, Path


def path(server: int, client: int, conninfo: str) -> Path:
    return Path(server, client, path_digest(conninfo))


def catalog(
    *paths: Path, nodes: tuple[int, ...] = (1, 2, 3), cluster: str = "lab", local: int = 1
) -> Catalog:
    return Catalog(
        cluster=cluster,
        schema=f"_{cluster}",
        version=None,
        local_node=local,
        nodes=tuple(Node(node, True, False, None) for node in nodes),
        paths=paths,
        functions=frozenset(),
    )


HERE = path(1, 2, "host=a dbname=one")
BACK = path(2, 1, "host=b dbname=two")
PENDING = path(1, 2, "<event pending>")


def test_one_path_in_common_is_enough() -> None:
    assert is_same_cluster(catalog(HERE, BACK), catalog(BACK, path(3, 1, "host=c"), local=2))


def test_a_path_is_the_same_whatever_its_password_and_order() -> None:
    told = path(1, 2, "dbname=one password=secret host=a")
    assert is_same_cluster(catalog(HERE), catalog(told, local=2))


@pytest.mark.parametrize(
    "other",
    [
        catalog(path(1, 2, "host=elsewhere dbname=one")),
        catalog(replace(HERE, server=3)),
        catalog(HERE, cluster="other"),
        catalog(),
        catalog(PENDING),
    ],
)
def test_a_cluster_with_other_paths_is_another(other: Catalog) -> None:
    assert not is_same_cluster(catalog(HERE), other)
    assert not is_same_cluster(other, catalog(HERE))


def test_a_path_that_has_not_arrived_is_nobodys() -> None:
    assert not is_same_cluster(catalog(PENDING, HERE), catalog(PENDING, BACK))


def test_without_any_path_the_nodes_decide() -> None:
    assert is_same_cluster(catalog(), catalog(local=2))
    assert is_same_cluster(catalog(PENDING), catalog(local=2))
    assert not is_same_cluster(catalog(), catalog(nodes=(1, 2)))
