"""Public keys of signatures, and certificates as they were signed."""

from datetime import datetime

from sqlalchemy import LargeBinary
from sqlmodel import Field, SQLModel
from sqlmodel._compat import SQLModelConfig

from app.db import UtcDateTime


class SigningKeyBase(SQLModel):
    """A public key that certificates are signed with."""

    public_key: str = Field(max_length=60, description="32 bytes in base64.")
    algorithm: str = Field(default="Ed25519", max_length=20)
    instance: str = Field(max_length=40, description="Whose data directory holds the private key.")
    created_at: datetime = Field(sa_type=UtcDateTime)
    retired_at: datetime | None = Field(default=None, sa_type=UtcDateTime)


class SigningKey(SigningKeyBase, table=True):
    """One row for each key there ever was; `id` is its fingerprint."""

    __tablename__ = "signing_keys"

    id: str = Field(primary_key=True, max_length=80)


class SigningKeyRead(SigningKeyBase):
    """A key as clients see it."""

    model_config = SQLModelConfig(
        json_schema_extra={
            "examples": [
                {
                    "id": "ed25519:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c",
                    "public_key": "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=",
                    "algorithm": "Ed25519",
                    "instance": "ins_01m7w9fkm3fr0wmcztj953rhw9",
                    "created_at": "2026-11-20T10:54:39.613933Z",
                    "retired_at": None,
                }
            ]
        }
    )

    id: str = Field(description="Its fingerprint: `ed25519:` and the SHA-256 of the key in hex.")


class ErasureCertificate(SQLModel, table=True):
    """A certificate as it was signed: the same bytes for ever, whatever becomes of the cycle's own rows."""

    __tablename__ = "erasure_certificates"

    cycle_id: str = Field(primary_key=True, max_length=40)
    store: str = Field(max_length=63, index=True)
    issued_at: datetime = Field(sa_type=UtcDateTime, index=True)
    key_id: str = Field(max_length=80)
    sha256: str = Field(max_length=64, description="Of the document.")
    document: bytes = Field(sa_type=LargeBinary, description="zstd of the JSON.")
