"""Tokens of an OpenID Connect provider: who comes in, who does not, and what liars reach."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from pydantic import ValidationError

from app.auth.oidc import keys as keys_module
from app.auth.oidc.bearer import caller_of_jwt
from app.auth.oidc.form import is_jwt
from app.auth.oidc.keys import REFETCH_AFTER_S, STALE_MAX_S, IdentityProviderUnavailable, Keys, Provider
from app.auth.scopes import ROLES, Role, Scope
from app.auth.service import Caller
from app.errors import Forbidden, TokenExpired, Unauthenticated
from app.settings import OidcSettings
from tests.app.auth.identity_provider import (
    AUDIENCE,
    DISCOVERY,
    dribble,
    redirect,
    rsa_key,
    running_provider,
)
from tests.app.auth.identity_provider import Provider as Identity

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


class Ticks:
    """A clock that stands until it is moved."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def server() -> Iterator[Identity]:
    with running_provider() as found:
        yield found


@pytest.fixture
def provider(server: Identity) -> Identity:
    server.keys = [rsa_key("one")]
    server.publish()
    server.asked.clear()
    return server


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


def keys_of(provider: Identity, ticks: Ticks, **more: Any) -> Keys:
    settings = provider.settings(**more)
    return Keys(settings, Provider(settings).fetch, clock_s=ticks)


def call(provider: Identity, secret: str, *, now: datetime = NOW, **more: Any) -> Caller:
    settings = provider.settings(**more)
    return caller_of_jwt(secret, settings, keys_of(provider, Ticks(), **more), now=now)


def test_whoever_has_a_role_comes_in_with_its_scopes(provider: Identity) -> None:
    secret = provider.token(NOW)
    assert is_jwt(secret)
    found = call(provider, secret)
    assert (found.name, found.stores) == ("oidc:alice", None)
    assert found.scopes == ROLES[Role.OPERATOR]
    assert len(found.token_id) <= 40
    assert call(provider, provider.token(NOW, roles=["ops", "boss", "other"])).scopes == frozenset(Scope)


@pytest.mark.parametrize(
    ("more", "claims"),
    [
        ({"role_claim": "realm_access.roles"}, {"realm_access": {"roles": ["ops"]}}),
        ({"role_claim": "https://corp.example/roles"}, {"https://corp.example/roles": ["ops"]}),
        ({"role_claim": "scope"}, {"scope": "openid ops"}),
    ],
)
def test_roles_stand_where_the_settings_say(
    provider: Identity, more: dict[str, Any], claims: dict[str, Any]
) -> None:
    secret = provider.token(NOW, without=("roles",), **claims)
    assert call(provider, secret, **more).scopes == ROLES[Role.OPERATOR]


@pytest.mark.parametrize("roles", [[], ["admin"], "", 7, {"ops": True}, [["ops"]], None])
def test_whoever_has_no_role_is_told_so(provider: Identity, roles: object) -> None:
    with pytest.raises(Forbidden) as refused:
        call(provider, provider.token(NOW, roles=roles))
    assert refused.value.code == "NO_ROLE"


@pytest.mark.parametrize(
    ("claim", "stores"),
    [
        (["shop", "desk"], {"shop", "desk"}),
        ("shop desk", {"shop", "desk"}),
        (["*"], None),
        (["shop", "NO!"], {"shop"}),
    ],
)
def test_stores_of_a_claim_limit_the_caller(
    provider: Identity, claim: object, stores: set[str] | None
) -> None:
    found = call(provider, provider.token(NOW, stores=claim), stores_claim="stores")
    assert found.stores == (None if stores is None else frozenset(stores))


@pytest.mark.parametrize("claim", [[], None, 5, ["../etc"], {"shop": 1}])
def test_whoever_cannot_be_limited_is_refused(provider: Identity, claim: object) -> None:
    with pytest.raises(Forbidden) as refused:
        call(provider, provider.token(NOW, stores=claim), stores_claim="stores")
    assert refused.value.code == "NO_STORES"


