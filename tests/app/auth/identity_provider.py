"""An identity provider of the tests: real keys and tokens, and a server on loopback that may misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jws, jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.registry import HeaderParameter

from app.settings import OidcSettings

AUDIENCE = "lethe"
DISCOVERY = "/.well-known/openid-configuration"
Key = RSAKey | ECKey | OKPKey | OctKey


@cache
def rsa_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid})


class Provider:
    """Keys, and what the server answers by path: a value as JSON, bytes, or a callable on the handler."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: list[Key] = [rsa_key("one")]
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.publish()

    def publish(self, *more: dict[str, Any]) -> None:
        """Show the public half of the keys."""
        shown = [key.as_dict(private=isinstance(key, OctKey)) for key in self.keys]
        self.answers["/keys"] = {"keys": [*shown, *more]}
        self.answers[DISCOVERY] = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    def settings(self, **more: Any) -> OidcSettings:
        known = {"issuer": self.url, "audience": [AUDIENCE], "roles": {"ops": "operator", "boss": "admin"}}
        return OidcSettings(**(known | more))

    def token(
        self,
        now: datetime,
        *,
        key: Key | None = None,
        header: dict[str, Any] | None = None,
        without: tuple[str, ...] = (),
        **claims: Any,
    ) -> str:
        """A token, good for five minutes where nothing else is said."""
        key = key or self.keys[0]
        instant = int(now.timestamp())
        body = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "u-17",
            "preferred_username": "alice",
            "iat": instant,
            "exp": instant + 300,
            "roles": ["ops"],
        } | claims
        head = {"alg": "RS256", "kid": key.kid} | (header or {})
        head = {name: value for name, value in head.items() if value is not None}
        body = {name: value for name, value in body.items() if name not in without}
        odd = {"odd": HeaderParameter("An extension", "int")}
        registry = jws.JWSRegistry(odd, algorithms=[head["alg"]], strict_check_header=False)
        return jwt.encode(head, body, key, registry=registry)


@contextmanager
def running_provider() -> Iterator[Provider]:
    """One on a free port of loopback."""
    found: list[Provider] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider = found[0]
            provider.asked.append(self.path)
            answer = provider.answers.get(self.path)
            if callable(answer):
                answer(self)
                return
            body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.append(Provider(f"http://127.0.0.1:{server.server_address[1]}"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def redirect(handler: BaseHTTPRequestHandler) -> None:
    """To keys, on the same server."""
    handler.send_response(302)
    handler.send_header("Location", "/keys")
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def dribble(handler: BaseHTTPRequestHandler) -> None:
    """A byte now and then, for ever so long."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(60):
        try:
            handler.wfile.write(b" ")
        except OSError:
            return
        time.sleep(0.05)
