"""Grants to discard, as rows of the metadata."""

from datetime import datetime

from sqlalchemy import Column, ForeignKey, Index, String
from sqlmodel import Field, SQLModel

from app.db import UtcDateTime


class DiscardGrant(SQLModel, table=True):
    """An admin's word that one acquire of a supplier may discard what only this replica has.

    Attributes:
        peer_token_id: only a supplier with this token; None: any that says it is that replica.
        consumed_by: the session whose acquire it was spent for.
    """

    __tablename__ = "discard_grants"
    __table_args__ = (Index("ix_discard_grants_store", "store", "id"),)

    id: str = Field(primary_key=True, max_length=40)
    store: str = Field(
        sa_column=Column(String(63), ForeignKey("stores.id", ondelete="CASCADE"), nullable=False)
    )
    supplier_rid: int
    peer_token_id: str | None = Field(default=None, max_length=40)
    reason: str = Field(max_length=500)
    granted_by: str = Field(max_length=120)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)
    consumed_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    consumed_by: str | None = Field(default=None, max_length=64)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_by: str | None = Field(default=None, max_length=120)
