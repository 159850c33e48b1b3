"""A Kubernetes API server of the test: what Spark asks in client mode, kept in memory.

It takes pods, config maps, claims and services over plain http, answers lists and watches by label, and hands
each new pod to a kubelet, which may start it as a process of this machine.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

Object = dict[str, Any]
KINDS: Final = {
    "pods": "Pod",
    "configmaps": "ConfigMap",
    "services": "Service",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}
WATCH_TICK_S: Final = 0.2
NOW: Final = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What an API server says where it does not do as it is asked."""

    code: int
    reason: str
    message: str

    def status(self) -> Object:
        """As the API says it."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes: `/api/v1/namespaces/NAMESPACE/KIND[/NAME]`."""

    namespace: str
    kind: str
    name: str | None
    query: dict[str, str]

    @classmethod
    def of(cls, path: str) -> Place | None:
        """None: nothing that is here."""
        split = urlsplit(path)
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        if parts[:3] != ["api", "v1", "namespaces"] or len(parts) not in (5, 6) or parts[4] not in KINDS:
            return None
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        return cls(parts[3], parts[4], parts[5] if len(parts) == 6 else None, query)

    def holds(self, found: Object) -> bool:
        """Whether an object is meant: by name, or by the selectors of the query."""
        meta = found["metadata"]
        fields = self.query.get("fieldSelector", "")
        name = self.name or (fields.partition("=")[2] if fields.startswith("metadata.name=") else None)
        if meta["namespace"] != self.namespace or (name is not None and meta["name"] != name):
            return False
        return selects(self.query.get("labelSelector", ""), meta.get("labels", {}))


def selects(selector: str, labels: dict[str, str]) -> bool:
    """Whether a selector takes these labels: `a=b`, `a!=b`, `a`, `!a`, `a in (b,c)`, with commas between."""
    rest = selector.strip()
    while rest:
        head, _comma, tail = _cut(rest)
        if not _takes(head.strip(), labels):
            return False
        rest = tail.strip()
    return True


def _cut(text: str) -> tuple[str, str, str]:
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            return text[:at], ",", text[at + 1 :]
    return text, "", ""


def _takes(term: str, labels: dict[str, str]) -> bool:
    if " in (" in term:
        name, _in, values = term.partition(" in (")
        return labels.get(name.strip()) in [value.strip() for value in values.rstrip(")").split(",")]
    if "!=" in term:
        name, _sign, value = term.partition("!=")
        return labels.get(name) != value
    if "=" in term:
        name, _sign, value = term.partition("=")
        return labels.get(name) == value.lstrip("=")
    return term[1:] not in labels if term.startswith("!") else term in labels


