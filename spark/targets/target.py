"""Where a target is, and how long Lethe lets a statement wait there. Values only, picklable."""

import ipaddress
import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, Protocol

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from spark.targets.errors import TargetUrlInvalid
from spark.targets.ldap.url import is_ldap, ldap_place

DialectName = Literal["postgresql", "sqlite", "mysql"]
PlaceName = DialectName | Literal["ldap"]
DATABASES: frozenset[str] = frozenset({"postgresql", "sqlite", "mysql"})

_DRIVERS: dict[str, DialectName] = {
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
    "mysql+pymysql": "mysql",
    "mariadb+pymysql": "mysql",
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
}
# What may stand after the `?` of a URL. Whatever leads elsewhere than the host that was allowed, reads a file
# of this service (a key, a password, a service, an option file) or weakens the session may not; an
# authority's certificate is public.
POSTGRESQL_OPTIONS = frozenset({"sslmode", "sslrootcert", "channel_binding"})
POSTGRESQL_TLS_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
CHANNEL_BINDINGS = ("disable", "prefer", "require")
SYSTEM_AUTHORITIES = "system"
POSTGRESQL_PORT = 5432
MYSQL_OPTIONS = frozenset({"ssl_mode", "ssl_ca", "unix_socket"})
MYSQL_PORT = 3306
URLS_KEPT = 1024
FORMS = (
    "sqlite:////srv/shop.db or postgresql+psycopg://USER@HOST/DATABASE or mysql+pymysql://USER@HOST/DATABASE"
)
"""What a URL may look like, for whoever has given none."""
"""Parsed ones: stores are asked for again and again."""
MYSQL_TLS_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")

# The client gives up later than the server, where the server can be told at all.
ANSWER_MARGIN_S = 5.0


def silent_max_s(statement_timeout_ms: int) -> float:
    """How long a server that ends its statements by itself may say nothing until it is given up."""
    return statement_timeout_ms / 1000 + ANSWER_MARGIN_S


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """How long the target may keep us waiting, and where it lies; sources: facts/locks.md, facts/spark.md."""

    lock_timeout_ms: int = 500
    statement_timeout_ms: int = 30_000
    idle_in_transaction_timeout_ms: int = 30_000
    client_connection_check_interval_ms: int = 500
    connect_timeout_s: int = 5
    roots: tuple[str, ...] = ()
    """Resolved directories; a SQLite file is opened only if it lies in one of them. None: anywhere."""


class Renewal(Protocol):
    """A password that may change; of another process it is nothing, so that a target may travel."""

    def now(self) -> str:
        """For the next connection."""

    def after_refusal(self, tried: str | None) -> str | None:
        """Another one than was refused; None: there is none."""


@dataclass(frozen=True, slots=True)
class Target:
    """One database; `schema` None means `public` on PostgreSQL and is the only value elsewhere.

    Attributes:
        hosts: lists of hosts (spark.targets.hosts), each of which must allow a connection; none: any host.
        tells_loopback: an admin's word that the password may be told in clear text on this machine itself.
    """

    url: str
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    table_prefix: str = "sym_"
    hosts: tuple[tuple[str, ...], ...] = ()
    tells_loopback: bool = False
    bound_to: str | None = None
    """The identity that a connection must find; None: any."""
    renewal: Renewal | None = field(default=None, repr=False, compare=False)
    """Where the password is read anew for each connection; None: it is always `password`."""

    def __post_init__(self) -> None:
        dialect = validate_url(self.url)
        if dialect == "sqlite" and self.schema is not None:
            raise TargetUrlInvalid("a SQLite target has no schema")
        if dialect == "mysql" and self.schema is not None:
            raise TargetUrlInvalid("on MariaDB and MySQL the schema is the database, which the URL names")

    @property
    def dialect(self) -> DialectName:
        return validate_url(self.url)


