"""Where a directory server is, as the URL of a store says it.

    ldaps://host[:636][?ca=/path]                    TLS from the first byte
    ldap://host[:389][?tls=starttls][&ca=/path]      TLS before the bind; without `tls` the same
    ldap://127.0.0.1:389?tls=none                    clear text, on this machine only

The certificate is always verified, against `ca` or the authorities of this machine, and for the host's name.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from spark.targets.errors import TargetUrlInvalid

SCHEMES: Final = {"ldap": 389, "ldaps": 636}
OPTIONS: Final = frozenset({"tls", "ca"})
FORM: Final = "ldaps://host:port or ldap://host:port"


class Tls(StrEnum):
    """When TLS begins."""

    AT_ONCE = "ldaps"
    STARTTLS = "starttls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class LdapPlace:
    """A directory server; `authority` None: the authorities of this machine."""

    host: str
    port: int
    tls: Tls
    authority: str | None = None


def is_ldap(url: str) -> bool:
    """Whether a URL leads to a directory server, by its scheme."""
    return url.partition("://")[0].lower() in SCHEMES


def ldap_place(url: str) -> LdapPlace:
    """Read the URL of a directory server.

    Raises: TargetUrlInvalid: a user, a password, a path, an unknown option, no host.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise TargetUrlInvalid("the URL cannot be parsed") from None
    scheme = parts.scheme.lower()
    if scheme not in SCHEMES or not parts.hostname or any(mark in parts.netloc for mark in ",@"):
        raise TargetUrlInvalid(f"{FORM}, one host, without a user: who binds is `bind_dn` and `password`")
    if parts.path not in ("", "/") or parts.fragment:
        raise TargetUrlInvalid("a path in the URL: the suffix stands in `suffix`")
    return LdapPlace(parts.hostname, port or SCHEMES[scheme], *_options(scheme, options))


def _options(scheme: str, options: list[tuple[str, str]]) -> tuple[Tls, str | None]:
    found = dict(options)
    if len(found) != len(options) or not found.keys() <= OPTIONS:
        raise TargetUrlInvalid(f"options of such a URL are {', '.join(sorted(OPTIONS))}, each once")
    tls = found.get("tls", Tls.AT_ONCE if scheme == "ldaps" else Tls.STARTTLS)
    allowed = (Tls.AT_ONCE,) if scheme == "ldaps" else (Tls.STARTTLS, Tls.NONE)
    if tls not in allowed:
        raise TargetUrlInvalid(f"?tls= of {scheme}:// is {' or '.join(allowed)}")
    authority = found.get("ca")
    if authority is not None and (not os.path.isabs(authority) or "\0" in authority):
        raise TargetUrlInvalid("?ca= is an absolute path")
    if authority is not None and tls == Tls.NONE:
        raise TargetUrlInvalid("?ca= is for TLS, and ?tls=none is without")
    return Tls(tls), authority
