"""Whose target a store may name: two stores on one target belong to somebody who has access to both.

A token that is limited to stores chooses targets for these only. What a target is, it says itself (the system
identifier of the server and the database, the device and inode of a file): names of hosts and files prove
nothing. The row keeps the limit of the token that chose the target (`target_limit`, null: none) and what the
target said it was then (`target_proof`).

Invariants:
- where the token was limited, every store known to lie on the same target is within its limit: decided when
  the target is chosen, looked at by `:check`, and at the start of every purge, cleanup, plan and job;
- every other connection of such a store is refused unless the target says that it is what was decided on;
- Lethe's own metadata is the target of no store;
- what is said to a limited token names no store that it may not see.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gaierror, getaddrinfo
from typing import Any, Final

from sqlalchemy import and_, or_, text
from sqlalchemy.engine import make_url
from sqlmodel import Session, col, select

from app.db import Database
from app.errors import Forbidden, ServiceError
from app.settings import Settings
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import directory_of, file_identity, is_own_file, session_limits, target_of
from spark.targets.connection import STARTED, Connection, connect, identity, sqlite_path
from spark.targets.errors import TargetError
from spark.targets.ldap.connection import directory_identity, opened_directory
from spark.targets.ldap.url import is_ldap, ldap_place
from spark.targets.target import is_loopback

ASKING_MAX_S: Final = 2
"""Whoever registers a store waits no longer for its target; one that is away is asked when it is used."""
DEFAULT_PORTS: Final = {"postgresql": 5432, "mysql": 3306}
THIS_MACHINE: Final = "this machine"
BY_START: Final = f"postgresql:{STARTED}"
_SHOWS_LOCK: Final = (
    "select 1 from pg_catalog.pg_locks where locktype = 'advisory' and objsubid = 1"
    " and classid = cast(:high as oid) and objid = cast(:low as oid)"
    " and database = (select oid from pg_catalog.pg_database where datname = current_database())"
)


class TargetOfOtherStores(Forbidden):
    """Stores outside of the token's limit are on the same target."""

    def __init__(self) -> None:
        super().__init__(
            "other stores are known on this target, and the token that chose it has no access to all of them;"
            " choose another one, or let a token with access to all of them set the store's `url` or `path`"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A target as somebody chose it.

    Args:
        limit: the stores that the token is limited to; None: all.
        proof: what the target said it is; None: it could not be asked.
    """

    limit: Sequence[str] | None = None
    proof: str | None = None


def ask_target(database: Database, settings: Settings, store: Store) -> str | None:
    """What the target of a store says it is; None where it cannot be asked from here and now.

    Raises: StoreUrlRefused: it is Lethe's own metadata.
    """
    if not set(store.runs_on) <= set(settings.labels):
        return None
    if store.path is not None:
        return file_identity("je", Path(store.path))
    if store.url is not None and is_ldap(store.url):
        return _ask_directory(database, settings, store)
    try:
        target = target_of(store, settings, database, is_judged=True)
    except ServiceError:
        return None
    if target.dialect == "sqlite":
        return file_identity("sqlite", Path(sqlite_path(target)))
    limits = session_limits(settings)
    limits = replace(limits, connect_timeout_s=min(ASKING_MAX_S, limits.connect_timeout_s))
    try:
        with connect(target, application_name="lethe:identity", limits=limits, read_only=True) as conn:
            refuse_own_metadata(database, conn)
            return identity(conn)
    except TargetError:
        return None


def _ask_directory(database: Database, settings: Settings, store: Store) -> str | None:
    try:
        target = directory_of(store, settings, database, is_judged=True)
        timeout_s = min(ASKING_MAX_S, settings.target_connect_timeout_s)
        with opened_directory(target, connect_timeout_s=timeout_s) as directory:
            return directory_identity(directory)
    except (ServiceError, TargetError):
        return None


def refuse_own_metadata(database: Database, conn: Connection) -> None:
    """Refuse a connection to Lethe's own metadata, by whatever name it was reached.

    On PostgreSQL a lock that the metadata's connection holds is to be seen over this one only if both are in
    the same database of the same server; no right is needed for that.

    Raises: StoreUrlRefused.
    """
    is_own = False
    if conn.dialect.name == "sqlite":
        is_own = is_own_file(Path(sqlite_path(conn.target)), database)
    elif conn.dialect.name == "postgresql" and not database.is_sqlite:
        key = secrets.randbits(63)
        with database.holding() as own:
            own.execute(text("select pg_advisory_xact_lock(:key)"), {"key": key})
            is_own = bool(conn.execute(_SHOWS_LOCK, {"high": key >> 32, "low": key & 0xFFFFFFFF}))
    if is_own:
        raise StoreUrlRefused("this is Lethe's own metadata database", code="OWN_METADATA")


def require_border(db: Session, store: Store, proof: str | None) -> None:
    """Refuse a target that a limited token chose, where stores outside of its limit are on it.

    Args:
        proof: what the target says it is; None: the addresses decide, as far as they tell.
    Raises: TargetOfOtherStores.
    """
    if store.target_limit is None:
        return
    others = select(Store).where(col(Store.id) != store.id, col(Store.id).not_in(store.target_limit))
    if _has_one_on(db, others, store, proof):
        raise TargetOfOtherStores


def is_of_a_store(db: Session, store: Store, schema: str, proof: str) -> bool:
    """Whether a schema (MySQL: a database) beside a store's own holds the live tables of another store.

    Args:
        proof: what a target with its live tables there says it is.
    """
    assert store.url is not None, "a store with schemas has a URL"
    url, fields = make_url(store.url), store.model_dump(include={"id", "url", "created_at", "updated_at"})
    if url.get_backend_name() in ("mysql", "mariadb"):
        fields["url"] = url.set(database=schema).render_as_string(hide_password=False)
    else:
        fields["schema_name"] = schema
    beside = Store(kind=store.kind, **fields)
    return _has_one_on(db, select(Store).where(col(Store.id) != store.id), beside, proof)


def _has_one_on(db: Session, others: Any, store: Store, proof: str | None) -> bool:
    """Whether one of some stores lies on the target of another.

    Args:
        proof: what that target says it is; None: the addresses decide.
    """
    if proof is not None:
        on_it = or_(col(Store.target_proof) == proof, col(Store.target_identity) == proof)
        if db.exec(others.where(on_it).limit(1)).first() is not None:
            return True
        if not proof.startswith(BY_START):  # which cannot be compared with what others are known by
            unknown = and_(col(Store.target_proof).is_(None), col(Store.target_identity).is_(None))
            others = others.where(or_(unknown, col(Store.target_proof).startswith(BY_START)))
    return any(_is_same_place(store, other) for other in db.exec(others))


def judge(database: Database, store: Store, conn: Connection) -> None:
    """Decide over a connection whether a store may use its target; keep what a limited one was decided on.

    Raises: TargetOfOtherStores; StoreUrlRefused: it is Lethe's own metadata; TargetError.
    """
    refuse_own_metadata(database, conn)
    if store.target_limit is not None:
        keep_proof(database, store, identity(conn))


def judge_at_check(database: Database, settings: Settings, store: Store) -> None:
    """The same for `:check`, which a target that is away does not end.

    Raises: TargetOfOtherStores; StoreUrlRefused: it is Lethe's own metadata.
    """
    is_postgresql = store.url is not None and store.url.startswith("postgresql")
    if store.target_limit is None and (database.is_sqlite or not is_postgresql):
        return
    proof = ask_target(database, settings, store)
    if proof is not None and store.target_limit is not None:
        keep_proof(database, store, proof)


def judge_environment(database: Database, store: Store) -> None:
    """The same for a directory of the machine that a job of it runs on.

    Raises: TargetOfOtherStores.
    """
    assert store.path is not None, "a JE store has a path"
    if store.target_limit is not None:
        proof = file_identity("je", Path(store.path))
        if proof is not None:
            keep_proof(database, store, proof)


def keep_proof(database: Database, store: Store, proof: str) -> None:
    """Decide, and keep what was decided on, in the row and in the one that the caller holds.

    Raises: TargetOfOtherStores.
    """
    with database.reading() as db:
        require_border(db, store, proof)
    if store.target_proof != proof:
        with database.transaction() as db:
            row = db.get(Store, store.id, with_for_update=True)
            if row is not None and (row.url, row.path) == (store.url, store.path):
                require_border(db, row, proof)
                row.target_proof = proof
                db.add(row)
        store.target_proof = proof


def _is_same_place(one: Store, other: Store) -> bool:
    """Whether the addresses of two stores lead to one target, as far as files and names of hosts tell."""
    if (one.path is None) != (other.path is None):
        return False
    if one.path is not None and other.path is not None:
        return _file(Path(one.path)) == _file(Path(other.path))
    if is_ldap(str(one.url)) or is_ldap(str(other.url)):
        return is_ldap(str(one.url)) and is_ldap(str(other.url)) and _is_same_directory(one, other)
    mine, theirs = make_url(str(one.url)), make_url(str(other.url))
    dialects = {url.get_backend_name().replace("mariadb", "mysql") for url in (mine, theirs)}
    if len(dialects) > 1:
        return False
    [dialect] = dialects
    if dialect == "sqlite":
        return _file(Path(str(mine.database))) == _file(Path(str(theirs.database)))
    port = DEFAULT_PORTS[dialect]
    if (mine.port or port, mine.database) != (theirs.port or port, theirs.database):
        return False
    if (one.schema_name or "public", one.cluster) != (other.schema_name or "public", other.cluster):
        return False
    return not set(_addresses(mine.host)).isdisjoint(_addresses(theirs.host))


def _is_same_directory(one: Store, other: Store) -> bool:
    """One suffix on one machine: a server has a port for TLS and one without."""
    if (one.suffix or "").lower() != (other.suffix or "").lower():
        return False
    mine, theirs = ldap_place(str(one.url)), ldap_place(str(other.url))
    ports = (mine.port, theirs.port)
    if mine.tls is theirs.tls and ports[0] != ports[1]:
        return False
    return not set(_addresses(mine.host)).isdisjoint(_addresses(theirs.host))


def _file(path: Path) -> object:
    """What a path leads to: a file or directory by device and inode, else the path that it would have."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return path.resolve()


def _addresses(host: str | None) -> Iterator[str]:
    """The addresses of a host, and its name for where nobody knows them; a socket is of this machine."""
    if host is None or is_loopback(host):
        yield THIS_MACHINE
        return
    yield host.lower()
    with suppress(gaierror, UnicodeError):
        for *_, address in getaddrinfo(host, None):
            yield THIS_MACHINE if is_loopback(str(address[0])) else str(address[0])