def validate_url(url: str) -> DialectName:
    """Check that a URL is one that Lethe can open without surprises, and tell its dialect.

    Raises: TargetUrlInvalid: unknown driver, a password in the URL, no database, a relative SQLite path, an
        option that could lead elsewhere.
    """
    parsed = _parsed(url)
    dialect = _DRIVERS.get(parsed.drivername)
    if dialect is None:
        if parsed.drivername in ("mysql", "mariadb"):
            raise TargetUrlInvalid(
                f"the driver is missing: {parsed.drivername}+pymysql://user@host:port/database"
            )
        raise TargetUrlInvalid(f"driver {parsed.drivername!r} is none of {', '.join(sorted(_DRIVERS))}")
    if parsed.password:
        raise TargetUrlInvalid(
            "the URL carries a password: register it apart from the URL, and name it in `password`"
        )
    if not parsed.database:
        raise TargetUrlInvalid("the URL names no database")
    if "\0" in url:
        raise TargetUrlInvalid("the URL contains a NUL")
    if dialect == "sqlite":
        _check_sqlite(parsed)
    elif dialect == "mysql":
        _check_mysql(parsed)
    else:
        _check_postgresql(parsed)
    return dialect


def validate_place(url: str) -> PlaceName:
    """`validate_url`, of a directory server as well.

    Raises: TargetUrlInvalid.
    """
    if not is_ldap(url):
        return validate_url(url)
    ldap_place(url)
    return "ldap"


def sqlite_path(target: Target) -> str:
    """The absolute path of a SQLite target."""
    assert target.dialect == "sqlite"
    database = _parsed(target.url).database
    assert database is not None
    return database


def postgresql_host(target: Target) -> str | None:
    """The host name or socket directory of a PostgreSQL target; None: libpq's default socket."""
    assert target.dialect == "postgresql"
    parsed = _parsed(target.url)
    return parsed.host or _socket_directory(parsed)


def postgresql_arguments(target: Target) -> dict[str, str | int]:
    """What libpq is told, without the password."""
    assert target.dialect == "postgresql"
    parsed = _parsed(target.url)
    arguments: dict[str, str | int] = {
        key: value
        for key, value in parsed.query.items()
        if isinstance(value, str) and key in POSTGRESQL_OPTIONS
    }
    named = {
        "host": postgresql_host(target),
        "port": parsed.port,
        "user": parsed.username,
        "dbname": parsed.database,
    }
    arguments.update({key: value for key, value in named.items() if value is not None})
    return arguments


def mysql_host(target: Target) -> str:
    """The host name or the socket's directory of a MariaDB or MySQL target."""
    assert target.dialect == "mysql"
    parsed = _parsed(target.url)
    socket = _option(parsed, "unix_socket")
    return os.path.dirname(socket) if socket else parsed.host or "localhost"


