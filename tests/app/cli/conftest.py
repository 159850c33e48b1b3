"""A service on a real socket that answers from a table, and the command run against it in this process."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.cli.main import main

Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]


@dataclass
class Service:
    """Answers by method and path without the query; the last reply of a list stays."""

    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    url: str = ""

    def on(self, request: str, *replies: Reply) -> None:
        self.replies[request] = list(replies)

    def bodies(self, request: str) -> list[Any]:
        return [
            body for method, path, body, _ in self.asked if f"{method} {path.partition('?')[0]}" == request
        ]

    def answer(self, method: str, path: str) -> Reply:
        known = self.replies.get(f"{method} {path.partition('?')[0]}")
        if known is None:
            return 404, {"code": "NOT_SCRIPTED", "detail": f"{method} {path}", "retryable": False}
        return known.pop(0) if len(known) > 1 else known[0]


class Handler(BaseHTTPRequestHandler):
    service: Service

    def _serve(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.service.asked.append((self.command, self.path, json.loads(raw) if raw else None, headers))
        status, body, *more = self.service.answer(self.command, self.path)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (more[0] if more else {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 -- the server's names

    def log_message(self, *_words: Any) -> None:
        """The test's output is the command's alone."""


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"service": service}))
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield service
    server.shutdown()
    thread.join()
    server.server_close()


@dataclass(frozen=True)
class Run:
    """How one command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def lethe(service: Service, capsys, monkeypatch) -> Callable[..., Run]:
    """Run a command line against the service."""
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", "from-the-environment")

    def run(*arguments: str) -> Run:
        code = main(arguments)
        streams = capsys.readouterr()
        return Run(int(code), streams.out, streams.err)

    return run
