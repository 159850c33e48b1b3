"""Keys of other replica ids as an admin names them: before they are heard of, or in place of a wrong one."""

from dataclasses import dataclass

from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.errors import KeyKnown, ReplicaMissing
from spark.replication.proofs.identity import known_keys, learn_key, public_key_of
from spark.replication.replica.replica import lock_replica
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing


@dataclass(frozen=True, slots=True)
class Keys:
    """The key of a replica, and those that it knows of others."""

    rid: int
    own: bytes
    others: dict[int, bytes]


def read_keys(conn: Connection) -> Keys:
    """Read them.

    Raises: ReplicaMissing.
    """
    tables = tables_of(conn)
    try:
        with conn.transaction(read_only=True):
            [(rid,)] = conn.execute(f"select rid from {tables.replica}")
            return Keys(rid, public_key_of(conn, tables), known_keys(conn, tables))
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error


def pin_key(conn: Connection, rid: int, key: bytes, *, instead_of: bytes | None = None) -> None:
    """Say, in one transaction, which key another replica id has; again it changes nothing.

    Args:
        instead_of: the one that is known, where it is the wrong one.
    Raises: KeyKnown: the replica id is this replica's own, or another key of it is known. ReplicaMissing.
    """
    tables = tables_of(conn)
    with conn.transaction():
        known = _locked(conn, tables, rid)
        if known == key:
            return
        if known is not None and known != instead_of:
            raise KeyKnown(f"another key of replica {rid} is known: {known.hex()}")
        _delete(conn, tables, rid)
        learn_key(conn, tables, rid, key)


def forget_key(conn: Connection, rid: int) -> bytes | None:
    """Forget, in one transaction, the key of another replica id and what it has signed; the key, if any.

    Raises: KeyKnown: the replica id is this replica's own. ReplicaMissing.
    """
    tables = tables_of(conn)
    with conn.transaction():
        known = _locked(conn, tables, rid)
        _delete(conn, tables, rid)
    return known


def _locked(conn: Connection, tables: ReplicaTables, rid: int) -> bytes | None:
    """The key that is known; until the end of the transaction nobody learns another one."""
    replica, _ = lock_replica(conn, tables)
    if replica.rid == rid:
        raise KeyKnown(f"{rid} is this replica itself: its key lies with its changes")
    return known_keys(conn, tables).get(rid)


def _delete(conn: Connection, tables: ReplicaTables, rid: int) -> None:
    for table in (tables.known_keys, tables.signed_heads):
        conn.execute(f"delete from {table} where rid = :rid", {"rid": rid})
