"""What must be so before a process starts. Each fault is one sentence and an exit code, never a traceback."""

import errno
import ipaddress
import os
import re
import resource
import socket
import sqlite3
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import make_url

from app.clock import SystemClock
from app.db import Database
from app.kit.door import DoorLimits
from app.kit.http.first import SOCKET, FirstDoor
from app.kit.texts.distribution import installed_version
from app.secrets.commands import check_program
from app.secrets.rows import check_form
from app.secrets.service import unusable_secrets
from app.settings import Settings
from app.stores.models import StoreKind
from app.tracing import TRACING
from app.verbs.stores.kind import KindOfStore
from app.verbs.stores.table import KINDS, KindIncomplete, check_kinds
from app.verbs.table import VERBS, VerbIncomplete, check_table
from app.verbs.verb import Verb
from migrations.upgrade import (
    MadeByNewer,
    copy_before_upgrade,
    current_revision,
    head_revision,
    refuse_newer,
    upgrade,
)
from spark.targets.errors import TargetError, classify
from spark.targets.hosts import parse_entry

EXIT_BUSY = 75
EXIT_CONFIGURATION = 78
BACKSTOP_S = 2.0
"""A body that does not come is answered with 408 first, and its connection closed then."""
SPARE_SHARE = 32
"""Of the descriptors that are reserved, this part is for connections on their way out."""
UNFINISHED = "restore.unfinished"
"""In a data directory that `lethe metadata restore` has begun to fill."""
MAY_NOT = "let this account read and write it, or choose another --data-dir"
METADATA_DRIVERS = ("sqlite", "postgresql+psycopg")
OF_OTHERS = re.compile(
    r"LETHE_(?:URL|TOKEN|TOKEN_FILE|PROFILE|REQUIRE_PEERS|SECRET_.*|TEST_.*"
    r"|(?:.*_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.*)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_.*)?)?))"
)
"""Variables that are no settings and may well be there: of the command, of secrets, of tests; and what
Kubernetes and Docker give each container for services whose names begin with lethe."""
logger = structlog.get_logger("lethe.starting")


class CannotStart(Exception):
    """The process cannot start; `exit_code` tells whether trying again may help."""

    exit_code = EXIT_CONFIGURATION


class Misconfigured(CannotStart):
    """Not as it is told to: somebody has to change something."""


class NotNow(CannotStart):
    """Something that it needs is taken or away."""

    exit_code = EXIT_BUSY


def check_verbs(verbs: Iterable[Verb] = VERBS, kinds: Mapping[StoreKind, KindOfStore] = KINDS) -> None:
    """Look at the tables of what this version does: nothing of it may run half-described.

    Raises: Misconfigured.
    """
    try:
        check_table(verbs)
        check_kinds(kinds)
    except (VerbIncomplete, KindIncomplete) as error:
        raise Misconfigured(
            f"{error}. This is a fault of this version of Lethe, not of your settings: install another one"
        ) from error


def check_settings(settings: Settings) -> None:
    """Look at the settings that contradict each other.

    Raises: Misconfigured.
    """
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise Misconfigured("--tls-cert and --tls-key belong together")
    try:
        loopback = settings.host == "localhost" or ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and settings.tls_cert is None and not settings.behind_proxy:
        raise Misconfigured(f"binding {settings.host} needs --tls-cert and --tls-key, or --behind-proxy")
    check_places(settings)
    is_sqlite = settings.effective_metadata_url.startswith("sqlite")
    if settings.api_processes > 1 and is_sqlite:
        raise Misconfigured(
            "--api-processes needs PostgreSQL metadata (--metadata-url): on SQLite one process answers"
        )
    if settings.lease_self_stop_s >= settings.lease_ttl_s:
        raise Misconfigured("LETHE_LEASE_SELF_STOP_S must be less than LETHE_LEASE_TTL_S")
    if settings.lease_renew_interval_s >= settings.lease_self_stop_s:
        raise Misconfigured("LETHE_LEASE_RENEW_INTERVAL_S must be less than LETHE_LEASE_SELF_STOP_S")
    if settings.tls_cert is not None and settings.tls_key is not None:
        check_certificate(settings.tls_cert, settings.tls_key)


