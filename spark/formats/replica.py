"""The tables of a REPLICA store: Lethe's own layout on PostgreSQL and SQLite.

    replica        one row: who this replica is, and what may be asked of it
    generator      one row: what the CSN generator remembers; local writers hold its lock to their commit
    ruv            a row for each replica id: first and greatest CSN here, and the greatest that ever left
    changelog      the records; the key (rid, csn) is the only order in which they are read
    entries        the newest state of each key, deleted ones as tombstones
    session        one row: the lease of the supplier that is connected, and how far its batches are applied
    agreements     the consumers of this replica; agreement_ruv: what each of them has acknowledged
    dead_letters   records that a consumer refused
    requests       Idempotency-Keys of local writes, in the transaction of the writes
    part           of a PARTIAL replica, one row: which keys it holds (spark/formats/part.py); else no table
    buried         one row: the greatest CSN of the tombstones that were purged; before the first, no table
    identity       one row: the key that this replica signs its own history with
    points         values of chains at CSNs whose records are not here (spark/replication/proofs/chain.py)
    known_keys     of other replica ids; signed_heads: what their replicas have signed

CSNs are text that compares byte by byte, databases and keys are bytes; times are seconds since 1970 by the
target's clock. Every record keeps `prev`, the CSN of its replica's record before it: a hole shows at once,
also one that somebody made in the table itself.
Source: design.md, Replication; facts/replication-session, sections 3 and 4.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Dialect

LAYOUT_VERSION: Final = 2
LAYOUT_OF_PARTS: Final = 3
"""Version 2, with a table that says which part of the keys is here: who knows no parts must not use it."""
LAYOUT_OF_BOUNDS: Final = 4
"""Version 2, with a table that says up to where tombstones were purged: who knows no such bound would let a
deleted key come back."""
LAYOUT_OF_BOTH: Final = 5
LAYOUTS_WITH_PART: Final = frozenset({LAYOUT_OF_PARTS, LAYOUT_OF_BOTH})
LAYOUTS_WITH_BOUND: Final = frozenset({LAYOUT_OF_BOUNDS, LAYOUT_OF_BOTH})
LAYOUTS_READ: Final = frozenset({1, LAYOUT_VERSION}) | LAYOUTS_WITH_PART | LAYOUTS_WITH_BOUND
"""Version 1 knew no chain and no key; it becomes 2 at its next use."""
NAMED_MAX: Final = 1_024
"""Replicas whose quoted names are kept."""
PREFIX_DEFAULT: Final = "replica_"
DATABASE_MAX_BYTES: Final = 255
KEY_MAX_BYTES: Final = 2_000
"""PostgreSQL's index takes about 2,700 bytes of database and key together."""
VALUE_MAX_BYTES: Final = 1_048_576

