"""From a store to the target that the lower floor opens: secrets, roots and hosts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.db import Database
from app.secrets.service import User, credential_of
from app.settings import Settings
from app.stores.errors import StoreUrlRefused, service_error
from app.stores.rows import Store
from spark.formats.slony import schema_of
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetError, TargetHostNotAllowed, TargetUrlInvalid
from spark.targets.hosts import check_socket, may_connect
from spark.targets.ldap.connection import LdapTarget
from spark.targets.ldap.url import is_ldap
from spark.targets.target import (
    POSTGRESQL_PORT,
    authority_file,
    network_place,
    postgresql_arguments,
    socket_directory,
    sqlite_path,
)


def session_limits(settings: Settings) -> SessionLimits:
    """How long a statement of this service may wait at a target, and where a file may lie."""
    return SessionLimits(
        lock_timeout_ms=settings.target_lock_timeout_ms,
        statement_timeout_ms=settings.target_statement_timeout_ms,
        idle_in_transaction_timeout_ms=settings.target_idle_in_transaction_timeout_ms,
        connect_timeout_s=settings.target_connect_timeout_s,
        roots=tuple(str(root.resolve()) for root in settings.allowed_roots),
    )


def user_of(store: Store) -> User:
    """A store as one that may use secrets."""
    return User(store.id, store.labels)


def target_of(store: Store, settings: Settings, database: Database, *, is_judged: bool = False) -> Target:
    """The target of a store, its password resolved, bound to the hosts that it may be connected to.

    Args:
        is_judged: whoever connects decides then whether the store may use it (`borders.judge`); else a store
            whose target a limited token chose is bound to what that said it was.
    Raises: SecretUnavailable; StoreUrlRefused: the authority's file; TargetUrlInvalid.
    """
    assert store.url is not None, "a store on a database has a URL"
    credential = credential_of(store.password, user_of(store), settings=settings, database=database)
    target = place_of(store)
    _check_authority(store.url, settings)
    hosts = [tuple(settings.allowed_hosts), credential.hosts if credential is not None else ()]
    return replace(
        target,
        password=None if credential is None else credential.value,
        hosts=tuple(listed for listed in hosts if listed),
        renewal=None if credential is None else credential.renewal,
        tells_loopback=credential is not None and credential.clear_text_on_loopback,
        bound_to=None if is_judged or store.target_limit is None else store.target_proof or "",
    )


def place_of(store: Store) -> Target:
    """Where the target of a store is, without its password: nothing can be connected to by it.

    Raises: TargetUrlInvalid.
    """
    assert store.url is not None, "a store on a database has a URL"
    return Target(
        url=store.url,
        schema=store.schema_name if store.cluster is None else schema_of(store.cluster),
        table_prefix=store.table_prefix,
    )


def directory_of(
    store: Store, settings: Settings, database: Database, *, is_judged: bool = False
) -> LdapTarget:
    """The directory server of a store, its password resolved; otherwise as `target_of`.

    Raises: SecretUnavailable; StoreUrlRefused: the authority's file.
    """
    assert store.url is not None, "such a store has a URL"
    assert store.suffix is not None, "such a store has a suffix"
    credential = credential_of(store.password, user_of(store), settings=settings, database=database)
    _check_authority(store.url, settings)
    hosts = [tuple(settings.allowed_hosts), credential.hosts if credential is not None else ()]
    return LdapTarget(
        url=store.url,
        bind_dn=store.bind_dn or "",
        suffix=store.suffix,
        password=None if credential is None else credential.value,
        hosts=tuple(listed for listed in hosts if listed),
        renewal=None if credential is None else credential.renewal,
        tells_loopback=credential is not None and credential.clear_text_on_loopback,
        bound_to=None if is_judged or store.target_limit is None else store.target_proof or "",
    )


@contextmanager
def opened(
    store: Store, settings: Settings, database: Database, *, purpose: str, read_only: bool = True
) -> Iterator[Connection]:
    """Connect for a request of the API; every error of the target leaves as a problem.

    Raises: ServiceError.
    """
    try:
        with connect(
            target_of(store, settings, database),
            application_name=f"lethe:{purpose}",
            limits=session_limits(settings),
            read_only=read_only,
        ) as conn:
            yield conn
    except TargetError as error:
        raise service_error(error) from error


def check_allowed(*, url: str, schema_name: str | None, settings: Settings, database: Database) -> None:
    """Refuse a target outside the allowed roots and hosts, and Lethe's own metadata.

    Which address a name has is judged at each connection.

    Raises: StoreUrlRefused.
    """
    if is_ldap(url):
        _check_host(url, settings)
        _check_authority(url, settings)
        return
    try:
        target = Target(url=url, schema=schema_name)
    except TargetUrlInvalid as error:
        raise StoreUrlRefused(error.detail, code=error.code) from error
    if target.dialect == "sqlite":
        path = Path(sqlite_path(target))
        check_root(path, settings)
        _check_not_metadata(path, database)
        return
    _check_host(url, settings)
    _check_authority(url, settings)
    own = database.url
    if (
        target.dialect == "postgresql"
        and not database.is_sqlite
        and (own.host, own.port or POSTGRESQL_PORT, own.database) == _place(target)
    ):
        raise StoreUrlRefused("this is Lethe's own metadata database", code="OWN_METADATA")


def _check_host(url: str, settings: Settings) -> None:
    """Refuse a host that no address of could be allowed, and a socket that nobody has allowed."""
    listed = [tuple(settings.allowed_hosts)] if settings.allowed_hosts else []
    place = network_place(url)
    if place is not None:
        if not may_connect(listed, *place):
            raise StoreUrlRefused(
                f"the host {place[0]!r} is not among LETHE_ALLOWED_HOSTS", code="HOST_NOT_ALLOWED"
            )
        return
    directory = socket_directory(url)
    try:
        check_socket(listed, directory)
    except TargetHostNotAllowed as error:
        raise StoreUrlRefused(f"{error.detail} (LETHE_ALLOWED_HOSTS)", code=error.code) from error
    if directory is not None and not listed:
        check_root(Path(directory), settings)


def _check_authority(url: str, settings: Settings) -> None:
    """Refuse a file of certificates outside of the allowed roots and the folder for secrets."""
    named = authority_file(url)
    if named is None or not settings.allowed_roots:
        return
    folder = settings.secrets_dir
    if folder is None or not Path(named).resolve().is_relative_to(folder.resolve()):
        check_root(Path(named), settings)


def check_environment_allowed(path: Path, *, settings: Settings) -> None:
    """Refuse an environment outside of the allowed roots, and Lethe's own data directory.

    Raises: StoreUrlRefused.
    """
    check_root(path, settings)
    if _is_same_file(path, settings.data_dir):
        raise StoreUrlRefused("this is Lethe's own data directory", code="OWN_METADATA")


def environment_directory(store: Store, settings: Settings) -> Path:
    """The directory of a JE store, resolved now and looked at again: a link may have come since.

    Raises: StoreUrlRefused.
    """
    assert store.path is not None, "a JE store has a path"
    path = Path(store.path)
    check_root(path, settings)
    path = path.resolve()
    if store.target_limit is not None and file_identity("je", path) != store.target_proof:
        raise StoreUrlRefused(
            "this is not the directory that the store was given; :check decides whether it may use this one",
            code="TARGET_IS_ANOTHER",
        )
    return path


def file_identity(prefix: str, path: Path) -> str | None:
    """What identifies a file or directory, by whatever path it was reached; None where it cannot be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{prefix}:{found.st_dev}:{found.st_ino}"


