"""The head of the chain, signed: what an export ends with, and what is worth keeping elsewhere."""

import base64
from collections.abc import Mapping
from typing import Any

from lethe_client.audit_chain import HEAD_FORMAT, Link, head_bytes, instant_text
from lethe_client.certificates import ALGORITHM

from app.db import Database
from app.erase.certificates.rows import SigningKey
from app.erase.certificates.signing import Signer, register, signer_of
from app.settings import Settings


def signed_head(
    begin: Link, head: Link, *, settings: Settings, database: Database, instance_id: str
) -> dict[str, Any]:
    """The head in an envelope, by the key of this instance, which is made known first.

    Raises: SigningKeyUnusable.
    """
    signer = signer_of(settings.data_dir)
    with database.reading() as db:
        now = database.now(db)
        is_known = db.get(SigningKey, signer.key_id) is not None
    if not is_known:
        with database.transaction() as db:
            register(db, signer, instance_id=instance_id, now=now)
    said = {
        "format": HEAD_FORMAT,
        "seq": head.seq,
        "hash": head.hash,
        "anchor_seq": begin.seq,
        "anchor_hash": begin.hash,
        "at": instant_text(now),
        "instance": instance_id,
    }
    return {"head": said, "signature": _signature(signer, said)}


def _signature(signer: Signer, head: Mapping[str, Any]) -> dict[str, str]:
    return {
        "algorithm": ALGORITHM,
        "key_id": signer.key_id,
        "public_key": base64.b64encode(signer.public_key).decode(),
        "value": base64.b64encode(signer.private.sign(head_bytes(head))).decode(),
    }
