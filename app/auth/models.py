"""Tokens and the audit log as clients see them."""

from datetime import datetime, timedelta

from pydantic import field_validator, model_validator
from sqlmodel import Field
from sqlmodel._compat import SQLModelConfig

from app.auth.rows import AuditEventBase, TokenBase
from app.auth.scopes import Role

EXPIRES_IN_MAX = timedelta(days=36_500)


class TokenCreate(TokenBase):
    """A new token: scopes, or a role, or both."""

    role: Role | None = None
    expires_in: timedelta | None = Field(default=None, description="ISO 8601; instead of expires_at.")

    model_config = SQLModelConfig(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"name": "nightly-purge", "role": "operator", "stores": ["shop"], "expires_in": "P90D"}
            ]
        },
    )

    @field_validator("expires_in")
    @classmethod
    def _bounded(cls, value: timedelta | None) -> timedelta | None:
        if value is not None and abs(value) > EXPIRES_IN_MAX:
            raise ValueError(f"at most P{EXPIRES_IN_MAX.days}D")
        return value

    @model_validator(mode="after")
    def _something(self) -> "TokenCreate":
        if not self.scopes and self.role is None:
            raise ValueError("name scopes or a role")
        if self.expires_at is not None and self.expires_in is not None:
            raise ValueError("expires_at and expires_in exclude each other")
        return self


class TokenRead(TokenBase):
    """A token without its secret."""

    id: str
    created_at: datetime
    created_by: str | None
    revoked_at: datetime | None


class TokenCreated(TokenRead):
    """The answer to a creation: the only time that the secret is shown."""

    token: str | None = Field(description="The secret; null when a creation is replayed.")


class AuditEventRead(AuditEventBase):
    """An audit row as clients see it."""

    id: str
