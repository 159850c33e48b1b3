"""Who a replica is beyond its number: a key of its own, which signs how far its history has come.

The key lies in the replica's own tables: it goes where the changes go. A target that is put back has it, and
so has one that is served by another metadata; metadata that is put back loses nothing. Whoever can read it
can write changes into the tables as well. Another replica that was given the same number has another key.

Keys of others are learned when they are first heard of, and never change by themselves. An admin may say
before which one is right, and may forget one: what it has signed counts for nothing then.
"""

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from spark.formats.replica import ReplicaTables
from spark.targets.connection import Connection

_SIGNED: Final = b"lethe head 1\0"
_INTRODUCED: Final = b"lethe acquire 1\0"


def ensure_identity(conn: Connection, tables: ReplicaTables) -> None:
    """Give the replica its key where it has none, inside the caller's transaction."""
    if conn.execute(f"select 1 from {tables.identity}"):
        return
    key = Ed25519PrivateKey.generate()
    conn.execute(
        f"insert into {tables.identity} (one, private_key, public_key) values (1, :private, :public)",
        {"private": key.private_bytes_raw(), "public": key.public_key().public_bytes_raw()},
    )


def public_key_of(conn: Connection, tables: ReplicaTables) -> bytes:
    """The replica's own."""
    [(key,)] = conn.execute(f"select public_key from {tables.identity}")
    return bytes(key)


def sign_head(conn: Connection, tables: ReplicaTables, rid: int, csn: str, chain: bytes) -> bytes:
    """Sign that the own history has this value at this CSN."""
    [(key,)] = conn.execute(f"select private_key from {tables.identity}")
    return Ed25519PrivateKey.from_private_bytes(bytes(key)).sign(head_message(rid, csn, chain))


def head_message(rid: int, csn: str, chain: bytes) -> bytes:
    """What a replica signs of its own history."""
    return _SIGNED + rid.to_bytes(4, "big") + csn.encode() + chain


def is_signed(key: bytes, rid: int, csn: str, chain: bytes, signature: bytes) -> bool:
    """Whether whoever has the key has signed it."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, head_message(rid, csn, chain))
    except (InvalidSignature, ValueError):
        return False
    return True


def sign_introduction(conn: Connection, tables: ReplicaTables, introduced: bytes) -> bytes:
    """Sign that it is this replica which acquires; see `introduction`."""
    [(key,)] = conn.execute(f"select private_key from {tables.identity}")
    return Ed25519PrivateKey.from_private_bytes(bytes(key)).sign(introduced)


def introduction(rid: int, *, store: str, session_id: str, csn_now: str) -> bytes:
    """What a supplier signs with each acquire.

    Args:
        rid: its own.
        store: the consumer's, as the supplier calls it.
    """
    return _INTRODUCED + rid.to_bytes(4, "big") + csn_now.encode() + f"{session_id}\0{store}".encode()


def is_introduced(key: bytes, introduced: bytes, signature: bytes) -> bool:
    """Whether whoever has the key acquires."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, introduced)
    except (InvalidSignature, ValueError):
        return False
    return True


def known_keys(conn: Connection, tables: ReplicaTables) -> dict[int, bytes]:
    """The keys of other replica ids."""
    return {rid: bytes(key) for rid, key in conn.execute(f"select rid, public_key from {tables.known_keys}")}


def learn_key(conn: Connection, tables: ReplicaTables, rid: int, key: bytes) -> None:
    """Keep the key of a replica id of which none is known, in the caller's transaction."""
    conn.execute(
        f"insert into {tables.known_keys} (rid, public_key) values (:rid, :key) on conflict (rid) do nothing",
        {"rid": rid, "key": key},
    )
