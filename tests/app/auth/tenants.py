"""Two tenants of one service in this process, and how each operation of its OpenAPI document is called.

A call is made from the document: its path with the names of a tenant's things, the example of its body. What
an example cannot know (names in bodies, what is decided by the body) stands in the tables here. An operation
that has a parameter or a body which nobody can fill fails: `call_of` raises for it.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from app.archives.rows import Archive
from app.auth.models import TokenCreate
from app.auth.scopes import Role, Scope
from app.auth.service import create_token
from app.db import Database
from app.jobs.rows import Job
from app.jobs.service import JobRequest, submit
from app.main import create_app
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.http.targets import copy_reference
from tests.je_data import unpack

OPENAPI = Path(__file__).parents[3] / "openapi" / "openapi.json"
METHODS = ("get", "put", "post", "patch", "delete")
NOBODY = "postgresql+psycopg://lethe@127.0.0.1:1/node"
NO_DIRECTORY = "ldap://127.0.0.1:1?tls=none"
STORE_OF_TAG = {
    "stores": "sym",
    "parameters": "sym",
    "purges": "sym",
    "replication": "replica",
    "replicas": "replica",
    "extinction": "replica",
    "erasure": "je",
    "certificates": "je",
    "backups": "je",
    "protections": "je",
    "events": "node",
}
FIXED = {
    "set": "1",
    "peer_rid": "9",
    "name": "purge.retention.minutes",
    "key_id": f"ed25519:{'0' * 64}",
    "window_id": f"win_{'0' * 26}",
    "database": "ZA",
    "key": "aw",
    "file": "00000000.jdb",
    "offset": "0",
    "origin": "1",
    "seqno": "1",
    "epoch": "1",
    "batch_seq": "1",
}
"""Parameters that name nothing of a tenant."""
IDS = ("agreement_id", "protection_id", "plan_id", "session_id", "replication_session_id")
"""Fields of bodies that name a tenant's things."""


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    method: str
    path: str
    described: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.described["operationId"])

    @property
    def scopes(self) -> tuple[str, ...]:
        return tuple(self.described["x-required-scopes"])

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(each["scope"], each["when"]) for each in self.described["x-conditional-scopes"]]

    @property
    def is_unlimited(self) -> bool:
        return bool(self.described["x-unlimited-token"])

    @property
    def is_named(self) -> bool:
        """Whether its path names something of a tenant."""
        return any(name not in FIXED for name in self.parameters("path"))

    def parameters(self, place: str) -> list[str]:
        return [
            each["name"]
            for each in self.described.get("parameters", ())
            if each["in"] == place and each.get("required")
        ]


