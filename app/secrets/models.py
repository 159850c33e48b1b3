"""Secrets as clients see them: where a password or token lies, and who may use it for which hosts."""

import re
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, StringConstraints, model_validator
from sqlmodel import Field
from sqlmodel._compat import SQLModelConfig

from app.auth.rows import StoreName
from app.kit.model import Model
from app.kit.values import Text
from app.secrets.rows import REFERENCE_MAX_CHARS, HostText, LabelName, Place, SecretBase

SCHEME = "secret:"
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,99}"
_FORMER = re.compile(r"(env|file|exec|vault):.*", re.DOTALL)
_EXAMPLE: dict[str, Any] = {
    "name": "shop",
    "reference": "file:shop.password",
    "stores": ["shop"],
    "hosts": ["db.example:5432"],
}


def _named(reference: str) -> str:
    if re.fullmatch(SCHEME + NAME_PATTERN, reference):
        return reference
    if _FORMER.fullmatch(reference):
        raise ValueError(
            "secret:NAME; an admin registers it: lethe secret add NAME --reference env:LETHE_SECRET_NAME"
            " (or file:PATH below LETHE_SECRETS_DIR) --store STORE --host HOST"
        )
    raise ValueError("secret:NAME, the name of a registered secret")


SecretName = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
SecretReference = Annotated[str, StringConstraints(max_length=REFERENCE_MAX_CHARS), AfterValidator(_named)]
"""How a store or an agreement names its secret."""


class SecretCreate(SecretBase):
    """A new secret: its place, never its value."""

    model_config = SQLModelConfig(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    name: SecretName = Field(description="Chosen by the client; stores name it `secret:NAME`.")

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.stores and not self.labels:
            raise ValueError("name stores or labels: nobody else may use it")
        return self


class SecretPatch(Model):
    """Changes of a secret; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reference": "env:LETHE_SECRET_SHOP_2"}]}
    )

    reference: Place | None = None
    stores: list[StoreName] | None = Field(default=None, max_length=1_000)
    labels: dict[LabelName, Text] | None = None
    hosts: list[HostText] | None = Field(default=None, min_length=1, max_length=100)
    clear_text_on_loopback: bool | None = None

    @model_validator(mode="after")
    def _not_null(self) -> Self:
        if wrong := sorted(name for name in self.model_fields_set if getattr(self, name) is None):
            raise ValueError(f"{', '.join(wrong)} cannot be null")
        return self


class SecretRead(Model):
    """A secret as admins see it; its value is never shown."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _EXAMPLE
                | {
                    "labels": {},
                    "clear_text_on_loopback": False,
                    "problem": None,
                    "created_at": "2026-11-01T10:00:00Z",
                    "updated_at": "2026-11-01T10:00:00Z",
                }
            ]
        }
    )

    name: str
    reference: str
    stores: list[str]
    labels: dict[str, str]
    hosts: list[str]
    clear_text_on_loopback: bool
    problem: str | None = Field(description="Why it cannot be read now; null: it can.")
    created_at: datetime
    updated_at: datetime
