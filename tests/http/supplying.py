"""Two replicas of one service that is supplier and consumer at once, over its own loopback."""

from __future__ import annotations

import base64
import itertools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from spark.formats.changes.batch import ARROW_MEDIA_TYPE, encode_arrow
from spark.replication.records import local_schema
from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for

SECRETS = "secrets"
"""Below the roots: where the services' secrets lie."""
_numbers = itertools.count(1)
GENERATION = "64000000000000010000"


def write(store: ConsumerStore, count: int, *, prefix: str = "k", value: bytes = b"v" * 50) -> dict[str, Any]:
    """Local changes of so many keys."""
    keys = [f"{prefix}{number:06}".encode() for number in range(count)]
    batch = pa.record_batch([[b"db"] * count, keys, [value] * count], schema=local_schema())
    answer = store.http.post(
        f"/v1/stores/{store.id}/changes",
        content=encode_arrow(batch),
        headers={"Content-Type": ARROW_MEDIA_TYPE},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def entries(store: ConsumerStore) -> dict[str, str | None]:
    """Key to value, as text."""
    found: dict[str, str | None] = {}
    token = ""
    while True:
        answer = store.http.get(
            f"/v1/stores/{store.id}/entries",
            params={
                "database": base64.b64encode(b"db").decode(),
                "page_size": 500,
                "page_token": token,
            },
        )
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for each in page["items"]:
            value = each["value"]
            key = base64.b64decode(each["key"]).decode()
            found[key] = None if value is None else base64.b64decode(value).decode()
        token = page["next_page_token"]
        if not token:
            return found


@dataclass
class Pair:
    """A supplier, a consumer and the agreement between them."""

    supplier: ConsumerStore
    consumer: ConsumerStore
    agreement: dict[str, Any] = field(default_factory=dict)

    @property
    def http(self) -> httpx.Client:
        return self.supplier.http

    @property
    def store(self) -> str:
        return f"/v1/stores/{self.supplier.id}"

    @property
    def sessions(self) -> str:
        return f"{self.store}/replication-sessions"

    def ask(self, **fields: Any) -> httpx.Response:
        """Ask for a session."""
        return self.http.post(self.sessions, json={"agreement_id": self.agreement["id"]} | fields)

    def begin(self, **fields: Any) -> str:
        """Begin a session; its job."""
        return accepted(self.ask(**fields))

    def run(self, *states: str, **fields: Any) -> dict[str, Any]:
        """A session to its end; its job."""
        return wait_for(self.http, self.begin(**fields), *states)

    def session_of(self, job: dict[str, Any]) -> dict[str, Any]:
        """The session that a job is for."""
        found: dict[str, Any] = self.http.get(job["subject"]["href"]).json()
        return found

    def status(self) -> dict[str, Any]:
        """How the agreement stands."""
        found: dict[str, Any] = self.http.get(f"{self.store}/agreements/{self.agreement['id']}").json()
        status: dict[str, Any] = found["status"]
        return status

    def compare(self, **fields: Any) -> dict[str, Any]:
        """What a session would decide."""
        answer = self.http.post(
            f"{self.sessions}:compare", json={"agreement_id": self.agreement["id"]} | fields
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def token_file(service: ServiceProcess, roots: Path) -> Path:
    """A file with the service's own token, where it may read it."""
    path = roots / SECRETS / f"{service.directory.name}-peer.token"
    path.write_text(service.token)
    path.chmod(0o600)
    return path


def registered(http: httpx.Client, reference: str, *, store: str, **fields: Any) -> str:
    """Register a secret for a store and the hosts of this machine; how the store names it."""
    name = f"{store}-{next(_numbers)}"
    body = {"name": name, "reference": reference, "stores": [store], "hosts": ["127.0.0.1"]} | fields
    answer = http.post("/v1/secrets", json=body)
    assert answer.status_code == 201, answer.text
    return f"secret:{name}"


def agree(
    http: httpx.Client, supplier: str, consumer: str, *, url: str, token: str, **fields: Any
) -> httpx.Response:
    """Ask for an agreement, with a token that is registered first where a place is given."""
    if not token.startswith("secret:"):
        token = registered(http, token, store=supplier)
    body = {"consumer": {"url": url, "store": consumer, "token": token}} | fields
    return http.post(f"/v1/stores/{supplier}/agreements", json=body)


def make_pair(
    http: httpx.Client,
    service: ServiceProcess,
    roots: Path,
    *,
    rids: tuple[int, int] = (1, 2),
    generations: tuple[str | None, str | None] = (GENERATION, GENERATION),
    **fields: Any,
) -> Pair:
    """Two new replicas, and the agreement of the first with the second."""
    stores = [
        make_replica(http, rid=rid, folder=roots, **({} if each is None else {"generation": each}))
        for rid, each in zip(rids, generations, strict=True)
    ]
    token = f"file:{token_file(service, roots)}"
    answer = agree(http, stores[0].id, stores[1].id, url=service.url, token=token, **fields)
    assert answer.status_code == 201, answer.text
    return Pair(stores[0], stores[1], answer.json())
