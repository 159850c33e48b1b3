"""The identity of a process: an id in its data directory, held under an exclusive lock for its life."""

import fcntl
import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlmodel import Session

from app.jobs.rows import Instance
from app.kit.ids import new_id

ID_FILE = "instance.id"


class InstanceBusy(Exception):
    """Another process works in this data directory."""


class InstanceLock:
    """The id of a data directory, and the lock that proves that it is ours.

    The lock is freed by the kernel when the process dies, however it dies.
    """

    def __init__(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file = os.open(data_dir / ID_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise InstanceBusy(f"another process works in {data_dir}") from error
        self.id = os.read(self._file, 100).decode().strip() or self._write()

    def _write(self) -> str:
        instance_id = new_id("ins")
        os.pwrite(self._file, f"{instance_id}\n".encode(), 0)
        os.fsync(self._file)
        return instance_id

    def release(self) -> None:
        """Give the directory back."""
        os.close(self._file)


def register_instance(
    db: Session, instance_id: str, *, role: str, version: str, labels: list[str], now: datetime
) -> None:
    """Note that the process has started."""
    row = db.get(Instance, instance_id)
    fields: dict[str, Any] = {
        "hostname": socket.gethostname()[:255],
        "pid": os.getpid(),
        "role": role,
        "version": version,
        "labels": labels,
        "started_at": now,
        "heartbeat_at": now,
        "stopped_at": None,
    }
    if row is None:
        row = Instance(id=instance_id, **fields)
    else:
        row.sqlmodel_update(fields)
    db.add(row)


def heartbeat(db: Session, instance_id: str, *, now: datetime, stopped: bool = False) -> None:
    """Note that the process lives, or that it ends."""
    row = db.get(Instance, instance_id)
    if row is not None:
        row.heartbeat_at = now
        row.stopped_at = now if stopped else None
        db.add(row)