def _is_same_file(one: Path, other: Path) -> bool:
    """By device and inode where both are there: a hard link and a bind mount have other names."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return one.resolve() == other.resolve()


def _place(target: Target) -> tuple[str | None, int, str | None]:
    """Host, port and name of a PostgreSQL database, as its URL has them."""
    named = postgresql_arguments(target)
    host, database = named.get("host"), named.get("dbname")
    return (
        None if host is None else str(host),
        int(named.get("port", POSTGRESQL_PORT)),
        None if database is None else str(database),
    )


def check_root(path: Path, settings: Settings) -> None:
    """Raise StoreUrlRefused for a path outside of the allowed roots."""
    if not settings.allowed_roots:
        return
    resolved = path.resolve()
    if not any(resolved.is_relative_to(root.resolve()) for root in settings.allowed_roots):
        raise StoreUrlRefused("the path is outside of LETHE_ALLOWED_ROOTS", code="PATH_NOT_ALLOWED")


def is_own_file(path: Path, database: Database) -> bool:
    """Whether a path leads to the file of Lethe's own metadata."""
    own = database.url.database if database.is_sqlite else None
    return own is not None and _is_same_file(path, Path(own))


def _check_not_metadata(path: Path, database: Database) -> None:
    if is_own_file(path, database):
        raise StoreUrlRefused("this is Lethe's own metadata database", code="OWN_METADATA")
