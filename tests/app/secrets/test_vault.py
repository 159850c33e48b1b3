"""Secrets of a Vault: a server on loopback that speaks its protocol, lies, hangs and redirects."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.secrets.errors import SecretUnavailable
from app.secrets.models import SecretCreate
from app.secrets.reading import problem_of, read_reference
from app.secrets.vault import ANSWER_MAX_BYTES
from app.settings import Settings, VaultSettings
from tests.certificates import make_certificate

REFERENCE = "vault:kv/shop/db#password"
PLACE = "/v1/kv/data/shop/db"
LOGIN = "/v1/auth/approle/login"
Answer = Callable[[BaseHTTPRequestHandler], None]


class FakeVault:
    """Tokens, AppRoles and one secret; `odd` answers a path in its own way."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {"password": "hunter2", "port": 5432}
        self.tokens = {"root-token"}
        self.secret_id = "right"
        self.lease_s = 3_600
        self.logins = 0
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.odd: dict[str, Answer] = {}
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked.append((handler.command, handler.path, dict(handler.headers)))
        length = int(handler.headers.get("Content-Length", 0))
        body = json.loads(handler.rfile.read(length)) if length else {}
        if handler.path in self.odd:
            self.odd[handler.path](handler)
        elif handler.path == LOGIN:
            if (body.get("role_id"), body.get("secret_id")) != ("lethe", self.secret_id):
                return send(handler, 400, {"errors": ["invalid role or secret ID"]})
            self.logins += 1
            self.tokens = {f"token-{self.logins}"}
            auth = {"client_token": f"token-{self.logins}", "lease_duration": self.lease_s}
            send(handler, 200, {"auth": auth})
        elif handler.headers.get("X-Vault-Token") not in self.tokens:
            send(handler, 403, {"errors": ["permission denied: hunter2"]})
        elif handler.path == PLACE:
            send(handler, 200, {"data": {"data": self.values, "metadata": {"version": 3}}})
        else:
            send(handler, 404, {"errors": []})
        return None