TABLES: Final = (
    "replica",
    "generator",
    "ruv",
    "changelog",
    "entries",
    "session",
    "agreements",
    "agreement_ruv",
    "dead_letters",
    "requests",
    "extinctions",
    "extinction_slices",
    "announced",
    "peers",
    "identity",
    "points",
    "known_keys",
    "signed_heads",
)
_OF_EXTINCTIONS: Final = frozenset({"extinctions", "extinction_slices", "announced", "peers"})
_OF_PROOFS: Final = frozenset({"identity", "points", "known_keys", "signed_heads"})
ADDED_LATER: Final = _OF_EXTINCTIONS | _OF_PROOFS
"""A replica of before lacks some of them; they are made at its next use."""
LACKING_BEFORE: Final = frozenset({frozenset(), _OF_PROOFS, ADDED_LATER})
"""Which tables a replica of any version may lack."""
COLUMNS_LATER: Final = {"changelog": ("chain",)}
"""Columns that a table of before lacks; they are added at its next use."""

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "replica": (
        "one integer not null primary key check (one = 1)",
        "layout_version integer not null",
        "rid integer not null",
        "generation {csn}",
        "incarnation text not null",
        "status text not null",  # ReplicaStatus
        "restored_upto {csn}",  # RESTORED: the own CSN that must come back
    ),
    "generator": (
        "one integer not null primary key check (one = 1)",
        "sampled_s bigint not null",
        "local_offset_s bigint not null",
        "remote_offset_s bigint not null",
        "sequence integer not null",
    ),
    "ruv": (
        "rid integer not null primary key",
        "min_csn {csn}",
        "max_csn {csn}",
        "purged_csn {csn}",
        "last_modified_s bigint",
    ),
    "changelog": (
        "rid integer not null",
        "csn {csn} not null",
        "prev {csn}",
        "kind text not null",
        "database {bytes} not null",
        "key {bytes} not null",
        "payload {bytes}",  # CHANGE: the value, null where the entry is deleted
        "logged_at_s bigint not null",
        "chain {bytes}",  # chain.py; null: from before there was one
        "primary key (rid, csn)",
    ),
    "entries": (
        "database {bytes} not null",
        "key {bytes} not null",
        "value {bytes}",
        "csn {csn} not null",
        "is_tombstone {boolean} not null",
        "primary key (database, key)",
    ),
    "session": (
        "one integer not null primary key check (one = 1)",
        "epoch bigint not null",
        "session_id text",  # null: nobody holds the lease
        "last_session_id text",  # whose release may be repeated
        "mode text",
        "supplier_rid integer",
        "supplier_store text",
        "supplier_generation {csn}",
        "lease_s double precision",  # what each batch renews it by
        "expires_at_s double precision",
        "batch_seq bigint not null",  # the last one that was applied in this epoch
        "total text",  # TOTAL: whose copy, of which RUV and generation, JSON; kept until complete
        "total_cursor_database {bytes}",
        "total_cursor_key {bytes}",
        "supplies text",  # sessions that are about to copy this replica, and until when they say so, JSON
    ),
    "agreements": (
        "id text not null primary key",
        "consumer_rid integer",
        "registered_at_s bigint not null",
        "removed_at_s bigint",  # its floor stays for a while
    ),
    "agreement_ruv": (
        "agreement_id text not null",
        "rid integer not null",
        "acked_csn {csn} not null",
        "primary key (agreement_id, rid)",
    ),
    "dead_letters": (
        "direction text not null",  # SENT: a consumer refused it; RECEIVED: this replica did
        "peer text not null",  # the agreement, or the supplier's store and RID
        "csn {csn} not null",
        "rid integer not null",
        "kind text not null",
        "database {bytes} not null",
        "key {bytes} not null",
        "payload {bytes}",
        "code text not null",
        "detail text not null",
        "attempts integer not null",
        "first_at_s bigint not null",
        "last_at_s bigint not null",
        "resolved_at_s bigint",
        "primary key (direction, peer, csn)",
    ),
    "requests": (
        "request_key text not null primary key",
        "fingerprint text not null",
        "answer text not null",  # JSON
        "at_s bigint not null",
    ),
    "extinctions": (
        "id text not null primary key",
        "csn {csn} not null",
        "rid integer not null",
        "payload {bytes} not null",  # formats.extinction
        "state text not null",  # ScanState
        "records bigint not null",  # live entries that its scan has removed; of a DONE one
        "bytes bigint not null",  # octets of their keys and values
        "tombstones bigint not null",
        "late bigint not null",  # changes that came after it and were ignored
        "logged_at_s bigint not null",
        "done_at_s bigint",
    ),
    "extinction_slices": (
        "extinction_id text not null",
        "number integer not null",
        "database {bytes} not null",
        "start_key {bytes}",  # inclusive; null: open
        "end_key {bytes}",  # exclusive; null: open
        "cursor_key {bytes}",  # everything up to it has been looked at
        "is_done {boolean} not null",
        "records bigint not null",
        "bytes bigint not null",
        "tombstones bigint not null",
        "primary key (extinction_id, number)",
    ),
    "announced": (
        "rid integer not null primary key",
        "csn {csn} not null",
    ),
    "peers": (
        "role text not null",  # CONSUMER: of an agreement; SUPPLIER: it has acquired here
        "peer text not null",  # the agreement, or the supplier's store and RID
        "rid integer not null",
        "capabilities text not null",  # JSON
        "heard_at_s bigint not null",
        "primary key (role, peer)",
    ),
    "identity": (
        "one integer not null primary key check (one = 1)",
        "private_key {bytes} not null",  # Ed25519, 32 bytes each
        "public_key {bytes} not null",
    ),
    "points": (  # of chains, where the record itself is not here: purge points, and what a copy stands for
        "rid integer not null",
        "csn {csn} not null",
        "chain {bytes} not null",
        "primary key (rid, csn)",
    ),
    "known_keys": (
        "rid integer not null primary key",
        "public_key {bytes} not null",
    ),
    "signed_heads": (  # what other replicas have signed of their own changes
        "rid integer not null",
        "csn {csn} not null",
        "signature {bytes} not null",
        "primary key (rid, csn)",
    ),
}
# One tree each instead of a table and an index: both are read and written by their keys alone.
_WITHOUT_ROWID: Final = frozenset({"changelog", "entries", "agreement_ruv", "points", "signed_heads"})
_WORDS: Final = {
    "postgresql": {"csn": 'text collate "C"', "bytes": "bytea", "boolean": "boolean"},
    "sqlite": {"csn": "text", "bytes": "blob", "boolean": "integer"},
}


