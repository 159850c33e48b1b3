"""How a connection to MariaDB or MySQL comes about: the driver's arguments, TLS, and who answers."""

import re
import ssl
from collections.abc import Mapping
from typing import Any, Literal

import pymysql
from pymysql.constants import CLIENT, ER

from spark.targets.errors import TargetAuthFailed, TargetSchemaUnsupported
from spark.targets.target import Target, mysql_arguments, mysql_tls

OLDEST_MARIADB = (10, 6)
OLDEST_MYSQL = (8, 0)


def connected(target: Target, name: str, *, connect_timeout_s: int) -> Any:
    """A connection of PyMySQL in autocommit, in which nothing is set yet.

    Args:
        connect_timeout_s: also of each packet, until somebody says otherwise.
    Raises: TargetAuthFailed: the login needs TLS, or TLS files that cannot be read; pymysql.Error.
    """
    arguments = mysql_arguments(target)
    mode, files = mysql_tls(target)
    raw: Any = pymysql.connect(
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
        auth_plugin_map={"mysql_clear_password": _ClearText, "dialog": _ClearText},
        defer_connect=True,
    )
    if mode != "DISABLED" and not arguments["unix_socket"]:
        # What the driver would do by itself, but its own context reads all certificates of the machine first.
        raw.ssl, raw._ssl_required = True, mode != "PREFERRED"
        raw.ctx = _tls_context(mode, files)
        raw.client_flag |= CLIENT.SSL if raw._ssl_required else 0
    try:
        raw.connect()
    except (RuntimeError, UnicodeError) as exc:  # an authentication that needs TLS
        raise TargetAuthFailed(str(exc)) from None
    return raw


def _tls_context(mode: str, files: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = mode == "VERIFY_IDENTITY"
    context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("VERIFY") else ssl.CERT_NONE
    try:
        if "ssl_ca" in files:
            context.load_verify_locations(files["ssl_ca"])
        elif context.verify_mode is ssl.CERT_REQUIRED:
            context.load_default_certs()
        if "ssl_cert" in files:
            context.load_cert_chain(files["ssl_cert"], files.get("ssl_key"))
    except (OSError, ssl.SSLError) as exc:
        raise TargetAuthFailed(f"the TLS files cannot be used: {exc}") from None
    return context


class _ClearText:
    """A server may ask for the password itself; ours is not told to anybody."""

    def __init__(self, _connection: object) -> None:
        pass

    def authenticate(self, _packet: object) -> None:
        raise pymysql.OperationalError(
            ER.ACCESS_DENIED_ERROR, "the server asks for the password in clear text"
        )


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