def send(handler: BaseHTTPRequestHandler, status: int, body: Any, **headers: str) -> None:
    """One whole answer."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content)


def _endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100 * ANSWER_MAX_BYTES // 65_536):
            handler.wfile.write(b" " * 65_536)
    except OSError:
        return


def _dribble(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(1_200):
            handler.wfile.write(b" ")
            time.sleep(0.05)
    except OSError:
        return


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    fake = FakeVault()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.answer(self)

        def do_POST(self) -> None:
            fake.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


class Reader:
    """Settings of a service that knows a Vault."""

    def __init__(self, vault: FakeVault, folder: Path) -> None:
        self.token_file, self.secret_id_file = folder / "vault.token", folder / "vault.secret-id"
        for path, content in ((self.token_file, "root-token\n"), (self.secret_id_file, "right")):
            path.write_text(content)
            path.chmod(0o600)
        self.folder = folder
        self.by_token: dict[str, Any] = {"url": vault.url, "token_file": self.token_file, "timeout_s": 5}
        self.by_role = {
            "url": vault.url,
            "role_id": "lethe",
            "secret_id_file": self.secret_id_file,
            "timeout_s": 5,
        }

    def settings(self, given: dict[str, Any], **more: Any) -> Settings:
        vault = VaultSettings(**(given | more))
        return Settings(data_dir=self.folder / "data", vault=vault, secrets_fresh_s=0)

    def read(self, given: dict[str, Any], reference: str = REFERENCE, **more: Any) -> str:
        return read_reference(reference, name="shop", settings=self.settings(given, **more))

    def fault(self, given: dict[str, Any], reference: str = REFERENCE, **more: Any) -> str:
        with pytest.raises(SecretUnavailable) as refused:
            self.read(given, reference, **more)
        for content in ("hunter2", "root-token", "right", "token-"):
            assert content not in refused.value.detail
        return refused.value.detail


@pytest.fixture
def reader(vault: FakeVault, tmp_path: Path) -> Reader:
    return Reader(vault, tmp_path)


def test_value_is_read_by_a_token(vault: FakeVault, reader: Reader) -> None:
    assert reader.read(reader.by_token, namespace="team") == "hunter2"
    [(method, path, headers)] = vault.asked
    assert (method, path, headers["X-Vault-Namespace"]) == ("GET", PLACE, "team")
    vault.values["password"] = "changed"
    assert reader.read(reader.by_token, namespace="team") == "changed"


def test_token_file_is_read_at_each_use(vault: FakeVault, reader: Reader) -> None:
    assert reader.read(reader.by_token) == "hunter2"
    vault.tokens = {"renewed-by-an-agent"}
    assert "refuses us (403)" in reader.fault(reader.by_token)
    reader.token_file.write_text("renewed-by-an-agent")
    assert reader.read(reader.by_token) == "hunter2"
    reader.token_file.chmod(0o604)
    assert "everybody" in reader.fault(reader.by_token)
    reader.token_file.unlink()
    assert "No such file" in reader.fault(reader.by_token)


def test_role_logs_in_once_and_again_where_it_is_refused(vault: FakeVault, reader: Reader) -> None:
    for _ in range(3):
        assert reader.read(reader.by_role) == "hunter2"
    assert vault.logins == 1
    vault.tokens = set()  # revoked
    assert reader.read(reader.by_role) == "hunter2"
    assert vault.logins == 2
    vault.secret_id = "another"
    vault.tokens = set()
    assert "login by AppRole failed" in reader.fault(reader.by_role)
    reader.secret_id_file.write_text("another")
    assert reader.read(reader.by_role) == "hunter2"


def test_a_short_lease_is_not_outlived(vault: FakeVault, reader: Reader) -> None:
    vault.lease_s = 1
    for _ in range(2):
        assert reader.read(reader.by_role, namespace="short") == "hunter2"
        time.sleep(0.6)
    assert vault.logins == 2


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (lambda handler: send(handler, 200, b"hunter2, no json"), "no JSON"),
        (lambda handler: send(handler, 200, b"[" * 100_000), "no JSON"),
        (lambda handler: send(handler, 200, ["hunter2"]), "no JSON object"),
        (lambda handler: send(handler, 200, {"data": {"password": "hunter2"}}), "version 2"),
        (lambda handler: send(handler, 200, {"data": {"data": {"password": ["hunter2"]}}}), "no field"),
        (lambda handler: send(handler, 200, {"data": {"data": {"other": "hunter2"}}}), "no field"),
        (lambda handler: send(handler, 200, {"data": {"data": {"password": "x" * 5_000}}}), "more than"),
        (lambda handler: send(handler, 307, {}, Location=PLACE.replace("db", "other")), "redirects (307)"),
        (lambda handler: send(handler, 503, {}), "sealed"),
        (lambda handler: send(handler, 500, {"errors": ["hunter2"]}), "answers 500"),
        (_endless, "larger than"),
        (lambda handler: handler.wfile.write(b"garbage\r\n\r\n"), "cannot be asked"),
        (lambda handler: handler.connection.close(), "cannot be asked"),
    ],
)
def test_vault_that_lies(vault: FakeVault, reader: Reader, odd: Answer, words: str) -> None:
    vault.odd[PLACE] = odd
    assert words in reader.fault(reader.by_token)
    assert [path for _, path, _ in vault.asked] == [PLACE]  # no redirect was followed
    assert words in str(problem_of(REFERENCE, name="shop", settings=reader.settings(reader.by_token)))


def test_vault_that_dribbles_has_its_time(vault: FakeVault, reader: Reader) -> None:
    vault.odd[PLACE] = _dribble
    began = time.monotonic()
    assert "cannot be asked" in reader.fault(reader.by_token, timeout_s=0.5)
    assert time.monotonic() - began < 50


def test_login_that_lies(vault: FakeVault, reader: Reader) -> None:
    for body in ({}, {"auth": None}, {"auth": {"client_token": ""}}, {"auth": {"client_token": "a\u00e4\n"}}):
        vault.odd[LOGIN] = lambda handler, body=body: send(handler, 200, body)  # type: ignore[misc]
        assert "has no token" in reader.fault(reader.by_role)


def test_vault_elsewhere_than_allowed_is_not_asked(vault: FakeVault, reader: Reader) -> None:
    assert "cannot be asked" in reader.fault(reader.by_token, hosts=["10.0.0.0/8"])
    assert vault.asked == []
    assert reader.read(reader.by_token, hosts=["127.0.0.0/8"]) == "hunter2"


def test_certificate_that_nobody_trusts(vault: FakeVault, reader: Reader, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            vault.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"https://127.0.0.1:{server.server_address[1]}"
        assert "cannot be asked" in reader.fault(reader.by_token, url=url)
        assert vault.asked == []
        assert reader.read(reader.by_token, url=url, ca_file=certificate) == "hunter2"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_paths_name_nothing_else() -> None:
    for wrong in (
        "vault:kv#password",
        "vault:kv/shop",
        "vault:kv/../sys/seal#a",
        "vault:kv/./a#b",
        "vault:kv//a#b",
        "vault:kv/a?b#c",
        "vault:kv/a%2f#c",
        "vault:/kv/a#b",
    ):
        with pytest.raises(ValidationError):
            SecretCreate(name="a", reference=wrong, stores=["shop"], hosts=["h"])
    SecretCreate(name="a", reference="vault:kv/a..b/c#d", stores=["shop"], hosts=["h"])


def test_settings_that_are_half_or_in_the_clear(tmp_path: Path) -> None:
    for wrong in (
        {"url": "http://vault.example", "token_file": tmp_path},
        {"url": "https://vault.example"},
        {"url": "https://vault.example", "role_id": "a"},
        {"url": "https://vault.example", "role_id": "a", "secret_id_file": tmp_path, "token_file": tmp_path},
    ):
        with pytest.raises(ValidationError):
            VaultSettings(**wrong)  # type: ignore[arg-type]
    none = Settings(data_dir=tmp_path)
    with pytest.raises(SecretUnavailable, match="knows no Vault"):
        read_reference(REFERENCE, name="shop", settings=none)
