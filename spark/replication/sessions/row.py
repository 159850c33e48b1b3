"""The row of a replica's session: who holds the lease, in which epoch, and how far the batches are applied.

Invariants:
- whoever changes the row holds its lock to the commit; it is taken before every other lock of a replica;
- an epoch is given once: every acquire has a greater one;
- expiry is judged by the target's clock alone;
- a lease that ran out may be had by anybody; who held it goes on in it for OVERDUE_MAX_S while nobody has:
  the epoch, read under the lock, tells.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables
from spark.replication.errors import ReplicaMissing
from spark.replication.proofs.values import Head
from spark.replication.records import SessionMode
from spark.replication.session_errors import BatchGap, ReplicaBusy, SessionEnded, SessionNotFound, StaleEpoch
from spark.targets.connection import Connection, target_now
from spark.targets.errors import TargetTablesMissing

OVERDUE_MAX_S: Final = 60.0
"""For how long a lease that ran out and that nobody took is its holder's still; whoever proves by time that a
session can write no more waits for this too."""
_COLUMNS: Final = (
    "epoch",
    "session_id",
    "last_session_id",
    "mode",
    "supplier_rid",
    "supplier_store",
    "supplier_generation",
    "lease_s",
    "expires_at_s",
    "batch_seq",
    "total",
    "total_cursor_database",
    "total_cursor_key",
    "supplies",
)


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a supplier shows: its session, the epoch of its lease, and which batch this is (from 1)."""

    session_id: str
    epoch: int
    batch_seq: int = 0