@dataclass
class KubernetesApi:
    """The server. What tests look at are `pods_asked` and `configmaps_asked`: all that was ever posted.

    Attributes:
        on_pod, on_pod_gone: the kubelet: a pod was taken; it was deleted.
        refusal: of every pod that is posted; None: they are taken.
        requests: method, path and status of each request.
    """

    on_pod: Callable[[Object], None] = lambda pod: None
    on_pod_gone: Callable[[Object], None] = lambda pod: None
    refusal: Refusal | None = None
    pods_asked: list[Object] = field(default_factory=list)
    configmaps_asked: list[Object] = field(default_factory=list)
    requests: list[tuple[str, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._kept: dict[tuple[str, str, str], Object] = {}
        self._versions = itertools.count(1)
        self._events: list[tuple[int, str, str, Object]] = []
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True
        self.is_open = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def master(self) -> str:
        """What LETHE_SPARK__MASTER is set to."""
        return f"k8s://http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Answer nobody any more."""
        self.is_open = False
        self._server.shutdown()
        self._server.server_close()

    def pods(self) -> list[Object]:
        """The pods that are there now."""
        with self._changed:
            return [json.loads(json.dumps(kept)) for key, kept in self._kept.items() if key[0] == "pods"]

    def set_pod_status(self, name: str, status: Object) -> None:
        """What a kubelet says of a pod; nothing where the pod has gone."""
        with self._changed:
            for (kind, _namespace, kept_name), kept in self._kept.items():
                if (kind, kept_name) == ("pods", name):
                    kept["status"] = {**kept["status"], **status}
                    self._note("MODIFIED", kind, kept)

    def delete_pod(self, name: str) -> None:
        """What `kubectl delete pod` does."""
        [pod] = [pod for pod in self.pods() if pod["metadata"]["name"] == name]
        self.delete(Place(pod["metadata"]["namespace"], "pods", name, {}))

    def create(self, place: Place, body: Object) -> Object | Refusal:
        """Take an object, or refuse it."""
        if place.kind == "pods":
            self.pods_asked.append(body)
            if self.refusal is not None:
                return self.refusal
        if place.kind == "configmaps":
            self.configmaps_asked.append(body)
        with self._changed:
            version = str(next(self._versions))
            meta = {**body["metadata"], "namespace": place.namespace, "uid": f"uid-{version}"}
            meta |= {"creationTimestamp": NOW}
            kept = {"kind": KINDS[place.kind], "apiVersion": "v1", **body, "metadata": meta}
            kept["status"] = {"phase": "Pending"}
            self._kept[place.kind, place.namespace, meta["name"]] = kept
            self._note("ADDED", place.kind, kept)
        if place.kind == "pods":
            self.on_pod(json.loads(json.dumps(kept)))
        return kept

    def select(self, place: Place) -> list[Object]:
        """The objects that a request means."""
        with self._changed:
            return [
                kept for (kind, *_), kept in self._kept.items() if kind == place.kind and place.holds(kept)
            ]

    def delete(self, place: Place) -> list[Object]:
        """Delete what a request means, and return it."""
        gone = self.select(place)
        with self._changed:
            for kept in gone:
                meta = kept["metadata"]
                meta["deletionTimestamp"] = NOW
                self._kept.pop((place.kind, meta["namespace"], meta["name"]), None)
                self._note("DELETED", place.kind, kept)
        if place.kind == "pods":
            for pod in gone:
                self.on_pod_gone(pod)
        return gone

    def patch_labels(self, place: Place, labels: dict[str, str]) -> Object | None:
        """Add labels to an object."""
        for kept in self.select(place):
            with self._changed:
                kept["metadata"].setdefault("labels", {}).update(labels)
                self._note("MODIFIED", place.kind, kept)
            return kept
        return None

    def version(self) -> int:
        """The newest version of anything."""
        with self._changed:
            return self._events[-1][0] if self._events else 0

    def watch(self, place: Place) -> Iterator[Object | None]:
        """Events since the query's version; None now and then while there is none."""
        seen = int(place.query.get("resourceVersion") or 0)
        while self.is_open:
            with self._changed:
                found = [event for event in self._events if event[0] > seen]
                if not found:
                    self._changed.wait(WATCH_TICK_S)
            for version, change, kind, kept in found:
                seen = version
                if kind == place.kind and place.holds(kept):
                    yield {"type": change, "object": kept}
            if not found:
                yield None

    def _note(self, change: str, kind: str, kept: Object) -> None:
        version = next(self._versions)
        kept["metadata"]["resourceVersion"] = str(version)
        self._events.append((version, change, kind, json.loads(json.dumps(kept))))
        self._changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    api: KubernetesApi
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: object) -> None:
        """Say nothing on standard error."""

    def do_POST(self) -> None:
        place, body = self._asked()
        if place is not None and isinstance(body, dict):
            made = self.api.create(place, body)
            self._refuse(made) if isinstance(made, Refusal) else self._answer(201, made)

    def do_GET(self) -> None:
        place, _body = self._asked()
        if place is None:
            return
        if place.query.get("watch") == "true":
            self._stream(place)
            return
        found = self.api.select(place)
        if place.name is None:
            meta = {"resourceVersion": str(self.api.version())}
            self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": meta, "items": found})
        elif found:
            self._answer(200, found[0])
        else:
            self._refuse(_not_found(place))

    def do_DELETE(self) -> None:
        place, _body = self._asked()
        if place is None:
            return
        gone = self.api.delete(place)
        if place.name is not None and not gone:
            self._refuse(_not_found(place))
        else:
            self._answer(200, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def do_PATCH(self) -> None:
        place, body = self._asked()
        if place is None:
            return
        changed = self.api.patch_labels(place, _labels_of(body))
        self._refuse(_not_found(place)) if changed is None else self._answer(200, changed)

    def _asked(self) -> tuple[Place | None, Any]:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        place = Place.of(self.path)
        if place is None:
            self._refuse(Refusal(404, "NotFound", f"{self.path} is not here"))
        return place, json.loads(content) if content else None

    def _stream(self, place: Place) -> None:
        """A plain stream; who asks for a web socket is answered as by a proxy that has none."""
        self._note(200)
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if "upgrade" in (self.headers.get("connection") or "").lower():
            self.wfile.write(b"0\r\n\r\n")
            return
        with suppress(OSError):
            for event in self.api.watch(place):
                line = b"\n" if event is None else json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.close_connection = True

    def _refuse(self, refusal: Refusal) -> None:
        self._answer(refusal.code, refusal.status())

    def _answer(self, code: int, body: Object) -> None:
        self._note(code)
        content = json.dumps(body).encode()
        with suppress(OSError):
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    def _note(self, code: int) -> None:
        self.api.requests.append((self.command, self.path, code))


def _not_found(place: Place) -> Refusal:
    return Refusal(404, "NotFound", f'{place.kind} "{place.name}" not found')


def _labels_of(patch: Any) -> dict[str, str]:
    """The labels that a patch sets: a merge, or a list of operations."""
    if isinstance(patch, dict):
        return dict(patch.get("metadata", {}).get("labels", {}))
    prefix = "/metadata/labels/"
    return {
        step["path"].removeprefix(prefix).replace("~1", "/"): step["value"]
        for step in patch
        if step["path"].startswith(prefix)
    }
