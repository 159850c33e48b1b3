"""Secrets: where a password or token lies, and who may use it for which hosts. Never its value."""

import re
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, model_validator
from sqlmodel import Field, SQLModel

from app.auth.models import StoreName
from app.db import JSON_TYPE, UtcDateTime
from app.kit.values import Text
from spark.targets.hosts import parse_entry

SCHEME = "secret:"
REFERENCE_MAX_CHARS = 1010
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,99}"
_ENV = re.compile(r"env:LETHE_SECRET_[A-Za-z0-9_]{1,110}")
_FILE = re.compile(r"file:[^\x00-\x1f\x7f]{1,1000}")
_FORMER = re.compile(r"(env|file):.*", re.DOTALL)
_EXAMPLE: dict[str, Any] = {
    "name": "shop",
    "reference": "file:shop.password",
    "stores": ["shop"],
    "hosts": ["db.example:5432"],
}


def check_form(reference: str) -> str:
    """A reference to a place for secrets. Raises: ValueError."""
    if _ENV.fullmatch(reference):
        return reference
    if _FILE.fullmatch(reference) and ".." not in reference.removeprefix("file:").split("/"):
        return reference
    raise ValueError("env:LETHE_SECRET_NAME, or file:PATH below LETHE_SECRETS_DIR")


def _named(reference: str) -> str:
    if re.fullmatch(SCHEME + NAME_PATTERN, reference):
        return reference
    if _FORMER.fullmatch(reference):
        raise ValueError(
            "secret:NAME; an admin registers it: lethe secret add NAME --reference env:LETHE_SECRET_NAME"
            " (or file:PATH below LETHE_SECRETS_DIR) --store STORE --host HOST"
        )
    raise ValueError("secret:NAME, the name of a registered secret")


def _host(text: str) -> str:
    parse_entry(text)
    return text


SecretName = Annotated[str, StringConstraints(pattern=rf"^{NAME_PATTERN}$")]
SecretReference = Annotated[str, StringConstraints(max_length=REFERENCE_MAX_CHARS), AfterValidator(_named)]
"""How a store or an agreement names its secret."""
Place = Annotated[
    str, StringConstraints(min_length=1, max_length=REFERENCE_MAX_CHARS), AfterValidator(check_form)
]
HostText = Annotated[str, StringConstraints(min_length=1, max_length=260), AfterValidator(_host)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
_REFERENCE = "`env:LETHE_SECRET_NAME`, or `file:PATH` below LETHE_SECRETS_DIR; read when it is used."
_HOSTS = (
    "Who it may be shown to: `db.example`, `db.example:5432`, `10.0.0.5`, `[::1]:5432`, `10.0.0.0/8` (also "
    "for names that lead into it), a socket's directory, or `socket` for the driver's own. Judged by the "
    "address at each connection."
)
_LABELS = "Stores that have all of these labels may use it too."
_LOOPBACK = "An admin's word that it may be told in clear text or as MD5 on this machine's own loopback."


class SecretBase(SQLModel):
    """What an admin says of a secret."""

    reference: Place = Field(max_length=REFERENCE_MAX_CHARS, description=_REFERENCE)
    stores: list[StoreName] = Field(
        default_factory=list, sa_type=JSON_TYPE, max_length=1_000, description="Stores that may use it."
    )
    labels: dict[LabelName, Text] = Field(default_factory=dict, sa_type=JSON_TYPE, description=_LABELS)
    hosts: list[HostText] = Field(sa_type=JSON_TYPE, min_length=1, max_length=100, description=_HOSTS)
    clear_text_on_loopback: bool = Field(default=False, description=_LOOPBACK)


class Secret(SecretBase, table=True):
    """A registered secret."""

    __tablename__ = "secrets"

    name: str = Field(primary_key=True, max_length=100)
    version: int = Field(default=1)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)


class SecretCreate(SecretBase):
    """A new secret: its place, never its value."""

    model_config = {"extra": "forbid", "json_schema_extra": {"examples": [_EXAMPLE]}}

    name: SecretName = Field(description="Chosen by the client; stores name it `secret:NAME`.")

    @model_validator(mode="after")
    def _somebody(self) -> Self:
        if not self.stores and not self.labels:
            raise ValueError("name stores or labels: nobody else may use it")
        return self


class SecretPatch(BaseModel):
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


class SecretRead(BaseModel):
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
