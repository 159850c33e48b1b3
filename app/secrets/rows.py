"""Secrets as a table: where a password or token lies, never its value."""

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, StringConstraints
from sqlmodel import Field, SQLModel

from app.auth.rows import StoreName
from app.db import JSON_TYPE, UtcDateTime
from app.kit.values import Text
from spark.targets.hosts import parse_entry

REFERENCE_MAX_CHARS = 1010
_ENV = re.compile(r"env:LETHE_SECRET_[A-Za-z0-9_]{1,110}")
_FILE = re.compile(r"file:[^\x00-\x1f\x7f]{1,1000}")
_EXEC = re.compile(r"exec:[a-z0-9][a-z0-9._-]{0,99}")
_VAULT = re.compile(r"vault:[A-Za-z0-9_-]{1,100}(/[A-Za-z0-9_.-]{1,200}){1,20}#[A-Za-z0-9_.-]{1,100}")
_DOTS = re.compile(r"/\.{1,2}(/|#)")


def check_form(reference: str) -> str:
    """A reference to a place for secrets. Raises: ValueError."""
    if _ENV.fullmatch(reference):
        return reference
    if _FILE.fullmatch(reference) and ".." not in reference.removeprefix("file:").split("/"):
        return reference
    if _EXEC.fullmatch(reference) or (_VAULT.fullmatch(reference) and not _DOTS.search(reference)):
        return reference
    raise ValueError(
        "env:LETHE_SECRET_NAME, file:PATH below LETHE_SECRETS_DIR, exec:NAME of LETHE_EXEC_SECRETS, or"
        " vault:MOUNT/PATH#FIELD"
    )


def _host(text: str) -> str:
    parse_entry(text)
    return text


Place = Annotated[
    str, StringConstraints(min_length=1, max_length=REFERENCE_MAX_CHARS), AfterValidator(check_form)
]
HostText = Annotated[str, StringConstraints(min_length=1, max_length=260), AfterValidator(_host)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
REFERENCE_TEXT = (
    "`env:LETHE_SECRET_NAME`, `file:PATH` below LETHE_SECRETS_DIR, `exec:NAME` of a command in "
    "LETHE_EXEC_SECRETS, or `vault:MOUNT/PATH#FIELD` of the Vault in LETHE_VAULT__URL; read when it is used."
)
HOSTS_TEXT = (
    "Who it may be shown to: `db.example`, `db.example:5432`, `10.0.0.5`, `[::1]:5432`, `10.0.0.0/8` (also "
    "for names that lead into it), a socket's directory, or `socket` for the driver's own. Judged by the "
    "address at each connection."
)
LABELS_TEXT = "Stores that have all of these labels may use it too."
LOOPBACK_TEXT = "An admin allows that it goes in clear text or as MD5 on this machine's own loopback."


class SecretBase(SQLModel):
    """What an admin says of a secret."""

    reference: Place = Field(max_length=REFERENCE_MAX_CHARS, description=REFERENCE_TEXT)
    stores: list[StoreName] = Field(
        default_factory=list, sa_type=JSON_TYPE, max_length=1_000, description="Stores that may use it."
    )
    labels: dict[LabelName, Text] = Field(default_factory=dict, sa_type=JSON_TYPE, description=LABELS_TEXT)
    hosts: list[HostText] = Field(sa_type=JSON_TYPE, min_length=1, max_length=100, description=HOSTS_TEXT)
    clear_text_on_loopback: bool = Field(default=False, description=LOOPBACK_TEXT)


class Secret(SecretBase, table=True):
    """A registered secret."""

    __tablename__ = "secrets"

    name: str = Field(primary_key=True, max_length=100)
    version: int = Field(default=1)
    created_at: datetime = Field(sa_type=UtcDateTime)
    updated_at: datetime = Field(sa_type=UtcDateTime)