def tell_unknown_settings(variables: Iterable[str]) -> None:
    """Say which variables look like settings and are none: with a slip of the pen a default holds.

    Args:
        variables: names that begin with `LETHE_`, in capitals.
    """
    known = sorted(f"LETHE_{name.upper()}" for name in Settings.model_fields)
    for name in sorted(variables):
        of_group = name.partition("__")[0]  # what is none in a group ends the start
        if of_group in known or OF_OTHERS.fullmatch(name):
            continue
        logger.warning(
            "a variable that is no setting of this version: it changes nothing; take it away or correct it",
            variable=name,
            nearest=next(iter(get_close_matches(name, known, n=1)), None),
        )


def check_places(settings: Settings) -> None:
    """Look at the settings that say what stores and secrets may name. Raises: Misconfigured."""
    for entry in settings.allowed_hosts:
        try:
            parse_entry(entry)
        except ValueError as error:
            raise Misconfigured(f"LETHE_ALLOWED_HOSTS: {entry!r} is not {error}") from error
    for name, command in settings.exec_secrets.items():
        try:
            check_form(f"exec:{name}")
            check_program(command)
        except ValueError as error:
            raise Misconfigured(f"LETHE_EXEC_SECRETS, {name}: {error}") from error
    folder = settings.secrets_dir
    if folder is not None and folder.resolve().is_relative_to(settings.data_dir.resolve()):
        raise Misconfigured("LETHE_SECRETS_DIR lies in the data directory, whose files are Lethe's own")


def tell_unusable_secrets(database: Database, settings: Settings) -> None:
    """Say in the log which secrets cannot be read, and what to do: their stores will not be reached."""
    with _metadata_faults(database):
        found = unusable_secrets(database, settings)
    for name, problem in found.items():
        logger.warning("a secret cannot be used", secret=name, problem=problem)


def check_certificate(certificate: Path, key: Path) -> None:
    """Look whether two files are a certificate and its key. Raises: Misconfigured."""
    try:
        # A key with a passphrase would ask for it on the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise Misconfigured(f"{certificate} and {key} are no certificate with its key: {error}") from error
    except OSError as error:
        raise Misconfigured(f"{certificate} or {key} cannot be read: {error.strerror}") from error


