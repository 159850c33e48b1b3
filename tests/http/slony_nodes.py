"""Nodes of a Slony-I cluster as registered stores, on copies of recorded catalogs or on real ones."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.spark.events.catalogs import Catalogs, LoadedCatalog, State

_numbers = itertools.count(1)


@dataclass(frozen=True)
class NodeStore:
    """A registered node, and requests to it.

    Args:
        catalog: behind it; None: not a recorded one.
    """

    http: httpx.Client
    id: str
    catalog: LoadedCatalog | None = None

    @property
    def url(self) -> str:
        return f"/v1/stores/{self.id}"

    @property
    def loaded(self) -> LoadedCatalog:
        """The recorded catalog behind it."""
        assert self.catalog is not None
        return self.catalog

    def get(self, path: str, **params: Any) -> httpx.Response:
        return self.http.get(f"{self.url}/{path}", params=params)

    def events(self, **params: Any) -> list[dict[str, Any]]:
        """All pages of the list."""
        return list(self._pages(params))

    def _pages(self, params: dict[str, Any]) -> Iterator[dict[str, Any]]:
        token = ""
        while True:
            answer = self.get("events", **params, page_token=token)
            assert answer.status_code == 200, answer.text
            page = answer.json()
            assert len(page["items"]) <= params.get("page_size", 50)
            yield from page["items"]
            token = page["next_page_token"]
            if not token:
                return

    def matrix(self) -> dict[tuple[int, int], dict[str, Any]]:
        """The confirmations by origin and receiver."""
        answer = self.get("confirmations")
        assert answer.status_code == 200, answer.text
        return {(item["origin"], item["receiver"]): item for item in answer.json()["items"]}

    def confirm(self, origin: int, receiver: int, seqno: int, **fields: Any) -> httpx.Response:
        body = {"origin": origin, "receiver": receiver, "seqno": seqno} | fields
        return self.http.post(f"{self.url}/confirmations", json=body)

    def check(self) -> dict[str, Any]:
        answer = self.http.post(f"{self.url}:check")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def new_name(prefix: str = "lab") -> str:
    """A name that no other test uses: of a store, or of a cluster, whose nodes find each other by it."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


def register(http: httpx.Client, *, url: str, cluster: str, **fields: Any) -> NodeStore:
    """A store of kind SLONY."""
    body = {"id": new_name("node"), "kind": "SLONY", "url": url, "cluster": cluster} | fields
    answer = http.post("/v1/stores", json=body)
    assert answer.status_code == 201, answer.text
    return NodeStore(http, body["id"])


def recorded_nodes(
    http: httpx.Client, catalogs: Catalogs, nodes: Sequence[int] = (1, 2, 3), *, state: State = "fxa"
) -> dict[int, NodeStore]:
    """Nodes of one recorded cluster under a name of its own, registered."""
    cluster = new_name()
    found = {}
    for node in nodes:
        loaded = catalogs.load(state, node, cluster=cluster)
        found[node] = NodeStore(http, register(http, url=loaded.url, cluster=cluster).id, loaded)
    return found
