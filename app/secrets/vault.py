"""Secrets in HashiCorp Vault: the key-value store, version 2, over verified TLS.

Rules:
- the settings say where Vault is and who we are (LETHE_VAULT__*); a secret says mount, path and field;
- an answer is bounded in bytes and in time, and no redirect is followed: our token goes to the host that the
  settings name, at an address that they allow, and nowhere else;
- files with tokens are read when they are needed, so that an agent may replace them; a token of an AppRole is
  kept for a part of its lease, and asked for again once where Vault refuses it;
- nothing of an answer is in a message.
"""

import json
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from app.outgoing.hosts import JudgedTransport
from app.outgoing.transport import Deadline, DeadlineTransport
from app.settings import VaultSettings
from spark.targets.errors import TargetError

ANSWER_MAX_BYTES: Final = 256 * 1024
TOKEN_MAX_BYTES: Final = 8_192
LEASE_SHARE: Final = 0.5
LEASE_MAX_S: Final = 3_600.0
CONNECTIONS_MAX: Final = 4
REFUSED: Final = 403


class _Answered(ValueError):
    """Vault answers something else than 200."""

    def __init__(self, status: int) -> None:
        said = {403: "it refuses us (403)", 404: "it has no such secret (404)", 503: "it is sealed (503)"}
        redirected = f"it redirects ({status}): name the active node, or let standbys forward requests"
        default = redirected if 300 <= status < 400 else f"it answers {status}"
        super().__init__(said.get(status, default))
        self.status = status


class Vault:
    """One Vault. May be used by several threads."""

    def __init__(self, settings: VaultSettings, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        assert settings.url is not None, "without a URL nobody comes here"
        verify = ssl.create_default_context(
            cafile=None if settings.ca_file is None else str(settings.ca_file)
        )
        self._settings = settings
        self._base = settings.url.rstrip("/")
        self._clock_s = clock_s
        self._deadline = Deadline()
        self._guard = threading.Lock()
        self._token: str | None = None
        self._token_until_s = 0.0
        way = DeadlineTransport(verify=verify, connections_max=CONNECTIONS_MAX, deadline=self._deadline)
        hosts = (tuple(settings.hosts),) if settings.hosts else ()
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "X-Vault-Request": "true"}
        if settings.namespace is not None:
            headers["X-Vault-Namespace"] = settings.namespace
        self._client = httpx.Client(
            transport=JudgedTransport(way, hosts), headers=headers, trust_env=False, follow_redirects=False
        )

    def read(self, named: str) -> str:
        """The value at `MOUNT/PATH#FIELD`.

        Raises: ValueError: it cannot be had; OSError: of a file with a token.
        """
        path, _, name = named.partition("#")
        mount, _, rest = path.partition("/")
        place = f"/v1/{quote(mount, safe='')}/data/{quote(rest)}"
        with self._deadline.within(self._settings.timeout_s):
            try:
                found = self._get(place, self._credential())
            except _Answered as error:
                if error.status != REFUSED or self._settings.role_id is None:
                    raise
                found = self._get(place, self._credential(is_new=True))
        return _field(found, name)

    def _get(self, place: str, token: str) -> Mapping[str, Any]:
        return self._asked("GET", place, headers={"X-Vault-Token": token})

    def _asked(
        self, method: str, place: str, *, headers: Mapping[str, str], body: Any = None
    ) -> Mapping[str, Any]:
        try:
            with self._client.stream(
                method, self._base + place, headers=headers, json=body, timeout=self._settings.timeout_s
            ) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise _Answered(answer.status_code)
                found = json.loads(_bounded(answer))
        except TargetError as error:
            raise ValueError(f"Vault cannot be asked: {error.detail}") from error
        except httpx.HTTPError as error:
            raise ValueError(f"Vault cannot be asked: {str(error) or type(error).__name__}") from error
        except (_Answered, _TooMuch):
            raise
        except (ValueError, RecursionError) as error:
            raise ValueError("Vault's answer is no JSON") from error
        if not isinstance(found, dict):
            raise ValueError("Vault's answer is no JSON object")
        return found

    def _credential(self, *, is_new: bool = False) -> str:
        if self._settings.role_id is None:
            assert self._settings.token_file is not None, "the settings see to it"
            return _private(self._settings.token_file)
        with self._guard:
            if self._token is None or is_new or self._clock_s() >= self._token_until_s:
                self._token = None
                self._log_in()
            assert self._token is not None
            return self._token

    def _log_in(self) -> None:
        settings = self._settings
        assert settings.secret_id_file is not None, "the settings see to it"
        body = {"role_id": settings.role_id, "secret_id": _private(settings.secret_id_file)}
        place = f"/v1/auth/{quote(settings.approle_mount, safe='/')}/login"
        try:
            found = self._asked("POST", place, headers={}, body=body).get("auth")
        except _Answered as error:
            raise ValueError(f"the login by AppRole failed: {error}") from error
        token = found.get("client_token") if isinstance(found, dict) else None
        if not isinstance(found, dict) or not isinstance(token, str) or not token.isascii() or not token:
            raise ValueError("Vault's answer to the login has no token")
        lease = found.get("lease_duration")
        lease_s = float(lease) if isinstance(lease, int) and lease > 0 else LEASE_MAX_S
        self._token = token
        self._token_until_s = self._clock_s() + min(LEASE_MAX_S, lease_s * LEASE_SHARE)


class _TooMuch(ValueError):
    """The answer is larger than any secret."""


def _bounded(answer: httpx.Response) -> bytes:
    found = bytearray()
    for piece in answer.iter_raw():
        found += piece
        if len(found) > ANSWER_MAX_BYTES:
            raise _TooMuch(f"Vault's answer is larger than {ANSWER_MAX_BYTES} bytes")
    return bytes(found)


def _field(found: Mapping[str, Any], name: str) -> str:
    data = found.get("data")
    values = data.get("data") if isinstance(data, dict) else None
    if not isinstance(values, dict):
        raise ValueError("Vault's answer has no data: is the mount a key-value store of version 2?")
    value = values.get(name)
    if not isinstance(value, str):
        raise ValueError(f"the secret has no field {name} that is text")
    return value


def _private(path: Path) -> str:
    """What a file with a token holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is not a regular file")
        if found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            raise ValueError(f"everybody on this machine can read or write {path}: chmod o=")
        content = file.read(TOKEN_MAX_BYTES + 1)
    value = content.decode("ascii", "replace").strip()
    if not value or len(content) > TOKEN_MAX_BYTES or not value.isprintable() or not value.isascii():
        raise ValueError(f"{path} holds no token")
    return value


@lru_cache(maxsize=8)
def _vault(settings_json: str) -> Vault:
    return Vault(VaultSettings.model_validate_json(settings_json))


def vault_of(settings: VaultSettings) -> Vault:
    """The Vault of these settings, with its connections.

    Raises: ValueError: there is none.
    """
    if settings.url is None:
        raise ValueError("LETHE_VAULT__URL is not set: the service knows no Vault")
    try:
        return _vault(settings.model_dump_json())
    except OSError as error:
        raise ValueError(f"LETHE_VAULT__CA_FILE: {error.strerror}") from error
