"""Tokens and the audit log as clients see them."""

from datetime import datetime, timedelta
from typing import Self

from pydantic import field_validator, model_validator
from sqlmodel import Field, SQLModel
from sqlmodel._compat import SQLModelConfig

from app.auth.rows import AuditEventBase, Token, TokenBase
from app.auth.scopes import Role, Scope, known_scopes

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

    @classmethod
    def of(cls, row: Token) -> Self:
        """As clients see it."""
        return cls.model_validate(row.model_dump(warnings=False) | {"scopes": known_scopes(row.scopes)})


class TokenCreated(TokenRead):
    """The answer to a creation: the only time that the secret is shown."""

    token: str | None = Field(description="The secret; null when a creation is replayed.")


class WhoAmI(SQLModel):
    """What a token is and may do."""

    token_id: str = Field(description="Of an identity provider's caller: `oidc_...`, which has no row here.")
    name: str
    scopes: list[Scope]
    stores: list[str] | None = Field(description="Limited to these stores; null: all.")
    expires_at: datetime | None = Field(description="Null: never.")
    provider: bool = Field(description="Whether the token is of an identity provider.")

    model_config = SQLModelConfig(
        json_schema_extra={
            "examples": [
                {
                    "token_id": "tok_01m7w9fkm3fr0wmcztj953rhw9",
                    "name": "nightly-purge",
                    "scopes": ["jobs:read", "purges:write", "stores:read"],
                    "stores": ["shop"],
                    "expires_at": "2027-02-18T10:54:39.613933Z",
                    "provider": False,
                }
            ]
        }
    )


class AuditEventRead(AuditEventBase):
    """An audit row as clients see it."""

    id: str
    seq: int | None = Field(default=None, description="Its place in the chain of all audit rows.")
    previous_hash: str | None = Field(default=None, description="Hash of the row before it.")
    hash: str | None = Field(default=None, description="SHA-256 over the row and `previous_hash`.")
