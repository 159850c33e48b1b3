"""The public keys of an OpenID Connect provider: fetched when needed, kept, and asked for again with care.

Rules:
- the provider is asked at most once in `REFETCH_AFTER_S`, whatever tokens strangers send; few requests wait
  for its answer (`WAITERS_MAX`), others whose key is not known are sent away meanwhile;
- keys that are known go on being used while it is away, for `STALE_MAX_S` at most; nobody waits for new ones;
- an answer is bounded in bytes and in time, and no redirect is followed.
"""

import json
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey

from app.errors import Unavailable
from app.outgoing.hosts import JudgedTransport
from app.outgoing.transport import Deadline, DeadlineTransport
from app.settings import OidcSettings
from spark.targets.errors import TargetError

ANSWER_MAX_BYTES: Final = 512 * 1024
REQUEST_MAX_S: Final = 5.0
REFETCH_AFTER_S: Final = 30.0
STALE_MAX_S: Final = 86_400.0
RETRY_AFTER_S: Final = "5"
WAITERS_MAX: Final = 3
CONNECTIONS_MAX: Final = 2
DISCOVERY: Final = "/.well-known/openid-configuration"

PublicKey = RSAKey | ECKey | OKPKey
Fetch = Callable[[str], dict[str, Any]]
log = structlog.get_logger(__name__)


class IdentityProviderUnavailable(Unavailable):
    """Tokens of the provider cannot be checked: its keys are not known, and it does not answer."""


class Provider:
    """Gets JSON of the provider.

    Args:
        settings: with an issuer.
    """

    def __init__(self, settings: OidcSettings) -> None:
        verify = ssl.create_default_context(
            cafile=None if settings.ca_file is None else str(settings.ca_file)
        )
        self._deadline = Deadline()
        way = DeadlineTransport(verify=verify, connections_max=CONNECTIONS_MAX, deadline=self._deadline)
        hosts = (tuple(settings.hosts),) if settings.hosts else ()
        self._client = httpx.Client(
            transport=JudgedTransport(way, hosts),
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            trust_env=False,
        )

    def fetch(self, url: str) -> dict[str, Any]:
        """The object at a URL.

        Raises: IdentityProviderUnavailable.
        """
        try:
            with (
                self._deadline.within(REQUEST_MAX_S),
                self._client.stream("GET", url, timeout=REQUEST_MAX_S) as answer,
            ):
                if answer.status_code != httpx.codes.OK:
                    raise _unavailable(url, f"it answers {answer.status_code}")
                found = json.loads(_bounded(answer, url))
        except (httpx.HTTPError, httpx.InvalidURL, TargetError, OSError, ValueError, RecursionError) as error:
            raise _unavailable(url, str(error) or type(error).__name__) from error
        if not isinstance(found, dict):
            raise _unavailable(url, "it answers no JSON object")
        return found


