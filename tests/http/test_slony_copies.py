"""A copy of a node, registered as a second store: only the one that the cluster's paths lead to is the node.

The store that came first by its id spoke for the node, copy or not; and a cleanup, a confirmation, a SYNC
went to whichever database a request named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from sqlalchemy.engine import make_url

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.slony_cleaning import clean, cleaned, switch
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.spark.events.catalogs import Catalogs, LoadedCatalog

BASE = 5_000_000_000


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the copies lie at the targets."""
    return sqlite_service


@dataclass
class Copied:
    """Node 1 and its copy, and node 3 of the same cluster."""

    original: NodeStore
    copy: NodeStore
    third: NodeStore

    def all(self) -> Iterator[LoadedCatalog]:
        return (node.loaded for node in (self.original, self.copy, self.third))

    def lead_to(self, node: NodeStore) -> None:
        """Let the cluster's paths to node 1 lead to one of the two databases."""
        url = make_url(node.loaded.url)
        conninfo = f"host={url.host} port={url.port} dbname={url.database} user=slony"
        for loaded in self.all():
            loaded.execute(f"update sl_path set pa_conninfo = '{conninfo}' where pa_server = 1")


@pytest.fixture
def copied(http: httpx.Client, catalogs: Catalogs) -> Copied:
    name = new_name()
    nodes = []
    for number, prefix in ((1, "z-node"), (1, "a-copy"), (3, "third")):  # the copy is the first by its id
        loaded = catalogs.load("fxa", number, cluster=name)
        store = register(http, url=loaded.url, cluster=name, id=new_name(prefix))
        nodes.append(NodeStore(http, store.id, loaded))
    return Copied(*nodes)


def _refused(node: NodeStore, original: str | None) -> None:
    """Every verb that writes to a node is refused by name, and writes nothing."""
    before = node.loaded.rows()
    for answer in (
        clean(node),
        switch(node, "START"),
        node.confirm(1, 2, BASE + 30, force=True, reason="a test"),
    ):
        body = problem(answer, 409, "NODE_COPIED")
        assert (body["node"], body["original"]) == (1, original)
        assert node.id in body["detail"]
    assert node.loaded.rows() == before


def test_nothing_is_written_to_a_copy_and_the_original_is_named(copied: Copied) -> None:
    copied.lead_to(copied.original)
    _refused(copied.copy, copied.original.id)
    cleaned(copied.original)


def test_where_the_paths_do_not_tell_both_are_refused(copied: Copied) -> None:
    _refused(copied.copy, None)
    _refused(copied.original, None)
    for node in (copied.original, copied.copy):
        node.check()
    found = {item["code"]: item["detail"] for item in copied.original.check()["findings"]}
    assert copied.copy.id in found["NODE_COPIED"]


def test_the_original_speaks_for_the_node_whatever_its_id(copied: Copied, http: httpx.Client) -> None:
    copied.lead_to(copied.original)
    copied.copy.loaded.execute("delete from sl_event where ev_origin = 3")
    copied.copy.loaded.execute("delete from sl_confirm where con_origin = 3 and con_received = 1")
    seqno = copied.original.events(origin=3)[-1]["seqno"]
    copied.third.loaded.execute("delete from sl_confirm where con_origin = 3 and con_received = 1")
    # Node 3 asks node 1's own catalog whether it holds the event: the copy does not.
    answer = copied.third.confirm(3, 1, seqno)
    assert answer.status_code == 200, answer.text
    copied.lead_to(copied.copy)
    copied.third.loaded.execute("delete from sl_confirm where con_origin = 3 and con_received = 1")
    problem(copied.third.confirm(3, 1, seqno), 409, "NOT_PROCESSED_BY_RECEIVER")


def test_one_database_under_two_names_is_no_copy(copied: Copied, http: httpx.Client) -> None:
    copied.lead_to(copied.original)
    etag = http.get(copied.copy.url).headers["etag"]
    assert http.delete(copied.copy.url, headers={"If-Match": etag}).status_code == 204
    again = register(http, url=copied.original.loaded.url, cluster=copied.original.loaded.cluster)
    assert clean(again).status_code == 202
