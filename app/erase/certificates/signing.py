"""The key that signs certificates: private in the data directory, public in the metadata.

Rules:
- a private key never leaves its file (0600); there is one in use for each data directory;
- a public key is in the metadata, committed, before anything signed with it is shown;
- a key that was replaced stays known: what it has signed holds for ever.
"""

import base64
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from lethe_client.certificates import ALGORITHM, key_id_of, signed_bytes
from sqlalchemy import update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from app.erase.certificates.rows import SigningKey
from app.erase.errors import SigningKeyUnusable

FOLDER = "signing"
KEY_FILE = "key"
LOCK_FILE = "lock"
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Signer:
    """The key of one data directory."""

    private: Ed25519PrivateKey

    @property
    def public_key(self) -> bytes:
        """32 bytes."""
        return self.private.public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        """Its fingerprint."""
        return key_id_of(self.public_key)

    def envelope(self, certificate: dict[str, Any]) -> dict[str, Any]:
        """Sign: the whole document as it is handed out."""
        value = self.private.sign(signed_bytes(certificate))
        signature = {
            "algorithm": ALGORITHM,
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.public_key).decode(),
            "value": base64.b64encode(value).decode(),
        }
        return {"certificate": certificate, "signature": signature}


def signer_of(data_dir: Path) -> Signer:
    """The key of a data directory, made where there is none yet.

    Raises: SigningKeyUnusable.
    """
    with _locked(data_dir) as folder:
        return _read(folder / KEY_FILE) or _make(folder)


def register(db: Session, signer: Signer, *, instance_id: str, now: datetime) -> None:
    """Make a public key known; nothing where it is."""
    public_key = base64.b64encode(signer.public_key).decode()
    row = SigningKey(id=signer.key_id, public_key=public_key, instance=instance_id, created_at=now)
    insert = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    db.execute(insert(SigningKey).values(**row.model_dump()).on_conflict_do_nothing(index_elements=["id"]))


def rotate(data_dir: Path) -> tuple[Signer, Signer]:
    """Replace the key; returns the former one and the new one.

    Raises: SigningKeyUnusable.
    """
    with _locked(data_dir) as folder:
        former = _read(folder / KEY_FILE) or _make(folder)
        return former, _make(folder)


def retire(db: Session, signer: Signer, *, now: datetime) -> None:
    """Note that a key signs no more."""
    db.execute(
        update(SigningKey)
        .where(col(SigningKey.id) == signer.key_id, col(SigningKey.retired_at).is_(None))
        .values(retired_at=now)
        .execution_options(synchronize_session=False)
    )


@contextmanager
def _locked(data_dir: Path) -> Iterator[Path]:
    folder = data_dir / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SigningKeyUnusable(f"{folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(lock)


def _read(path: Path) -> Signer | None:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SigningKeyUnusable(f"{path}: {error.strerror}") from error
    if len(raw) != KEY_BYTES:
        raise SigningKeyUnusable(f"{path} is not a key of {KEY_BYTES} bytes; move it away to have a new one")
    return Signer(Ed25519PrivateKey.from_private_bytes(raw))


def _make(folder: Path) -> Signer:
    """A new key, whole on the disk before it has its name."""
    private = Ed25519PrivateKey.generate()
    new = folder / f"{KEY_FILE}.new"
    try:
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private.private_bytes_raw())
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / KEY_FILE)
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise SigningKeyUnusable(f"{folder}: {error.strerror}") from error
    return Signer(private)
