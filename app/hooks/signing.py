"""Signatures of deliveries, as Standard Webhooks has them: HMAC-SHA256 over id, time and body.

Rules:
- a secret that was made here lies in the metadata database and is shown once; a named one is read when used;
- until a rotation's overlap ends, both secrets sign, and a receiver needs to know one of them;
- a named secret is `whsec_` and base64 of 24 to 64 bytes: a password that was named by mistake signs nothing.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sqlmodel import Session
from standardwebhooks.webhooks import Webhook as Signer

from app.outbox.rows import Webhook
from app.outgoing.hosts import place_of_url
from app.secrets.errors import SecretUnavailable
from app.secrets.models import SCHEME
from app.secrets.reading import read_reference
from app.secrets.rows import Secret
from app.settings import Settings
from spark.targets.hosts import may_connect

KEY_PREFIX: Final = "whsec_"
KEY_BYTES: Final = 32
KEY_BYTES_MIN: Final = 24
KEY_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Key:
    """A key for one use; where it was named, the hosts that it may be used for."""

    value: str = field(repr=False)
    hosts: tuple[str, ...]


def new_key() -> str:
    """A signing secret."""
    return KEY_PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def keys_of(db: Session, hook: Webhook, settings: Settings, *, now: datetime) -> list[Key]:
    """The keys that sign now, the current one first.

    Raises: SecretUnavailable: the current one.
    """
    keys = [_key(db, hook.secret, hook.own_key, settings)]
    if hook.former_until is not None and now < hook.former_until:
        with suppress(SecretUnavailable):  # the current one is enough
            former = _key(db, hook.former_secret, hook.former_key, settings)
            if not former.hosts or may_connect([former.hosts], *place_of_url(hook.url)):
                keys.append(former)  # not where the webhook was turned to another host since
    return keys


def _key(db: Session, reference: str | None, own: str | None, settings: Settings) -> Key:
    if reference is None:
        assert own is not None, "a webhook has a secret, named or its own"
        return Key(own, ())
    name = reference.removeprefix(SCHEME)
    row = db.get(Secret, name)
    if row is None:
        raise SecretUnavailable(f"{reference} is not registered (any more): lethe secret add {name}")
    value = read_reference(row.reference, name=name, settings=settings)
    if not _is_key(value):
        wanted = f"{KEY_PREFIX} and base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} bytes"
        raise SecretUnavailable(f"the secret {name} is no signing secret: that is {wanted}")
    return Key(value, tuple(row.hosts))


def _is_key(value: str) -> bool:
    if not value.startswith(KEY_PREFIX):
        return False
    try:
        decoded = base64.b64decode(value.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return KEY_BYTES_MIN <= len(decoded) <= KEY_BYTES_MAX


def headers_of(keys: Sequence[Key], event_id: str, body: str, *, now: datetime) -> dict[str, str]:
    """The headers that a receiver checks a delivery by."""
    signatures = [Signer(key.value).sign(event_id, now, body) for key in keys]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