def is_on_this_machine(target: Target) -> bool:
    """Whether the URL means something else on another machine: a file, a socket, a loopback address."""
    if target.dialect == "sqlite":
        return True
    host = postgresql_host(target) if target.dialect == "postgresql" else mysql_host(target)
    return host is None or os.path.isabs(host) or is_loopback(host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its address, or by the one name that says so."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def network_place(url: str) -> tuple[str, int] | None:
    """Host and port that a URL leads to over the network; None: a file or a socket."""
    if is_ldap(url):
        found = ldap_place(url)
        return found.host, found.port
    dialect = validate_url(url)
    parsed = _parsed(url)
    if dialect == "sqlite" or _option(parsed, "unix_socket"):
        return None
    if dialect == "postgresql":
        return (parsed.host, parsed.port or POSTGRESQL_PORT) if parsed.host else None
    return parsed.host or "localhost", parsed.port or MYSQL_PORT


def socket_directory(url: str) -> str | None:
    """The directory of the socket that a URL names; None: it names none."""
    if is_ldap(url):
        return None
    parsed = _parsed(url)
    socket = _option(parsed, "unix_socket")
    return os.path.dirname(socket) if socket else _socket_directory(parsed)


def authority_file(url: str) -> str | None:
    """The file of certificates that a URL names; None: none, or the machine's own."""
    if is_ldap(url):
        return ldap_place(url).authority
    parsed = _parsed(url)
    named = _option(parsed, "sslrootcert") or _option(parsed, "ssl_ca")
    return None if named == SYSTEM_AUTHORITIES else named


def mysql_arguments(target: Target) -> dict[str, Any]:
    """What PyMySQL is told of the place, without password and TLS."""
    assert target.dialect == "mysql"
    parsed = _parsed(target.url)
    return {
        "host": parsed.host or "localhost",
        "port": parsed.port or MYSQL_PORT,
        "unix_socket": _option(parsed, "unix_socket"),
        "user": parsed.username,
        "database": parsed.database,
    }


def mysql_tls(target: Target) -> tuple[str, str | None]:
    """The TLS mode of a MariaDB or MySQL target, and the file of its authority.

    Without `ssl_mode` a certificate authority means VERIFY_IDENTITY, nothing means PREFERRED.
    """
    assert target.dialect == "mysql"
    parsed = _parsed(target.url)
    authority = _option(parsed, "ssl_ca")
    return _option(parsed, "ssl_mode") or ("VERIFY_IDENTITY" if authority else "PREFERRED"), authority


def _option(parsed: URL, name: str) -> str | None:
    value = parsed.query.get(name)
    return value if isinstance(value, str) else None


@lru_cache(maxsize=URLS_KEPT)
def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The text of the error would repeat the URL, and with it a password that somebody left in it.
        raise TargetUrlInvalid(f"the URL cannot be parsed; it is {FORMS}") from None


def _check_sqlite(parsed: URL) -> None:
    if parsed.host or parsed.username or parsed.port:
        raise TargetUrlInvalid("a SQLite URL has neither host nor user: sqlite:////absolute/path")
    if parsed.query:
        raise TargetUrlInvalid("a SQLite URL takes no options")
    if not os.path.isabs(parsed.database or ""):
        raise TargetUrlInvalid("a SQLite path must be absolute: sqlite:////absolute/path")


def _check_mysql(parsed: URL) -> None:
    unknown = set(parsed.query) - MYSQL_OPTIONS
    if unknown:
        raise TargetUrlInvalid(f"option {', '.join(sorted(unknown))} is not allowed in a MySQL URL")
    if any(not isinstance(value, str) for value in parsed.query.values()):
        raise TargetUrlInvalid("an option is given twice")
    if not parsed.username:
        raise TargetUrlInvalid("the URL names no user: mysql+pymysql://user@host:port/database")
    mode = _option(parsed, "ssl_mode")
    if mode is not None and mode not in MYSQL_TLS_MODES:
        raise TargetUrlInvalid(f"ssl_mode is one of {', '.join(MYSQL_TLS_MODES)}")
    if not os.path.isabs(_option(parsed, "ssl_ca") or "/"):
        raise TargetUrlInvalid("?ssl_ca= is an absolute path")
    socket = _option(parsed, "unix_socket")
    if socket is not None and (parsed.host or not os.path.isabs(socket)):
        raise TargetUrlInvalid("?unix_socket= is an absolute path, in a URL without a host")
    if "," in (parsed.host or ""):
        raise TargetUrlInvalid("one host only: Lethe must know which server it purges")
    if "/" in (parsed.database or ""):
        raise TargetUrlInvalid("the database name looks like a path")


def _check_postgresql(parsed: URL) -> None:
    unknown = set(parsed.query) - POSTGRESQL_OPTIONS - {"host"}
    if unknown:
        raise TargetUrlInvalid(f"option {', '.join(sorted(unknown))} is not allowed in a PostgreSQL URL")
    if any(not isinstance(value, str) for value in parsed.query.values()):
        raise TargetUrlInvalid("an option is given twice")
    for name, known in (("sslmode", POSTGRESQL_TLS_MODES), ("channel_binding", CHANNEL_BINDINGS)):
        if _option(parsed, name) not in (None, *known):
            raise TargetUrlInvalid(f"{name} is one of {', '.join(known)}")
    authority = _option(parsed, "sslrootcert")
    if authority is not None and authority != SYSTEM_AUTHORITIES and not os.path.isabs(authority):
        raise TargetUrlInvalid("?sslrootcert= is an absolute path, or `system`")
    if "host" in parsed.query and (parsed.host or _socket_directory(parsed) is None):
        raise TargetUrlInvalid("?host= may only name the absolute directory of a socket")
    if "," in (parsed.host or "") or "," in (_socket_directory(parsed) or ""):
        raise TargetUrlInvalid("one host only: Lethe must know which server it purges")
    if (parsed.host or "").startswith(("/", "@")) or any(mark in (parsed.database or "") for mark in "=/"):
        raise TargetUrlInvalid("host or database name looks like a connection string")


def _socket_directory(parsed: URL) -> str | None:
    value = parsed.query.get("host")
    return value if isinstance(value, str) and os.path.isabs(value) else None
