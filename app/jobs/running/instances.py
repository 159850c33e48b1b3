"""The identity of a process: an id in its data directory, held under an exclusive lock for its life."""

import fcntl
import os
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import structlog
from sqlmodel import Session

from app.jobs.rows import Instance
from app.kit.ids import new_id

ID_FILE = "instance.id"
SILENT = timedelta(seconds=45)
"""Half as long again as there is between two heartbeats."""
TOLD_EVERY = timedelta(minutes=1)
ENDED = ("Z", "X")
"""States of a process that has ended, as /proc has them."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
logger = structlog.get_logger("lethe.instances")


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


class Namesake:
    """Whether another process works under our id, because a data directory was copied.

    The lock is of one file: it tells nothing of a copy. A process of before that died without a word has left
    its row: it is gone if it was of this machine, or once it has been silent for longer than any is.
    """

    def __init__(self, instance_id: str) -> None:
        self._id = instance_id
        self._heard: datetime | None = None
        self._last, self._last_seen = _NEVER, _NEVER
        self._tell_at: datetime | None = None

    def may_live(self, db: Session, *, now: datetime) -> bool:
        """Whether it was heard of lately; says so once a minute."""
        row = db.get(Instance, self._id)
        if row is None or row.stopped_at is not None or _was_here(row):
            return False
        if row.heartbeat_at != self._last:
            self._last, self._last_seen = row.heartbeat_at, now
        if max(now - row.heartbeat_at, now - self._last_seen) > SILENT:  # its clock may have been ahead
            return False
        self._tell(row, now)
        return True

    def _tell(self, row: Instance, now: datetime) -> None:
        lives = self._heard is not None and row.heartbeat_at > self._heard
        self._heard = self._heard or row.heartbeat_at
        if self._tell_at is not None and now < self._tell_at:
            return
        self._tell_at = now + TOLD_EVERY
        tell = logger.error if lives else logger.warning
        tell(
            "another process works under the id of this one, or did until lately: this one takes no work"
            " until that has ended. Was the data directory copied? Then remove instance.id from the copy",
            instance=self._id,
            hostname=row.hostname,
            pid=row.pid,
            heard=row.heartbeat_at.isoformat(),
        )


def _was_here(row: Instance) -> bool:
    """Whether a process was of this machine and has ended; one of our own number is ours."""
    return row.hostname == _hostname() and (row.pid == os.getpid() or not _is_alive(row.pid))


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ENDED


def _hostname() -> str:
    return socket.gethostname()[:255]


def register_instance(
    db: Session, instance_id: str, *, role: str, version: str, labels: list[str], now: datetime
) -> None:
    """Note that the process has started."""
    row = db.get(Instance, instance_id)
    fields: dict[str, Any] = {
        "hostname": _hostname(),
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