def test_names_are_printable_and_bounded_and_ids_are_of_issuer_and_subject(provider: Identity) -> None:
    odd = call(provider, provider.token(NOW, preferred_username="a\nb\x7f" + "c" * 500))
    assert odd.name.startswith("oidc:a?b?ccc")
    assert len(odd.name) < 100
    other = call(provider, provider.token(NOW, sub="u-18"))
    assert other.name == "oidc:alice"
    assert other.token_id != odd.token_id
    assert call(provider, provider.token(NOW, without=("preferred_username",))).name == "oidc:u-17"


@pytest.mark.parametrize("claims", [{"nonce": "n"}, {"at_hash": "h"}, {"events": {}}, {"typ": "ID"}], ids=str)
def test_a_token_that_is_shown_around_is_no_access_token(provider: Identity, claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated, match="send an access token"):
        call(provider, provider.token(NOW, **claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"aud": "somebody-else"},
        {"aud": []},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": 17},
        {"exp": None},
        {"exp": "soon"},
        {"nbf": int(NOW.timestamp()) + 600},
        {"iat": int(NOW.timestamp()) + 600},
    ],
    ids=str,
)
def test_a_frame_that_does_not_fit_is_refused(provider: Identity, claims: dict[str, Any]) -> None:
    gone = tuple(name for name, value in claims.items() if value is None)
    with pytest.raises(Unauthenticated) as refused:
        call(provider, provider.token(NOW, without=gone, **claims))
    assert (refused.value.status, refused.value.code) == (401, "TOKEN_REFUSED")


def test_one_of_several_audiences_will_do(provider: Identity) -> None:
    assert call(provider, provider.token(NOW, aud=["other", AUDIENCE])).name == "oidc:alice"


def test_a_token_ends_at_its_moment_and_some_leeway(provider: Identity) -> None:
    secret = provider.token(NOW)
    assert call(provider, secret, now=NOW + timedelta(seconds=300 + 29)).name
    with pytest.raises(TokenExpired):
        call(provider, secret, now=NOW + timedelta(seconds=300 + 31))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unsigned(secret: str, header: dict[str, Any]) -> str:
    return f"{_text(json.dumps(header).encode())}.{secret.split('.')[1]}."


def _with_shared_secret(secret: str, shared: bytes) -> str:
    signed = _unsigned(secret, {"alg": "HS256", "kid": "one"}).removesuffix(".")
    return f"{signed}.{_text(hmac.digest(shared, signed.encode(), 'sha256'))}"


def test_a_forger_does_not_come_in(provider: Identity) -> None:
    public = rsa_key("one")
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    good = provider.token(NOW)
    head, body, signature = good.split(".")
    forged = {
        "no signature": _unsigned(good, {"alg": "none"}),
        "no signature, known key": _unsigned(good, {"alg": "RS256", "kid": "one"}),
        "another key under the same kid": provider.token(NOW, key=stranger),
        "its own key inside": provider.token(
            NOW, key=stranger, header={"jwk": stranger.as_dict(private=False), "kid": None}
        ),
        "the public key as a shared secret": _with_shared_secret(good, public.as_pem(private=False)),
        "an algorithm that is not allowed": provider.token(NOW, header={"alg": "RS512"}),
        "an extension nobody knows": provider.token(NOW, header={"crit": ["odd"], "odd": 1}),
        "a kid that is no text": _unsigned(good, {"alg": "RS256", "kid": 5}) + signature,
        "another body": f"{head}.{body[:-4]}AAAA.{signature}",
        "no text at all": "..",
        "not base64": "é.é.é",
        "very long": f"{head}.{'A' * 20_000}.{signature}",
    }
    for lie, secret in forged.items():
        with pytest.raises(Unauthenticated) as refused:
            call(provider, secret)
        assert refused.value.code == "TOKEN_REFUSED", lie


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")  # its successor has the name Ed25519
@pytest.mark.parametrize("algorithm", ["ES256", "EdDSA", "Ed25519"])
def test_keys_of_other_kinds_serve_their_own_algorithms_only(provider: Identity, algorithm: str) -> None:
    fields = {"kid": "other"}
    key = (
        ECKey.generate_key("P-256", fields)
        if algorithm == "ES256"
        else OKPKey.generate_key("Ed25519", fields)
    )
    provider.keys = [key]
    provider.publish()
    assert call(provider, provider.token(NOW, header={"alg": algorithm})).name
    provider.publish(rsa_key("one").as_dict(private=False))
    with pytest.raises(Unauthenticated):
        call(provider, provider.token(NOW, key=rsa_key("one"), header={"kid": key.kid}))