@dataclass(frozen=True, slots=True)
class TotalCopy:
    """A total initialisation under way.

    Attributes:
        ruv: the supplier's when its copy began; what the copy holds of every replica at least.
        is_copied: all entries are here; changes follow.
        heads: the supplier's values at that RUV.
        copied: of each replica id the greatest CSN among the entries that are here.
        entries: how many are here; None: the copy was begun by a version that did not count.
        buried: the greatest bound that any of them was read under: up to there tombstones may be missing.
    """

    session_id: str
    supplier_rid: int
    generation: str
    ruv: Mapping[int, Csn] = field(default_factory=dict)
    is_copied: bool = False
    heads: Mapping[int, Head] = field(default_factory=dict)
    copied: Mapping[int, Csn] = field(default_factory=dict)
    entries: int | None = 0
    buried: Csn | None = None

    def text(self) -> str:
        """As the row keeps it."""
        return json.dumps(
            {
                "session_id": self.session_id,
                "supplier_rid": self.supplier_rid,
                "generation": self.generation,
                "ruv": {str(rid): str(csn) for rid, csn in self.ruv.items()},
                "is_copied": self.is_copied,
                "heads": {str(rid): head.document() for rid, head in self.heads.items()},
                "copied": {str(rid): str(csn) for rid, csn in self.copied.items()},
                "entries": self.entries,
                "buried": self.buried,
            },
            sort_keys=True,
        )

    @classmethod
    def of(cls, text: str) -> Self:
        """Read what `text` has written."""
        found = json.loads(text)
        ruv = {int(rid): Csn(csn) for rid, csn in found.pop("ruv").items()}
        heads = {int(rid): Head.of(head, int(rid)) for rid, head in found.pop("heads", {}).items()}
        copied = {int(rid): Csn(csn) for rid, csn in found.pop("copied", {}).items()}
        entries, buried = found.pop("entries", None), found.pop("buried", None)
        bound = None if buried is None else Csn(buried)
        return cls(ruv=ruv, heads=heads, copied=copied, entries=entries, buried=bound, **found)

    def under(self, buried: Csn | None) -> Self:
        """With a bound that some of it was read under; the greatest counts."""
        return replace(self, buried=max(filter(None, (self.buried, buried)), default=None))

    def beyond(self, ruv: Mapping[int, Csn]) -> tuple[int, ...]:
        """The replica ids of which an entry is newer than a RUV."""
        return tuple(sorted(rid for rid, csn in self.copied.items() if csn > ruv.get(rid, "")))

    def with_entries(self, newest: Mapping[int, Csn], *, rows: int) -> Self:
        """With so many more entries, and their greatest CSNs."""
        copied = {**self.copied, **{rid: max(csn, self.copied.get(rid, csn)) for rid, csn in newest.items()}}
        return replace(self, copied=copied, entries=None if self.entries is None else self.entries + rows)


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The row under its lock; `now_s` is the target's clock.

    Attributes:
        session_id: None: nobody holds the lease.
        last_session_id: the one before, whose release may be repeated.
        lease_s: what each batch renews the lease by.
        cursor: (database, key) of the last entry of the copy.
        supplies: sessions that are about to copy this replica, and until when; see supplying.py.
    """

    now_s: float
    epoch: int = 0
    session_id: str | None = None
    last_session_id: str | None = None
    mode: SessionMode | None = None
    supplier_rid: int | None = None
    supplier_store: str | None = None
    supplier_generation: str | None = None
    lease_s: float | None = None
    expires_at_s: float | None = None
    batch_seq: int = 0
    total: TotalCopy | None = None
    cursor: tuple[bytes, bytes] | None = None
    supplies: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_held(self) -> bool:
        """Whether somebody holds the lease now."""
        return self.session_id is not None and self.now_s < (self.expires_at_s or 0)

    @property
    def expires_at(self) -> datetime:
        """When the lease ends."""
        assert self.expires_at_s is not None, "a session has a lease"
        return datetime.fromtimestamp(self.expires_at_s, UTC)

    @property
    def peer(self) -> str:
        """The supplier as dead letters name it."""
        return f"{self.supplier_store}/{self.supplier_rid}"

    @property
    def renewed_s(self) -> float:
        """When the lease ends if it is renewed now."""
        assert self.lease_s is not None, "a session has a lease"
        return self.now_s + self.lease_s

    def require_free(self, session_id: str, supplier_rid: int | None = None) -> None:
        """Raise ReplicaBusy while another session than this one holds the lease.

        Only its own supplier is told which: whoever knows the name of a session can send batches in it.
        """
        if not self.is_held or (self.session_id, self.supplier_rid) == (session_id, supplier_rid):
            return
        name, holder = "a session", {}
        if self.supplier_rid == supplier_rid:
            name, holder = f"session {self.session_id}", {"holder": self.session_id}
        raise ReplicaBusy(
            f"{name} of replica {self.supplier_rid} ({self.supplier_store}) holds the lease",
            {
                **holder,
                "supplier_rid": self.supplier_rid,
                "supplier_store": self.supplier_store,
                "expires_at": self.expires_at.isoformat().replace("+00:00", "Z"),
            },
            expires_in_s=self.expires_at.timestamp() - self.now_s,
        )

    def require(self, ticket: Ticket) -> None:
        """Raise unless the ticket is that of whoever holds the lease.

        Raises: SessionNotFound, SessionEnded, StaleEpoch.
        """
        if self.session_id != ticket.session_id:
            if self.last_session_id == ticket.session_id:
                raise SessionEnded(f"session {ticket.session_id} has ended")
            raise SessionNotFound(f"this replica knows no session {ticket.session_id}")
        if self.epoch != ticket.epoch:
            raise StaleEpoch(
                f"session {ticket.session_id} is in epoch {self.epoch}, not {ticket.epoch}",
                {"epoch": self.epoch},
            )
        # Nobody took it since, or session and epoch were another's.
        if self.now_s >= (self.expires_at_s or 0) + OVERDUE_MAX_S:
            raise SessionEnded(f"the lease of session {ticket.session_id} has expired")

    def require_batches(self, ticket: Ticket) -> None:
        """Raise unless every batch up to the ticket's is here: a target that was put back has lost some.

        Raises: BatchGap.
        """
        if self.batch_seq < ticket.batch_seq:
            expected = self.batch_seq + 1
            raise BatchGap(f"batch {expected} is missing: it was answered once", {"expected": expected})


def lock_session(conn: Connection, tables: ReplicaTables) -> SessionRow:
    """Take the lock of the session's row to the end of the transaction; what stands there.

    Raises: ReplicaMissing. TargetLockTimeout: another batch holds it for longer than the limit.
    """
    assert conn.in_transaction, "the lock is held to the commit"
    tail = " for update" if conn.dialect.name == "postgresql" else ""
    try:
        rows = conn.execute(f"select {', '.join(_COLUMNS)} from {tables.session} where one = 1{tail}")
        if not rows:
            # Two at once: the second waits here, and finds the row of the first below.
            conn.execute(
                f"insert into {tables.session} (one, epoch, batch_seq) values (1, 0, 0)"
                " on conflict (one) do nothing"
            )
            rows = conn.execute(f"select {', '.join(_COLUMNS)} from {tables.session} where one = 1{tail}")
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    # After the wait for the lock: a lease may have run out in it.
    return _row(dict(zip(_COLUMNS, rows[0], strict=True)), target_now(conn).timestamp())


def save_session(conn: Connection, tables: ReplicaTables, row: SessionRow) -> None:
    """Keep the row, under `lock_session`."""
    database, key = row.cursor or (None, None)
    values: dict[str, Any] = {
        "epoch": row.epoch,
        "session_id": row.session_id,
        "last_session_id": row.last_session_id,
        "mode": None if row.mode is None else row.mode.value,
        "supplier_rid": row.supplier_rid,
        "supplier_store": row.supplier_store,
        "supplier_generation": row.supplier_generation,
        "lease_s": row.lease_s,
        "expires_at_s": row.expires_at_s,
        "batch_seq": row.batch_seq,
        "total": None if row.total is None else row.total.text(),
        "total_cursor_database": database,
        "total_cursor_key": key,
        "supplies": json.dumps(dict(row.supplies), sort_keys=True) if row.supplies else None,
    }
    assignments = ", ".join(f"{name} = :{name}" for name in values)
    conn.execute(f"update {tables.session} set {assignments} where one = 1", values)


def _row(found: dict[str, Any], now_s: float) -> SessionRow:
    database, key = found.pop("total_cursor_database"), found.pop("total_cursor_key")
    found["mode"] = None if found["mode"] is None else SessionMode(found["mode"])
    found["total"] = None if found["total"] is None else TotalCopy.of(found["total"])
    found["supplies"] = {} if found["supplies"] is None else json.loads(found["supplies"])
    cursor = None if database is None else (bytes(database), bytes(key))
    return SessionRow(now_s=now_s, cursor=cursor, **found)
