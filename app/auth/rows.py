"""Tokens, the audit log and idempotency keys as tables."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import StringConstraints
from sqlalchemy import BigInteger, Index
from sqlmodel import Field, SQLModel

from app.auth.actions import Action
from app.auth.scopes import Scope
from app.db import JSON_TYPE, UtcDateTime
from app.kit.ids import new_id
from app.kit.values import STORE_ID, Instant

StoreName = Annotated[str, StringConstraints(pattern=STORE_ID)]
TokenName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]


class TokenBase(SQLModel):
    """What a token is called and may do."""

    name: TokenName = Field(max_length=100)
    scopes: list[Scope] = Field(default_factory=list, sa_type=JSON_TYPE)
    stores: list[StoreName] | None = Field(
        default=None, sa_type=JSON_TYPE, description="Limited to these stores; null: all."
    )
    expires_at: Instant | None = Field(default=None, sa_type=UtcDateTime)


class Token(TokenBase, table=True):
    """A token; only the hash of its secret is kept."""

    __tablename__ = "tokens"

    id: str = Field(primary_key=True, max_length=40)
    secret_sha256: str = Field(unique=True, max_length=64)
    created_at: datetime = Field(sa_type=UtcDateTime)
    created_by: str | None = Field(default=None, max_length=40)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class AuditEventBase(SQLModel):
    """Who changed what, when."""

    at: datetime = Field(sa_type=UtcDateTime, index=True)
    token_id: str | None = Field(default=None, max_length=40)
    actor: str = Field(max_length=120)
    action: str = Field(max_length=80)
    subject_type: str = Field(max_length=40)
    subject_id: str = Field(max_length=80)
    store: str | None = Field(default=None, max_length=63)
    request_id: str | None = Field(default=None, max_length=128)
    detail: dict[str, Any] = Field(default_factory=dict, sa_type=JSON_TYPE)


class AuditEvent(AuditEventBase, table=True):
    """One row per mutation, in the mutation's own transaction; linked as that commits (chain.py)."""

    __tablename__ = "audit_events"
    __table_args__ = tuple(
        Index(f"ix_audit_events_{name}_id", name, "id")
        for name in ("actor", "token_id", "store", "action", "subject_id")
    )

    id: str = Field(primary_key=True, max_length=40)
    seq: int | None = Field(default=None, sa_type=BigInteger, unique=True)
    previous_hash: str | None = Field(default=None, max_length=64)
    hash: str | None = Field(default=None, max_length=64)


def audited(
    action: Action,
    subject: tuple[str, str],
    *,
    at: datetime,
    actor: str,
    token_id: str | None = None,
    store: str | None = None,
    request_id: str | None = None,
    detail: Mapping[str, Any],
) -> AuditEvent:
    """A new row of the audit; `subject` is its type and its id.

    Args:
        actor: the name of a token, or of the part of the service that acts by itself.
        token_id, request_id: None: nobody asked for it by a request.
    """
    subject_type, subject_id = subject
    return AuditEvent(
        id=new_id("aud"),
        at=at,
        token_id=token_id,
        actor=actor,
        action=action,
        subject_type=subject_type,
        subject_id=subject_id,
        store=store,
        request_id=request_id,
        detail=dict(detail),
    )


class AuditChain(SQLModel, table=True):
    """The one row that tells where the chain of audit rows begins and ends."""

    __tablename__ = "audit_chain"

    id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    seq: int = Field(sa_type=BigInteger)
    hash: str = Field(max_length=64)
    anchor_seq: int = Field(default=0, sa_type=BigInteger)
    """The last row that retention has removed."""
    anchor_hash: str = Field(max_length=64)
    adopted_seq: int = Field(default=0, sa_type=BigInteger)
    """Rows up to here are older than the chain: it holds how they were when it began."""


class ConsoleSession(SQLModel, table=True):
    """Somebody who has signed in to the console; only the hash of the cookie is kept.

    Attributes:
        id: SHA-256 of the cookie's value.
        token_id: whose rights it has, as they are now.
    """

    __tablename__ = "console_sessions"
    __table_args__ = (
        Index("ix_console_sessions_token_id", "token_id"),
        Index("ix_console_sessions_expires_at", "expires_at"),
    )

    id: str = Field(primary_key=True, max_length=64)
    token_id: str = Field(max_length=40)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime = Field(sa_type=UtcDateTime)


class IdempotencyKey(SQLModel, table=True):
    """The stored answer of a request that named an Idempotency-Key."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("ix_idempotency_keys_created_at", "created_at"),)

    token_id: str = Field(primary_key=True, max_length=40)
    method: str = Field(primary_key=True, max_length=10)
    path: str = Field(primary_key=True, max_length=300)
    key: str = Field(primary_key=True, max_length=255)
    request_sha256: str = Field(max_length=64)
    sent_sha256: str | None = Field(default=None, max_length=64)
    status: int
    headers: dict[str, str] = Field(default_factory=dict, sa_type=JSON_TYPE)
    body: Any = Field(default=None, sa_type=JSON_TYPE, nullable=True)
    created_at: datetime = Field(sa_type=UtcDateTime)