@pytest.mark.parametrize("fields", [{"use": "enc"}, {"alg": "RS512"}, {"key_ops": ["encrypt"]}], ids=str)
def test_keys_that_are_meant_for_something_else_are_not_used(
    provider: Identity, fields: dict[str, Any]
) -> None:
    shown = rsa_key("one").as_dict(private=False) | fields
    provider.answers["/keys"] = {"keys": [shown]}
    with pytest.raises(Unauthenticated):
        call(provider, provider.token(NOW))


def test_secret_unknown_and_broken_keys_of_a_set_harm_nothing(provider: Identity) -> None:
    provider.keys.append(OctKey.generate_key(256, {"kid": "shared"}))
    provider.publish({"kty": "QUANTUM"}, {"kty": "RSA"}, {})
    assert call(provider, provider.token(NOW)).name
    with pytest.raises(Unauthenticated):
        call(provider, provider.token(NOW, key=provider.keys[1], header={"alg": "HS256"}))


def test_a_token_without_a_kid_needs_a_provider_with_one_key(provider: Identity) -> None:
    assert call(provider, provider.token(NOW, header={"kid": None})).name
    provider.keys.append(rsa_key("two"))
    provider.publish()
    with pytest.raises(Unauthenticated):
        call(provider, provider.token(NOW, header={"kid": None}))


def test_keys_are_fetched_once_and_anew_when_they_are_old(provider: Identity, ticks: Ticks) -> None:
    keys = keys_of(provider, ticks)
    for _ in range(50):
        assert keys.find("one", "RS256") is not None
    assert provider.asked == [DISCOVERY, "/keys"]
    ticks.now_s = 301.0
    assert keys.find("one", "RS256") is not None
    deadline = time.monotonic() + 20
    while len(provider.asked) < 4:  # beside the request
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_new_key_is_found_and_one_that_was_taken_back_is_gone(provider: Identity, ticks: Ticks) -> None:
    keys = keys_of(provider, ticks)
    assert keys.find("one", "RS256") is not None
    provider.keys = [rsa_key("two")]
    provider.publish()
    ticks.now_s = REFETCH_AFTER_S + 1
    assert keys.find("two", "RS256") is not None
    assert keys.find("one", "RS256") is None


def test_strangers_with_made_up_keys_do_not_make_us_ask(provider: Identity, ticks: Ticks) -> None:
    keys = keys_of(provider, ticks, jwks_url=f"{provider.url}/keys")
    assert all(keys.find(f"made-up-{number}", "RS256") is None for number in range(200))
    assert provider.asked == ["/keys"]
    ticks.now_s = REFETCH_AFTER_S + 1
    assert all(keys.find(f"made-up-{number}", "RS256") is None for number in range(200))
    assert provider.asked == ["/keys", "/keys"]


def test_known_keys_serve_while_the_provider_is_away_for_a_day_at_most(
    provider: Identity, ticks: Ticks
) -> None:
    keys = keys_of(provider, ticks)
    assert keys.find("one", "RS256") is not None
    provider.answers.clear()
    ticks.now_s = STALE_MAX_S - 1
    assert keys.find("one", "RS256") is not None
    ticks.now_s = STALE_MAX_S + 1
    with pytest.raises(IdentityProviderUnavailable) as away:
        keys.find("one", "RS256")
    assert (away.value.status, away.value.retryable) == (503, True)


