"""From a store to the target that the lower floor opens: secrets, roots and hosts."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.db import Database
from app.settings import Settings
from app.stores.errors import SecretUnavailable, StoreUrlRefused, service_error
from app.stores.models import Store
from spark.formats.slony import schema_of
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetError, TargetUrlInvalid
from spark.targets.target import mysql_host, postgresql_arguments, postgresql_host, sqlite_path

SECRET_MAX_BYTES = 4_096
POSTGRESQL_PORT = 5432


def session_limits(settings: Settings) -> SessionLimits:
    """How long a statement of this service may wait at a target."""
    return SessionLimits(
        lock_timeout_ms=settings.target_lock_timeout_ms,
        statement_timeout_ms=settings.target_statement_timeout_ms,
        idle_in_transaction_timeout_ms=settings.target_idle_in_transaction_timeout_ms,
        connect_timeout_s=settings.target_connect_timeout_s,
    )


def resolve_secret(reference: str | None) -> str | None:
    """Read a password by its reference, at the moment it is needed; it is kept nowhere.

    Raises: SecretUnavailable: the message names the reference, never the content.
    """
    if reference is None:
        return None
    source, _, name = reference.partition(":")
    if source == "env":
        value = os.environ.get(name)
        if value is None:
            raise SecretUnavailable(f"the environment variable {name} is not set")
        return value
    try:
        with Path(name).open("rb") as file:
            content = file.read(SECRET_MAX_BYTES + 1)
        return content[:SECRET_MAX_BYTES].decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SecretUnavailable(f"the password file of {reference} cannot be read") from error


def target_of(store: Store, *, is_judged: bool = False) -> Target:
    """The target of a store, its password resolved.

    Args:
        is_judged: whoever connects decides then whether the store may use it (`borders.judge`); else a store
            whose target a limited token chose is bound to what that said it was.
    Raises: SecretUnavailable.
    """
    assert store.url is not None, "a store on a database has a URL"
    return Target(
        url=store.url,
        password=resolve_secret(store.password),
        schema=store.schema_name if store.cluster is None else schema_of(store.cluster),
        table_prefix=store.table_prefix,
        bound_to=None if is_judged or store.target_limit is None else store.target_proof or "",
    )


@contextmanager
def opened(store: Store, settings: Settings, *, purpose: str, read_only: bool = True) -> Iterator[Connection]:
    """Connect for a request of the API; every error of the target leaves as a problem.

    Raises: ServiceError.
    """
    try:
        with connect(
            target_of(store),
            application_name=f"lethe:{purpose}",
            limits=session_limits(settings),
            read_only=read_only,
        ) as conn:
            yield conn
    except TargetError as error:
        raise service_error(error) from error


def check_allowed(
    *, url: str, schema_name: str | None, password: str | None, settings: Settings, database: Database
) -> None:
    """Refuse a target outside the allowed roots and hosts, and Lethe's own metadata.

    Raises: StoreUrlRefused.
    """
    try:
        target = Target(url=url, schema=schema_name)
    except TargetUrlInvalid as error:
        raise StoreUrlRefused(error.detail, code=error.code) from error
    if password is not None and password.startswith("file:"):
        check_root(Path(password.removeprefix("file:")), settings)
    if target.dialect == "sqlite":
        path = Path(sqlite_path(target))
        check_root(path, settings)
        _check_not_metadata(path, database)
        return
    host = mysql_host(target) if target.dialect == "mysql" else postgresql_host(target) or ""
    if settings.allowed_hosts and host not in settings.allowed_hosts:
        raise StoreUrlRefused(f"the host {host!r} is not among LETHE_ALLOWED_HOSTS", code="HOST_NOT_ALLOWED")
    own = database.url
    if (
        target.dialect == "postgresql"
        and not database.is_sqlite
        and (own.host, own.port or POSTGRESQL_PORT, own.database) == _place(target)
    ):
        raise StoreUrlRefused("this is Lethe's own metadata database", code="OWN_METADATA")


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
