"""What the last check of each store found, as a table."""

from datetime import datetime
from typing import Any

from sqlalchemy import Column, ForeignKey, Index, String
from sqlmodel import Field, SQLModel

from app.db import JSON_TYPE, UtcDateTime


class StoreHealth(SQLModel, table=True):
    """The last check of a store, and when the next one is due.

    Attributes:
        checked_at: None: it was never looked at.
        trouble: the code of the first finding that is an error; None: it is ready.
        warnings: how many findings are warnings.
        findings: code, severity and detail; what is only told for information is left out.
        stale_at: from then on the last check says nothing any more; None: nobody keeps it fresh.
        due_at: of the next look; whoever makes it has moved it on first.
    """

    __tablename__ = "store_health"
    __table_args__ = (
        Index("ix_store_health_due_at", "due_at"),
        Index("ix_store_health_trouble", "trouble"),
        Index("ix_store_health_stale_at", "stale_at"),
    )

    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), primary_key=True)
    )
    checked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    trouble_since: datetime | None = Field(default=None, sa_type=UtcDateTime)
    trouble: str | None = Field(default=None, max_length=60)
    is_reachable: bool | None = None
    warnings: int = 0
    findings: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON_TYPE)
    stale_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    due_at: datetime = Field(sa_type=UtcDateTime)
