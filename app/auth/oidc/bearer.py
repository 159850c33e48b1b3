"""From a bearer token of an OpenID Connect provider to a Caller.

Rules:
- signature, issuer, audience and end are looked at before any other claim is believed;
- who has no role here may do nothing; whoever cannot be limited to stores as the settings ask is refused;
- an ID token, which is shown around, is no access token;
- a name from outside stands behind `oidc:` wherever it is shown, so it is never taken for a token's.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError

from app.auth.oidc.keys import PublicKey
from app.auth.rows import StoreName
from app.auth.scopes import ROLES, Role, Scope, implied
from app.auth.service import PROVIDER_NAMES, PROVIDER_PREFIX, Caller
from app.errors import Forbidden, TokenExpired, Unauthenticated
from app.settings import OidcSettings

TOKEN_MAX_CHARS: Final = 16_384
NAME_MAX_CHARS: Final = 80
ALL_STORES: Final = "*"
LATEST_S: Final = 253_000_000_000.0
"""In the year 9987: what ends later does not end."""
# What ID tokens and logout tokens have: they travel where an access token does not.
NOT_FOR_ACCESS: Final = frozenset({"nonce", "at_hash", "c_hash", "events"})
NOT_ACCESS: Final = ("ID", "Logout", "Refresh", "Offline")
_STORE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f]")


class FindsKey(Protocol):
    """Where the provider's keys are (app.auth.oidc.keys.Keys)."""

    def find(self, kid: str | None, algorithm: str) -> PublicKey | None:
        """The key that a token names."""


def caller_of_jwt(secret: str, settings: OidcSettings, keys: FindsKey, *, now: datetime) -> Caller:
    """Find the caller of a provider's token.

    Raises:
        Unauthenticated: it is not the provider's, or not for this service.
        TokenExpired: it was good once.
        Forbidden: it names no role here, or no stores.
        IdentityProviderUnavailable: it cannot be checked now.
    """
    claims = _believed(secret, settings, keys, now=now)
    subject = claims["sub"]
    if not isinstance(subject, str) or not subject:
        raise _refused("its claim sub is empty")
    digest = hashlib.sha256(f"{settings.issuer}\0{subject}".encode("utf-8", "replace")).hexdigest()
    return Caller(
        token_id=PROVIDER_PREFIX + digest[:32],
        name=_name(claims, settings, subject),
        scopes=implied(_scopes(claims, settings)),
        stores=_stores(claims, settings),
        expires_at=_ends_at(claims, settings),
    )


def _ends_at(claims: Mapping[str, Any], settings: OidcSettings) -> datetime:
    """Until when the token is taken; the registry has seen that its end is a number."""
    return datetime.fromtimestamp(min(float(claims["exp"]), LATEST_S) + settings.leeway_s, UTC)


def _believed(secret: str, settings: OidcSettings, keys: FindsKey, *, now: datetime) -> Mapping[str, Any]:
    """The claims of a token whose signature and frame hold."""
    if len(secret) > TOKEN_MAX_CHARS:
        raise _refused(f"it is longer than {TOKEN_MAX_CHARS} characters")
    assert settings.issuer is not None, "without an issuer nobody comes here"
    key, algorithm = _key(secret, settings, keys)
    registry = jwt.JWTClaimsRegistry(
        now=int(now.timestamp()),
        leeway=settings.leeway_s,
        iss={"essential": True, "value": settings.issuer},
        aud={"essential": True, "values": list(settings.audience)},
        exp={"essential": True},
        sub={"essential": True},
    )
    try:
        claims = jwt.decode(secret, key, algorithms=[algorithm]).claims
        registry.validate(claims)
    except ExpiredTokenError as error:
        raise TokenExpired("the provider's token has expired; get a new one from it") from error
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise _refused(str(error) or type(error).__name__) from error
    if not NOT_FOR_ACCESS.isdisjoint(claims) or claims.get("typ") in NOT_ACCESS:
        raise _refused("it is an ID token or the like; send an access token")
    return claims


def _key(secret: str, settings: OidcSettings, keys: FindsKey) -> tuple[PublicKey, str]:
    """The key of the provider that a token names, and the algorithm."""
    try:
        header = jws.extract_compact(secret.encode("ascii")).headers()
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        raise _refused("it is no signed JWT") from error
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in settings.algorithms:
        raise _refused(
            f"its algorithm is not among {', '.join(settings.algorithms)} (LETHE_OIDC__ALGORITHMS)"
        )
    if kid is not None and not isinstance(kid, str):
        raise _refused("its kid is no text")
    key = keys.find(kid, algorithm)
    if key is None:
        raise _refused("the provider has no such key")
    return key, algorithm


def _scopes(claims: Mapping[str, Any], settings: OidcSettings) -> frozenset[Scope]:
    named = _texts(_claim(claims, settings.role_claim))
    roles = {settings.roles[name] for name in named if name in settings.roles}
    if not roles:
        raise Forbidden(
            f"the token's claim {settings.role_claim} names no role here; an admin maps its names to"
            " roles in LETHE_OIDC__ROLES",
            code="NO_ROLE",
        )
    return frozenset[Scope]().union(*(ROLES[Role(role)] for role in roles))


def _stores(claims: Mapping[str, Any], settings: OidcSettings) -> frozenset[StoreName] | None:
    """What the token is limited to; None: nothing."""
    if settings.stores_claim is None:
        return None
    named = _texts(_claim(claims, settings.stores_claim))
    if ALL_STORES in named:
        return None
    stores = frozenset(name for name in named if _STORE.fullmatch(name))
    if not stores:
        raise Forbidden(
            f"the token's claim {settings.stores_claim} names no store; it holds their names, or"
            f" {ALL_STORES!r} for all",
            code="NO_STORES",
        )
    return stores


def _name(claims: Mapping[str, Any], settings: OidcSettings, subject: str) -> str:
    found = claims.get(settings.name_claim)
    name = found if isinstance(found, str) and found else subject
    return PROVIDER_NAMES + _UNPRINTABLE.sub("?", name)[:NAME_MAX_CHARS]


def _claim(claims: Mapping[str, Any], path: str) -> object:
    """A claim, also one inside of others (`realm_access.roles`)."""
    if path in claims:  # some providers name their claims by URLs
        return claims[path]
    found: object = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(found: object) -> list[str]:
    """The names in a claim: a list, or words in one text."""
    if isinstance(found, str):
        return found.split()
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def _refused(cause: str) -> Unauthenticated:
    return Unauthenticated(f"the provider's token is refused: {cause}", code="TOKEN_REFUSED")
