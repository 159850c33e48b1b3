"""How a connection to PostgreSQL comes about: what libpq is told, so that it asks nobody else.

libpq completes what it is not told from the environment, ~/.pgpass, ~/.postgresql and service files: a secret
of this service would go to a server that it is not meant for. So everything is told.
"""

import os
import pwd
from typing import Any, cast

import psycopg

from spark.targets.dialects.impatient import Impatient
from spark.targets.errors import TargetAuthFailed, TargetUnreachable
from spark.targets.hosts import allowed_addresses, are_loopback, check_socket
from spark.targets.target import (
    POSTGRESQL_PORT,
    SYSTEM_AUTHORITIES,
    SessionLimits,
    Target,
    network_place,
    postgresql_arguments,
    postgresql_host,
    silent_max_s,
)

NO_FILE = "/nonexistent/lethe"
# Who answers these learns nothing of the password that an eavesdropper of SCRAM would not.
SAFE_METHODS = "scram-sha-256,none"
TELLING_METHODS = f"{SAFE_METHODS},md5,password"
_REFUSED = "authentication method requirement"
_ASKS = (
    "the server asks for the password in clear text or as MD5. It is sent only over TLS that is verified"
    " (?sslmode=verify-full&sslrootcert=...), or on this machine's own loopback where an admin allows it"
    " (clear_text_on_loopback of the secret): let the role's password be of scram-sha-256"
)
# What the environment, the home directory or a service file would otherwise say.
_ISOLATED: dict[str, str] = {
    "passfile": NO_FILE,
    "sslcert": NO_FILE,
    "sslkey": NO_FILE,
    "sslcrl": NO_FILE,
    "sslcrldir": "",
    "sslcertmode": "disable",
    "sslnegotiation": "postgres",
    "sslpassword": "",
    "ssl_min_protocol_version": "TLSv1.2",
    "ssl_max_protocol_version": "",
    "channel_binding": "prefer",
    "gssencmode": "disable",
    "gssdelegation": "0",
    "gsslib": "",
    "krbsrvname": "postgres",
    "requirepeer": "",
    "options": "",
    "replication": "",
    "target_session_attrs": "any",
    "load_balance_hosts": "disable",
}


def connected(target: Target, application_name: str, *, limits: SessionLimits) -> Impatient:
    """A connection of psycopg in autocommit, in which nothing is set yet.

    Raises: TargetHostNotAllowed; TargetAuthFailed: the server asks for what it is not told; psycopg.Error.
    """
    # The one variable that an argument cannot overrule: it would read a service file.
    os.environ.pop("PGSERVICE", None)
    arguments = _ISOLATED | {key: str(value) for key, value in postgresql_arguments(target).items()}
    mode = arguments.setdefault("sslmode", "prefer")
    arguments.setdefault("sslrootcert", SYSTEM_AUTHORITIES if mode == "verify-full" else NO_FILE)
    arguments.setdefault("user", _own_name())
    arguments.setdefault("port", str(POSTGRESQL_PORT))
    places, is_here = _places(target)
    may_tell = mode == "verify-full" or (is_here and target.tells_loopback)
    arguments |= places | {"require_auth": TELLING_METHODS if may_tell else SAFE_METHODS}
    try:
        found = Impatient.connect(
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=limits.connect_timeout_s,
            client_encoding="UTF8",
            application_name=application_name,
            password=target.password or "",
            keepalives=1,
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
            tcp_user_timeout=30_000,
            **cast(dict[str, Any], arguments),
        )
        found.silent_max_s = silent_max_s(limits.statement_timeout_ms)
        return found
    except psycopg.OperationalError as error:
        if _REFUSED in str(error):
            raise TargetAuthFailed(_ASKS) from None
        raise


def _places(target: Target) -> tuple[dict[str, str], bool]:
    """The addresses that may be connected to, and whether all are this machine."""
    place = network_place(target.url)
    if place is None:
        directory = postgresql_host(target)
        check_socket(target.hosts, directory)
        return {"host": directory or "", "hostaddr": ""}, True
    host, port = place
    addresses = allowed_addresses(target.hosts, host, port)
    if not addresses:
        raise TargetUnreachable(f"the host {host!r} has no address")
    # One host for each address: libpq tries them in turn, and knows by which name to verify.
    names = ",".join([host] * len(addresses))
    return {"host": names, "hostaddr": ",".join(addresses)}, are_loopback(addresses)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