class Keys:
    """The keys of one provider. May be used by several threads.

    Args:
        fetch: gets an object at a URL, or raises IdentityProviderUnavailable.
        clock_s: goes on, whatever the calendar does.
    """

    def __init__(
        self, settings: OidcSettings, fetch: Fetch, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._fetch = fetch
        self._clock_s = clock_s
        self._asking = threading.Lock()
        self._waiting = threading.BoundedSemaphore(WAITERS_MAX)
        self._kept: list[PublicKey] = []
        self._fetched_s: float | None = None
        self._asked_s: float | None = None

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The key that a token names; None: the provider has no such key for this algorithm.

        Raises: IdentityProviderUnavailable: no keys are known, they are too old, or they are being fetched.
        """
        found = self._choose(kid, algorithm) if self._is_usable() else None
        if found is not None:
            if self._is_old() and self._may_ask():
                threading.Thread(target=self._renew, name="lethe-oidc-keys", daemon=True).start()
            return found
        self._renew_or_wait()
        if self._asking.locked() or not self._is_usable():
            raise IdentityProviderUnavailable(
                f"the keys of {self._settings.issuer} cannot be fetched now; see the log, and try again",
                headers={"Retry-After": RETRY_AFTER_S},
            )
        return self._choose(kid, algorithm)

    def _choose(self, kid: str | None, algorithm: str) -> PublicKey | None:
        usable = [key for key in self._kept if _may_verify(key, algorithm)]
        if kid is None:
            return usable[0] if len(usable) == 1 else None
        return next((key for key in usable if key.get("kid") == kid), None)

    def _is_old(self) -> bool:
        return self._fetched_s is None or self._clock_s() - self._fetched_s > self._settings.keys_fresh_s

    def _is_usable(self) -> bool:
        return self._fetched_s is not None and self._clock_s() - self._fetched_s <= STALE_MAX_S

    def _renew_or_wait(self) -> None:
        """Ask the provider; while another one does, wait for him, where not too many do."""
        if not self._asking.locked():
            self._renew()
        elif self._waiting.acquire(blocking=False):
            try:
                if self._asking.acquire(timeout=REQUEST_MAX_S):
                    self._asking.release()
            finally:
                self._waiting.release()

    def _may_ask(self) -> bool:
        return self._asked_s is None or self._clock_s() - self._asked_s >= REFETCH_AFTER_S

    def _renew(self) -> None:
        """Ask the provider, unless somebody does, or has just done so."""
        if not self._asking.acquire(blocking=False):
            return
        try:
            if not self._may_ask():
                return
            self._asked_s = self._clock_s()
            self._kept = self._fetched_keys()
            self._fetched_s = self._clock_s()
            log.info("oidc.keys_fetched", issuer=self._settings.issuer, keys=len(self._kept))
        except IdentityProviderUnavailable as error:
            log.warning("oidc.keys_not_fetched", issuer=self._settings.issuer, cause=error.detail)
        finally:
            self._asking.release()

    def _fetched_keys(self) -> list[PublicKey]:
        url = self._settings.jwks_url or self._discovered()
        found = self._fetch(url).get("keys")
        if not isinstance(found, list):
            raise _unavailable(url, "it answers no set of keys")
        return [key for each in found if (key := _public_key(each)) is not None]

    def _discovered(self) -> str:
        issuer = str(self._settings.issuer)
        where = issuer.rstrip("/") + DISCOVERY
        found = self._fetch(where)
        if found.get("issuer") != issuer:
            raise _unavailable(
                where, f"it says that the issuer is {found.get('issuer')!r}; set LETHE_OIDC__ISSUER to it"
            )
        url = found.get("jwks_uri")
        if not isinstance(url, str) or urlsplit(url).scheme != urlsplit(issuer).scheme:
            raise _unavailable(where, "it names no jwks_uri of the issuer's scheme")
        return url


def _bounded(answer: httpx.Response, url: str) -> bytes:
    found = bytearray()
    for piece in answer.iter_raw():
        found += piece
        if len(found) > ANSWER_MAX_BYTES:
            raise _unavailable(url, f"its answer is larger than {ANSWER_MAX_BYTES} bytes")
    return bytes(found)


def _unavailable(url: str, cause: str) -> IdentityProviderUnavailable:
    return IdentityProviderUnavailable(f"{url}: {cause}")


def _public_key(found: object) -> PublicKey | None:
    """One key of a set; None: of a kind that is not known here, secret, or broken."""
    try:
        [key] = KeySet.import_key_set({"keys": [cast(Any, found)]}).keys
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if isinstance(key, OctKey) or key.is_private else key


def _may_verify(key: PublicKey, algorithm: str) -> bool:
    """Whether a key is of a kind, and meant, for checking signatures of an algorithm."""
    if key.get("use") not in (None, "sig") or key.get("alg") not in (None, algorithm):
        return False
    operations = key.get("key_ops")
    if operations is not None and "verify" not in operations:
        return False
    kinds = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}
    return isinstance(key, kinds[algorithm[:2]])