def test_nobody_waits_for_a_slow_provider_whose_keys_are_known(provider: Identity, ticks: Ticks) -> None:
    entered, leave = threading.Event(), threading.Event()
    settings = provider.settings(jwks_url=f"{provider.url}/keys")
    real = Provider(settings).fetch

    def slow(url: str) -> dict[str, Any]:
        if ticks.now_s > 0:
            entered.set()
            assert leave.wait(20)
        return real(url)

    keys = Keys(settings, slow, clock_s=ticks)
    assert keys.find("one", "RS256") is not None
    ticks.now_s = 301.0
    try:
        assert keys.find("one", "RS256") is not None  # it would hang here
        assert entered.wait(20)
        assert keys.find("one", "RS256") is not None
    finally:
        leave.set()


def test_strangers_hold_few_threads_while_the_provider_hangs(provider: Identity, ticks: Ticks) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hanging(url: str) -> dict[str, Any]:
        entered.set()
        assert leave.wait(20)
        raise IdentityProviderUnavailable(url)

    keys = Keys(provider.settings(), hanging, clock_s=ticks)
    sent_away = []

    def ask() -> None:
        try:
            keys.find("made-up", "RS256")
        except IdentityProviderUnavailable as error:
            sent_away.append(error)

    threads = [threading.Thread(target=ask) for _ in range(24)]
    for thread in threads:
        thread.start()
    try:
        assert entered.wait(20)
        deadline = time.monotonic() + 20
        while sum(thread.is_alive() for thread in threads) > 1 + keys_module.WAITERS_MAX:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert sent_away[0].headers == {"Retry-After": "5"}
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    assert len(sent_away) == len(threads)


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b"no json",
        DEEP,
        b"[]",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": "' + b"k" * 600_000 + b'"}',
        redirect,
        dribble,
    ],
    ids=["no json", "deep", "a list", "no keys", "a number", "large", "redirect", "dribbled"],
)
def test_a_sick_provider_lets_nobody_in_and_takes_no_time(
    provider: Identity, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(keys_module, "REQUEST_MAX_S", 0.3)
    provider.answers["/elsewhere"] = answer
    with pytest.raises(IdentityProviderUnavailable):
        call(provider, provider.token(NOW), jwks_url=f"{provider.url}/elsewhere")


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://elsewhere.example", "jwks_uri": "{url}/keys"},
        {"issuer": "{url}", "jwks_uri": "file:///etc/passwd"},
        {"issuer": "{url}"},
        {"issuer": "{url}", "jwks_uri": 5},
    ],
)
def test_a_discovery_that_says_something_else_is_not_believed(
    provider: Identity, said: dict[str, Any]
) -> None:
    provider.answers[DISCOVERY] = {
        name: value.format(url=provider.url) if isinstance(value, str) else value
        for name, value in said.items()
    }
    with pytest.raises(IdentityProviderUnavailable):
        call(provider, provider.token(NOW))


def test_a_provider_outside_of_its_hosts_is_not_asked(provider: Identity) -> None:
    with pytest.raises(IdentityProviderUnavailable):
        call(provider, provider.token(NOW), hosts=["10.0.0.0/8"])
    assert provider.asked == []


@pytest.mark.parametrize(
    "fields",
    [
        {"issuer": "http://id.example"},
        {"issuer": "ftp://id.example"},
        {"issuer": "https://"},
        {"jwks_url": "http://id.example/keys"},
        {"audience": []},
        {"roles": {}},
        {"roles": {"ops": "emperor"}},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"surprise": 1},
    ],
    ids=str,
)
def test_settings_that_let_in_anybody_or_nobody_are_refused(fields: dict[str, Any]) -> None:
    whole = {"issuer": "https://id.example", "audience": ["lethe"], "roles": {"ops": "operator"}}
    assert OidcSettings(**whole).issuer
    with pytest.raises(ValidationError):
        OidcSettings(**(whole | fields))