@dataclass(frozen=True, slots=True)
class ReplicaTables:
    """The quoted names of one replica's tables."""

    replica: str
    generator: str
    ruv: str
    changelog: str
    entries: str
    session: str
    agreements: str
    agreement_ruv: str
    dead_letters: str
    requests: str
    extinctions: str
    extinction_slices: str
    announced: str
    peers: str
    identity: str
    points: str
    known_keys: str
    signed_heads: str


def tables_of(conn: Connection) -> ReplicaTables:
    """Name the tables of the replica behind a connection, by its target's schema and prefix."""
    return _named(type(conn.dialect), conn.target.schema, conn.target.table_prefix)


@lru_cache(maxsize=NAMED_MAX)
def _named(dialect: type[Dialect], schema: str | None, prefix: str) -> ReplicaTables:
    """Quoted once: every statement of every batch asks for them."""
    qualify = dialect().qualify
    return ReplicaTables(**{table: qualify(schema, f"{prefix}{table}") for table in TABLES})


def part_table(conn: Connection) -> str:
    """The quoted name of the table that a PARTIAL replica alone has."""
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}part")


def buried_table(conn: Connection) -> str:
    """The quoted name of the table that a replica has whose tombstones were purged."""
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}buried")


def create_statements(conn: Connection, there: Collection[str] = ()) -> list[str]:
    """The statements that make the tables but those that are there; each fails where its table exists."""
    names, words = tables_of(conn), _WORDS[conn.dialect.name]
    statements = []
    for table in TABLES:
        if table in there:
            continue
        columns = ", ".join(COLUMNS[table]).format(**words)
        tail = " without rowid" if conn.dialect.name == "sqlite" and table in _WITHOUT_ROWID else ""
        statements.append(f"create table {getattr(names, table)} ({columns}){tail}")
    return statements


def column_statements(conn: Connection) -> list[str]:
    """The statements that add the columns of COLUMNS_LATER."""
    names, words = tables_of(conn), _WORDS[conn.dialect.name]
    return [
        f"alter table {getattr(names, table)} add column {line}".format(**words)
        for table, later in COLUMNS_LATER.items()
        for line in COLUMNS[table]
        if line.split()[0] in later
    ]
