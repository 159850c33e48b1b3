"""How a connection to MariaDB or MySQL comes about: the driver's arguments, TLS, and who answers."""

import re
import socket
import ssl
from collections.abc import Sequence
from typing import Any, Literal

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CLIENT, CR, ER

from spark.targets.dialects.mysql_rows import widen
from spark.targets.errors import TargetAuthFailed, TargetCertificateInvalid, TargetSchemaUnsupported
from spark.targets.hosts import allowed_addresses, are_loopback, check_socket
from spark.targets.target import Target, mysql_arguments, mysql_tls, network_place, socket_directory

OLDEST_MARIADB = (10, 6)
OLDEST_MYSQL = (8, 0)
# The password itself, a dialogue that may ask for it, and a hash that is as good as none.
_TELLING_PLUGINS = ("mysql_clear_password", "dialog", "mysql_old_password")


def connected(target: Target, name: str, *, connect_timeout_s: int) -> Any:
    """A connection of PyMySQL in autocommit, in which nothing is set yet.

    Args:
        connect_timeout_s: also of each packet, until somebody says otherwise.
    Raises: TargetHostNotAllowed; TargetAuthFailed: the server asks for what it is not told;
        TargetCertificateInvalid: the file of the authority cannot be read; pymysql.Error.
    """
    arguments = mysql_arguments(target)
    mode, authority = mysql_tls(target)
    addresses = _addresses(target)
    raw: Any = _Careful(
        **arguments,
        password=(target.password or "").encode(),
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=connect_timeout_s,
        read_timeout=connect_timeout_s,
        write_timeout=connect_timeout_s,
        # Counts of an UPDATE are those of the rows found, as elsewhere.
        client_flag=CLIENT.FOUND_ROWS,
        program_name=name,
        ssl_disabled=True,
        local_infile=False,
        auth_plugin_map=dict.fromkeys(_TELLING_PLUGINS, _ClearText),
        defer_connect=True,
    )
    is_network = addresses is not None
    if mode != "DISABLED" and is_network:
        # What the driver would do by itself, but its own context reads all certificates of the machine first.
        raw.ssl, raw._ssl_required = True, mode != "PREFERRED"
        raw.ctx = _tls_context(mode, authority)
        raw.client_flag |= CLIENT.SSL if raw._ssl_required else 0
    is_verified = is_network and mode == "VERIFY_IDENTITY"
    raw.may_tell = is_verified or (target.tells_loopback and are_loopback(addresses or ()))
    try:
        raw.connect(None if addresses is None else _socket(raw, addresses))
    except (RuntimeError, UnicodeError) as exc:  # an authentication that needs a library
        raise TargetAuthFailed(str(exc)) from None
    widen(raw)
    return raw


def _addresses(target: Target) -> list[str] | None:
    """The addresses that may be connected to; None: a socket of this machine."""
    place = network_place(target.url)
    if place is None:
        check_socket(target.hosts, socket_directory(target.url))
        return None
    return allowed_addresses(target.hosts, *place)


def _socket(raw: Any, addresses: Sequence[str]) -> socket.socket:
    """A connection to the first address that answers; the host's name is for TLS alone."""
    fault: OSError | None = None
    for address in addresses:
        try:
            found = socket.create_connection((address, raw.port), raw.connect_timeout)
        except OSError as error:
            fault = error
            continue
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return found
    raise pymysql.OperationalError(
        CR.CR_CONN_HOST_ERROR, f"Can't connect to MySQL server on {raw.host!r} ({fault})"
    ) from fault


def _tls_context(mode: str, authority: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("VERIFY") else ssl.CERT_NONE
    try:
        if authority is not None:
            context.load_verify_locations(authority)
        elif context.verify_mode is ssl.CERT_REQUIRED:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as exc:
        raise TargetCertificateInvalid(f"the TLS files cannot be used: {exc}") from None
    return context


def _refusal() -> pymysql.OperationalError:
    return pymysql.OperationalError(
        ER.ACCESS_DENIED_ERROR,
        "the server asks for the password in clear text, or under a key of its own. It is sent only over TLS"
        " that is verified (?ssl_mode=VERIFY_IDENTITY&ssl_ca=...), or on this machine if an admin allows it"
        " (clear_text_on_loopback of the secret)",
    )


class _ClearText:
    """A server may ask for the password itself; ours is not told to anybody."""

    def __init__(self, _connection: object) -> None:
        pass

    def authenticate(self, _packet: object) -> None:
        raise _refusal()


class _Careful(Connection):
    """A connection that tells its password only where it may.

    sha256_password and caching_sha2_password end in the password itself: plain inside TLS of whoever answers,
    or under an RSA key that whoever answers has sent. `may_tell` says that it is known who answers.
    """

    may_tell = False
    password: bytes
    _auth_plugin_name: str
    _is_secure = False
    _sent_key: bytes | None = None

    def _request_authentication(self) -> None:
        if self._auth_plugin_name == "sha256_password" and self.password and not self.may_tell:
            raise _refusal()
        super()._request_authentication()  # type: ignore[misc]

    @property
    def _secure(self) -> bool:
        return self._is_secure and self.may_tell

    @_secure.setter
    def _secure(self, value: bool) -> None:
        self._is_secure = value

    @property
    def server_public_key(self) -> bytes | None:
        if not self.may_tell:
            raise _refusal()
        return self._sent_key

    @server_public_key.setter
    def server_public_key(self, value: bytes | None) -> None:
        self._sent_key = value


def parse_version(text: str) -> tuple[Literal["mariadb", "mysql"], int]:
    """Product and number, 101119 for 10.11.19.

    Raises: TargetSchemaUnsupported: too old, or something else that speaks the protocol.
    """
    for other in ("TiDB", "Vitess", "OceanBase", "SingleStore"):
        if other.lower() in text.lower():
            raise TargetSchemaUnsupported(f"{other} is neither MariaDB nor MySQL: {text}")
    product: Literal["mariadb", "mysql"] = "mariadb" if "mariadb" in text.lower() else "mysql"
    found = re.match(r"(?:5\.5\.5-(?=\d+\.\d+\.\d+-MariaDB))?(\d+)\.(\d+)\.(\d+)", text)
    if found is None:
        raise TargetSchemaUnsupported(f"version {text!r} is none that Lethe knows")
    major, minor, patch = (int(part) for part in found.groups())
    oldest = OLDEST_MARIADB if product == "mariadb" else OLDEST_MYSQL
    if (major, minor) < oldest:
        shown = "MariaDB" if product == "mariadb" else "MySQL"
        raise TargetSchemaUnsupported(f"{shown} {major}.{minor} is older than {oldest[0]}.{oldest[1]}")
    return product, major * 10_000 + minor * 100 + patch