@contextmanager
def using(data_dir: Path) -> Iterator[None]:
    """Make the data directory, and blame it for what the system refuses in the block.

    Raises: Misconfigured.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (data_dir / UNFINISHED).exists():
            raise Misconfigured(
                f"a restore into {data_dir} did not end: empty it, and its PostgreSQL database if it has one,"
                " and run `lethe metadata restore` again"
            )
        yield
    except OSError as error:
        named = error.filename or data_dir
        advice = f"; {MAY_NOT}" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else ""
        raise Misconfigured(
            f"the data directory {data_dir} cannot be used: {named}: {error.strerror}{advice}"
        ) from error


def open_metadata(settings: Settings) -> Database:
    """Open the metadata database of the settings; nothing is connected to yet.

    Raises: Misconfigured: no URL of a database that can hold it.
    """
    try:
        url = make_url(settings.effective_metadata_url)
        if "@" in (url.host or ""):
            raise ValueError("a part of the password would be taken, and shown, as the host")
    except (sa.exc.ArgumentError, ValueError):  # its text repeats the URL, with the password
        raise Misconfigured(
            "LETHE_METADATA_URL (--metadata-url) is not a URL: its port is a number, and an @ in a password"
            " is written %40"
        ) from None
    driver = url.drivername
    if driver not in METADATA_DRIVERS:
        raise Misconfigured(
            f"LETHE_METADATA_URL (--metadata-url) takes postgresql+psycopg:// or sqlite:///, not {driver}://"
        )
    return Database(
        settings.effective_metadata_url,
        clock=SystemClock(),
        pool_size=settings.metadata_pool_size,
        pool_timeout_s=settings.metadata_pool_timeout_s,
        lock_timeout_ms=settings.metadata_lock_timeout_ms,
        statement_timeout_ms=settings.metadata_statement_timeout_ms,
    )


def bring_to_head(database: Database, *, may_migrate: bool) -> None:
    """Leave the metadata at head, or refuse.

    Raises:
        Misconfigured: it is not at head, or refuses us.
        NotNow: it is away.
    """
    with _metadata_faults(database):
        revision = current_revision(database)
        if revision == head_revision():
            return
        refuse_newer(revision)
        if not (database.is_sqlite or may_migrate):
            raise Misconfigured("the metadata is not at head: run `lethe migrate`, or serve with --migrate")
        if revision is not None:
            _copy_first(database, revision)
        upgrade(database)


def _copy_first(database: Database, revision: str) -> None:
    try:
        copy = copy_before_upgrade(database, revision)
    except (sqlite3.Error, OSError) as error:
        path = Path(database.url.database or "")
        raise Misconfigured(
            f"the metadata cannot be copied before its upgrade, and was not changed: {error}. Make room in"
            f" {path.absolute().parent} for another copy of {path.name}, and start again"
        ) from error
    if copy is not None:
        logger.info("metadata copied before its upgrade", copy=str(copy))


@contextmanager
def _metadata_faults(database: Database) -> Iterator[None]:
    """Say what the metadata database answers, without the password."""
    try:
        yield
    except MadeByNewer as error:
        raise Misconfigured(f"{error}: install that version here") from error
    except sa.exc.DBAPIError as error:
        fault = classify(error.orig or error, secret=database.url.password)
        if type(fault) is TargetError:
            raise
        where = database.url.database if database.is_sqlite else database.url.host
        detail = f"the metadata database ({where}) cannot be used: {fault.detail}"
        raise (
            NotNow(detail) if fault.transient and not database.is_sqlite else Misconfigured(detail)
        ) from error


def door_limits(settings: Settings) -> DoorLimits:
    """What the door of this process holds: as many files as it may open, less those that it needs itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.connections_max + settings.descriptors_reserved
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    reserved = min(settings.descriptors_reserved, soft // 2)
    room = soft - reserved
    most = settings.connections_max if soft == resource.RLIM_INFINITY else min(settings.connections_max, room)
    per_address = None if settings.behind_proxy else min(settings.connections_per_address_max, most)
    return DoorLimits(
        connections_max=most,
        spare=max(1, reserved // SPARE_SHARE),
        per_address_max=per_address,
        headers_s=settings.request_headers_timeout_s,
        body_chunk_s=settings.request_body_chunk_timeout_s + BACKSTOP_S,
        body_s=settings.request_body_timeout_s + BACKSTOP_S,
    )


def bind(host: str, port: int) -> list[socket.socket]:
    """Take the address before any work begins; a name may stand for several.

    Raises:
        Misconfigured: no address of this machine, or not ours to bind.
        NotNow: somebody listens there.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise Misconfigured(f"--host {host}: {error.strerror}") from error
    bound: list[socket.socket] = []
    faults: list[OSError] = []
    for family, kind, protocol, _name, address in dict.fromkeys(found):
        try:
            bound.append(_bind_one(socket.socket(family, kind, protocol), address))
        except OSError as error:
            faults.append(error)
            if error.errno == errno.EADDRINUSE:
                break
    busy = any(fault.errno == errno.EADDRINUSE for fault in faults)
    if bound and not busy:
        return bound
    for each in bound:
        each.close()
    kind_of_fault = NotNow if busy else Misconfigured
    advice = "; another process listens there: choose another --port" if busy else ""
    raise kind_of_fault(f"cannot listen on {host}, port {port}: {os.strerror(faults[-1].errno or 0)}{advice}")


def bind_first(data_dir: Path) -> socket.socket:
    """Listen for the other processes of this service, in its data directory, which it holds.

    Raises: OSError.
    """
    door = FirstDoor.of(data_dir)
    with suppress(FileNotFoundError):
        os.unlink(SOCKET, dir_fd=door.folder)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(door.path)
        listener.listen()
    except OSError:
        listener.close()
        raise
    finally:
        os.close(door.folder)
    return listener


def _bind_one(listener: socket.socket, address: object) -> socket.socket:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)  # type: ignore[arg-type]
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def start_tracing(settings: Settings) -> None:
    """Make spans of OpenTelemetry where LETHE_OTEL asks for them.

    Raises: Misconfigured: the extra is not installed.
    """
    if not settings.otel:
        return
    try:
        TRACING.start(version=installed_version())
    except ImportError as error:
        raise Misconfigured(
            f"LETHE_OTEL wants the extra: pip install 'lethe-control-plane[otel]' ({error.name})"
        ) from error
