"""Keys of replicas over HTTP."""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, StringConstraints

from app.kit.model import Model
from app.kit.values import Text
from spark.formats.csn import RID_MAX, RID_MIN

KEY: Final = "9a1f0c3be54d7726b8f0a4419d03c5e27c6ad8b1502f49e1873360be2fd4c0a7"
_KEY_TEXT: Final = "Ed25519 public key, 64 hexadecimal digits; messages name it by its first 16."
PublicKey = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
Rid = Annotated[int, Field(ge=RID_MIN, le=RID_MAX)]
_KNOWN: Final[Any] = {"rid": 2, "key": KEY}


class ReplicaKeyRead(Model):
    """A replica id, and the key that its changes are believed by."""

    model_config = ConfigDict(json_schema_extra={"examples": [_KNOWN]})

    rid: int
    key: str = Field(description=_KEY_TEXT)


class ReplicaKeysRead(Model):
    """The key of a replica, and those that it knows of others."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"own": _KNOWN | {"rid": 1}, "known": [_KNOWN]}]}
    )

    own: ReplicaKeyRead
    known: list[ReplicaKeyRead] = Field(description="Learned when first heard of, or pinned; by RID.")


class ReplicaKeyPin(Model):
    """Says which key another replica id has: a peer that shows, or knows, another one is refused."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [_KNOWN | {"reason": "read at west's service"}]}
    )

    rid: Rid
    key: PublicKey = Field(description=_KEY_TEXT)
    instead_of: PublicKey | None = Field(
        default=None, description="The key that is known, where it is the wrong one; what it has signed goes."
    )
    reason: Text = Field(min_length=1, max_length=500)


class ReplicaKeyForget(Model):
    """Forgets the key of another replica id; the next one that is heard of is learned."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "west was lost and is made anew"}]}
    )

    reason: Text = Field(min_length=1, max_length=500)