@cache
def all_operations() -> tuple[Operation, ...]:
    """All of the service that want a token, by the committed description, which tests/style compares."""
    document = json.loads(OPENAPI.read_text())
    found = [
        Operation(method.upper(), path, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]
    return tuple(each for each in found if each.described.get("security") != [])


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    json: Any = None
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def with_body(self, **fields: Any) -> Call:
        return Call(self.method, self.path, (self.json or {}) | fields, None, self.headers)

    def at(self, path: str) -> Call:
        return Call(self.method, path, self.json, self.content, self.headers)

    @property
    def text(self) -> str:
        """Every name that the client itself has said."""
        return f"{self.path} {json.dumps(self.json)}"


@dataclass
class Tenant:
    """What a tenant has: stores by kind, and things by the parameter that names them."""

    name: str
    things: dict[str, str] = field(default_factory=dict)

    @property
    def stores(self) -> list[str]:
        return [f"{self.name}-{kind}" for kind in ("sym", "replica", "je", "node", "directory")]

    @property
    def names(self) -> list[str]:
        """What nobody else may read."""
        return [self.name, *self.things.values()]


def _example(operation: Operation) -> tuple[Any, bytes | None, str | None]:
    """The example of a body: JSON, or bytes with their media type."""
    contents = operation.described.get("requestBody", {}).get("content", {})
    if not contents:
        return None, None, None
    if "application/json" not in contents:
        media_type, content = next(iter(contents.items()))
        return None, str(content["example"]).encode(), media_type
    content = contents["application/json"]
    if "example" in content:
        return content["example"], None, None
    return next(iter(content["examples"].values()))["value"], None, None


def _cluster_of(name: str) -> str:
    """The cluster of a tenant's node."""
    return name.replace("-", "_")


def call_of(operation: Operation, tenant: Tenant, *, stores_of: Tenant | None = None) -> Call:
    """How an operation is called for a tenant's things.

    Args:
        stores_of: another tenant, whose store the path names.
    Raises: KeyError: nobody has said what a parameter or a field names.
    """
    owner = stores_of or tenant
    kind = STORE_OF.get(operation.id) or STORE_OF_TAG.get(operation.described["tags"][0])
    names = FIXED | tenant.things | ({} if kind is None else {"store_id": f"{owner.name}-{kind}"})
    if operation.path.startswith(("/v1/replicas", "/v1/stores/{store_id}/backup")):
        names |= {"session_id": tenant.things["backup_id" if "backup" in operation.path else "peer_id"]}
    if operation.path.startswith("/v1/secrets"):
        names |= {"name": tenant.things["secret"]}
    names |= {"cluster": _cluster_of(owner.name), "suffix": f"dc={owner.name}"}
    path = operation.path.format(**{name: names[name] for name in operation.parameters("path")})
    if query := operation.parameters("query"):
        path += "?" + "&".join(f"{name}={names[name]}" for name in query)
    body, content, media_type = _example(operation)
    body = copy.deepcopy(body)
    for name in set(IDS) & set(body or {}):
        body[name] = names[name]
    if operation.id in BODIES:
        body = BODIES[operation.id](tenant, owner)
    headers = {"If-Match": "*"} if operation.method in ("PUT", "PATCH", "DELETE") else {}
    return Call(
        operation.method,
        path,
        body,
        content,
        headers | ({} if media_type is None else {"Content-Type": media_type}),
    )


STORE_OF = {"archive": "sym", "get_store_series": "sym", "get_ds389_health": "directory"}
BODIES: Mapping[str, Any] = {
    "create_secret": lambda tenant, owner: {
        "name": f"{owner.name}-new",
        "reference": "env:LETHE_SECRET_NONE",
        "stores": [f"{tenant.name}-replica"],
        "hosts": ["127.0.0.1"],
    },
    "change_secret": lambda *_: {"reference": "env:LETHE_SECRET_OTHER"},
    "create_store": lambda tenant, owner: {
        "id": f"{owner.name}-new",
        "kind": "SYMMETRICDS",
        "url": tenant.things["url"],
    },
    "change_store": lambda tenant, _: {"url": tenant.things["url"]},
    "create_token": lambda tenant, _: {"name": "t", "scopes": ["jobs:read"], "stores": tenant.stores},
    "create_batch": lambda tenant, _: {
        "kind": "PURGE",
        "params": {"kind": "OUTGOING"},
        "stores": [f"{tenant.name}-sym"],
    },
    "create_schedule": lambda tenant, owner: {
        "verb": "PURGE",
        "body": {"kind": "OUTGOING"},
        "store": f"{owner.name}-sym",
        "cron": "0 3 * * *",
    },
    "create_agreement": lambda tenant, owner: {
        "consumer": {
            "url": "http://127.0.0.1:1",
            "store": "x",
            "token": f"secret:{owner.things['secret']}",
        },
    },
    "restore_archive": lambda *_: {"into": {"schema": "restored"}},
    "create_purge": lambda *_: {"kind": "OUTGOING"},
    "wait_for_event": lambda *_: {"origin": 1, "confirmed": "ALL", "timeout": "PT10M"},
    "abort_erasure": lambda tenant, _: {
        "protection_id": tenant.things["protection_id"],
        "timeout": "PT1S",
    },
    "attest_extinction": lambda *_: {"reason": "r", "statement": "FILTER_INSTALLED"},
    "create_webhook": lambda _, owner: {
        "url": "https://alerts.example/hook",
        "events": ["lethe.job.ended"],
        "stores": [f"{owner.name}-sym"],
    },
    "create_audit": lambda tenant, _: {"agreement_id": tenant.things["agreement_id"]},
    "feed_replica": lambda tenant, _: {"source": f"{tenant.name}-node"},
}
"""Bodies that an example cannot know."""


class World:
    """Two tenants, `tenant-a` and `tenant-b`, whose things are all there; `restore` undoes what was done.

    Attributes:
        strangers: tokens of the first: each role, each scope alone.
    """

    def __init__(self, template: Path, directory: Path) -> None:
        self.clock = FakeClock()
        self.settings = Settings(data_dir=directory, target_connect_timeout_s=1, stream_max_s=0.1)
        path = directory / "lethe.db"
        shutil.copyfile(template, path)
        self.database = Database(f"sqlite:///{path}", clock=self.clock)
        self.app = create_app(self.settings, self.database, clock=self.clock)
        self.operations = list(all_operations())
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://lethe", timeout=30)
        self.admin = self.token([Scope.ADMIN])
        self.tenants = [self._furnish(Tenant(name), directory) for name in ("tenant-a", "tenant-b")]
        stores = self.mine.stores
        self.strangers = {f"role {role}": self.token(role=role, stores=stores) for role in Role}
        self.strangers |= {str(scope): self.token([scope], stores=stores) for scope in Scope}
        files = [path, *(directory / f"{each.name}-replica.sqlite" for each in self.tenants)]
        self._kept = {file: file.with_suffix(".kept") for file in files}
        for file, kept in self._kept.items():
            self._copy(file, kept)

    @property
    def mine(self) -> Tenant:
        return self.tenants[0]

    @property
    def theirs(self) -> Tenant:
        return self.tenants[1]

    def close(self) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()
        self.database.close()

    def restore(self) -> None:
        """Bring the metadata and the replicas back to what they were when everything was there."""
        for file, kept in self._kept.items():
            self._copy(kept, file)

    def _copy(self, source: Path, target: Path) -> None:
        with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(target)) as other:
            one.backup(other)

    def token(self, scopes: Sequence[str] = (), **fields: Any) -> str:
        request = TokenCreate.model_validate({"name": "t", "scopes": list(scopes)} | fields)
        with self.database.transaction() as db:
            return create_token(db, request, now=self.clock.now(), caller=None)[1]

    def ask(self, call: Call, token: str) -> httpx.Response:
        return self.ask_all(call, [token])[0]

    def ask_all(self, call: Call, tokens: Sequence[str]) -> list[httpx.Response]:
        """The same request by each of the tokens."""

        async def run() -> list[httpx.Response]:
            return [
                await self._client.request(
                    call.method,
                    call.path,
                    json=call.json,
                    content=call.content,
                    headers={"Authorization": f"Bearer {token}"} | dict(call.headers),
                )
                for token in tokens
            ]

        return self._runner.run(run())

    def _made(self, path: str, body: Any) -> dict[str, Any]:
        answer = self.ask(Call("POST", path, body), self.admin)
        assert answer.status_code in (200, 201, 202), answer.text
        return dict(answer.json())

    def _furnish(self, tenant: Tenant, directory: Path) -> Tenant:
        name, things = tenant.name, tenant.things
        file = copy_reference(directory / f"{name}.sqlite", "3.x")
        things["url"] = f"sqlite:///{file}"
        stores = {
            "sym": {"kind": "SYMMETRICDS", "url": things["url"]},
            "replica": {"kind": "REPLICA", "rid": 1, "url": f"sqlite:///{directory}/{name}-replica.sqlite"},
            "je": {"kind": "JE", "path": str(unpack("closed", directory / f"{name}-je"))},
            "node": {"kind": "SLONY", "url": NOBODY, "cluster": _cluster_of(name)},
            "directory": {"kind": "DS389", "url": NO_DIRECTORY, "suffix": f"dc={name}", "bind_dn": "cn=x"},
        }
        for kind, fields in stores.items():
            self._made("/v1/stores", {"id": f"{name}-{kind}"} | fields)
        replica, je = f"/v1/stores/{name}-replica", f"/v1/stores/{name}-je"
        self._made(f"{replica}/changes", {"database": "ZA==", "key": "aw==", "value": "dg=="})
        things["token_id"] = self._made(
            "/v1/tokens", {"name": f"{name}-token", "scopes": ["jobs:read"], "stores": tenant.stores}
        )["id"]
        nightly = {"verb": "PURGE", "body": {"kind": "OUTGOING"}, "store": f"{name}-sym", "cron": "0 3 * * *"}
        things["schedule_id"] = self._made("/v1/schedules", nightly)["id"]
        things["job_id"] = self._made(f"/v1/stores/{name}-sym/purges", {"kind": "OUTGOING"})["id"]
        key = {"databases": ["ZA=="], "start_key": "eg==", "label": name, "confirm_keys_never_reused": True}
        things["extinction_id"] = self._made(f"{replica}/extinctions", key)["subject"]["id"]
        things["secret"] = f"{name}-peer"
        secret = {"name": things["secret"], "reference": "env:LETHE_SECRET_NONE", "hosts": ["127.0.0.1"]}
        self._made("/v1/secrets", secret | {"stores": [f"{name}-replica"]})
        grant = {"supplier_rid": 9, "expires_in": "PT1H", "reason": "tried"}
        things["discard_grant_id"] = self._made(f"{replica}/discard-grants", grant)["id"]
        self._made(f"{replica}/known-keys", {"rid": 9, "key": "9a" * 32, "reason": "tried"})
        agreement = {"url": "http://127.0.0.1:1", "store": f"{name}-x", "token": f"secret:{name}-peer"}
        things["agreement_id"] = self._made(f"{replica}/agreements", {"consumer": agreement})["id"]
        session = self._made(f"{replica}/replication-sessions", {"agreement_id": things["agreement_id"]})
        things["replication_session_id"] = session["subject"]["id"]
        things["peer_id"] = session["subject"]["id"]
        things["cycle_id"] = self._made(f"{je}/erasure-cycles", {"period": "P1D"})["subject"]["id"]
        kept = {"files": ["00000000.jdb"], "kind": "SCAN", "lease": "PT10M", "name": name}
        things["protection_id"] = self._made(f"{je}/protections", kept)["id"]
        backup = {"lease": "PT10M", "mode": "BACKUP", "tool": "restic"}
        things["backup_id"] = self._made(f"{je}/backup-sessions", backup)["id"]
        hook = {"url": "https://alerts.example/x", "events": ["lethe.job.ended"], "stores": [f"{name}-sym"]}
        things["webhook_id"] = self._made("/v1/webhooks", hook)["id"]
        things["delivery_id"] = self._made(f"/v1/webhooks/{things['webhook_id']}:test", None)["id"]
        things["plan_id"] = self.job("PLAN", f"{name}-sym", {"kind": "OUTGOING"}, "SUCCEEDED")
        self._archive(tenant, directory)
        return tenant

    def job(self, kind: str, store: str, params: Mapping[str, Any], state: str) -> str:
        """A job that stands in a state."""
        request = JobRequest(kind=kind, store=store, params=params, requested_by="ann")
        with self.database.transaction() as db:
            job = submit(db, request, now=self.clock.now(), queued_max=1_000)
            row = db.get_one(Job, job.id)
            row.state = state
            db.add(row)
            return job.id

    def _archive(self, tenant: Tenant, directory: Path) -> None:
        row = Archive(
            job_id=tenant.things["job_id"],
            store=f"{tenant.name}-sym",
            directory=str(directory / f"{tenant.name}-archive"),
            instance="ins_x",
            resource="tables",
            created_at=self.clock.now(),
            expires_at=self.clock.now(),
        )
        with self.database.transaction() as db:
            db.add(row)
