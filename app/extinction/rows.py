"""Extinctions as rows of the metadata: what was asked for, and how far each store is with it.

Of a REPLICA the target's own row decides (spark.replication.consumer.extinctions); a row here is its
reservation, its mirror and its history. Of a JE environment this row is all there is.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import BigInteger, Column, ForeignKey, Index, String, Text
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class ExtinctionState(StrEnum):
    """How far it is.

    RESERVED: asked for, not known to be committed: its keys are MAYBE_EXTINCT. DROPPED: it never was.
    LOGGED: committed. SCANNING: records are counted or removed. DONE: that is over.
    """

    RESERVED = "RESERVED"
    LOGGED = "LOGGED"
    SCANNING = "SCANNING"
    DONE = "DONE"
    DROPPED = "DROPPED"


HOLDING: Final = frozenset({ExtinctionState.LOGGED, ExtinctionState.SCANNING, ExtinctionState.DONE})
"""States in which its keys are extinct."""
ENDED: Final = frozenset({ExtinctionState.DONE, ExtinctionState.DROPPED})


class ExtinctionOrigin(StrEnum):
    """Where it was first said: to this service, to another replica, or to JE itself, in whose log it is."""

    LOCAL = "LOCAL"
    REPLICATED = "REPLICATED"
    LOG = "LOG"


class ExtinctionRow(SQLModel, table=True):
    """One extinction at one store; replicas of one world share its id.

    Attributes:
        databases, start_key, end_key: in base64, whatever the kind of the store; a null key is open.
        csn: of its record, at a REPLICA.
        records, bytes: matching ones that were removed or, at JE, counted; octets of keys and values.
        hint: what is worth knowing of its size.
        has_java_filter: found in a JE log with a filter that only JE can evaluate: it covers nothing here,
            and the keys of its range may be extinct.
        secondary: found in a JE log: those of `databases` that have duplicates, in base64; null: not known.
        attested_at, attested_by, attest_reason: an admin has said that the application's own filter is
            installed and says EXTINCT.
    """

    __tablename__ = "extinctions"
    __table_args__ = (Index("ix_extinctions_state", "state"),)

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    id: str = Field(primary_key=True, max_length=40)
    state: ExtinctionState = Field(sa_type=String(10))
    origin: ExtinctionOrigin = Field(default=ExtinctionOrigin.LOCAL, sa_type=String(12))
    databases: list[str] = Field(sa_type=JSON_TYPE)
    start_key: str | None = Field(default=None, sa_type=Text)
    end_key: str | None = Field(default=None, sa_type=Text)
    filter: dict[str, Any] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    label: str = Field(max_length=200)
    reason: str | None = Field(default=None, max_length=500)
    requested_by: str | None = Field(default=None, max_length=120)
    csn: str | None = Field(default=None, max_length=20)
    records: int = Field(default=0, sa_type=BigInteger)
    bytes: int = Field(default=0, sa_type=BigInteger)
    hint: str | None = Field(default=None, sa_type=Text)
    job_id: str | None = Field(default=None, max_length=40)
    created_at: datetime = Field(sa_type=UtcDateTime)
    logged_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    done_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    has_java_filter: bool = False
    secondary: list[str] | None = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    attested_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    attested_by: str | None = Field(default=None, max_length=120)
    attest_reason: str | None = Field(default=None, max_length=500)
    version: int = 1


class ExtinctionLogRow(SQLModel, table=True):
    """How far the log of a JE store was read for what JE itself has discarded.

    Attributes:
        path: of the environment that was read; another one is another log.
        number, offset, checksum, device, inode: the last entry, as a LogPosition of
            spark.erase.reading.log_tail; null: it was not read.
        gap: files that nobody had read were gone, and which; null: none, or an admin has accepted it.
        trouble: why it could not be read up to its end.
    """

    __tablename__ = "extinction_logs"

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    path: str = Field(max_length=1000)
    number: int | None = Field(default=None, sa_type=BigInteger)
    offset: int | None = Field(default=None, sa_type=BigInteger)
    checksum: int | None = Field(default=None, sa_type=BigInteger)
    device: int | None = Field(default=None, sa_type=BigInteger)
    inode: str | None = Field(default=None, max_length=20)
    gap: str | None = Field(default=None, max_length=300)
    trouble: str | None = Field(default=None, max_length=300)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class ExtinctionBundleRow(SQLModel, table=True):
    """The number of a store's filter: it grows whenever what the filter says has changed."""

    __tablename__ = "extinction_bundles"

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    version: int = Field(sa_type=BigInteger)
    digest: str = Field(max_length=64)
    updated_at: datetime = Field(sa_type=UtcDateTime)
