"""A secret that a command of the operator prints: one that the settings name, and no other.

Rules:
- the settings say program and arguments (LETHE_EXEC_SECRETS); who registers a secret names an entry of them;
- no shell, nothing of our environment, no file of ours but its output; it runs in a process group of its own;
- the group is killed once the command has ended or its time is over, and before it is waited for: what it
  started does not live on, unless it left its group by itself;
- its output is bounded, and is never shown; of its errors only the exit code is.
"""

import contextlib
import os
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
PIECE_BYTES: Final = 65_536


def check_program(argv: Sequence[str]) -> None:
    """Refuse what cannot be run, or what others than the operator can change. Raises: ValueError."""
    program = Path(argv[0]) if argv else Path()
    if not program.is_absolute():
        raise ValueError("the program is named by its absolute path in LETHE_EXEC_SECRETS")
    try:
        found = program.stat()
    except OSError as error:
        raise ValueError(f"{program}: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode) or not os.access(program, os.X_OK):
        raise ValueError(f"{program} is no program that may be run")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or found.st_uid not in (0, os.geteuid()):
        raise ValueError(
            f"{program} can be changed by others: it must be root's or the service's own (chmod go-w)"
        )


def output_of(argv: Sequence[str], *, timeout_s: float, max_bytes: int) -> bytes:
    """What a command prints.

    Raises: ValueError: it may not be run, fails, says too much, or takes too long.
    """
    check_program(argv)
    deadline_s = time.monotonic() + timeout_s
    try:
        process = subprocess.Popen(  # noqa: S603 -- of the operator's own settings, without a shell
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise ValueError(f"{argv[0]}: {error.strerror}") from error
    try:
        found = _read(process, deadline_s=deadline_s, max_bytes=max_bytes)
    finally:
        # Not waited for yet: its number is still its own, and so is its group's.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        assert process.stdout is not None
        process.stdout.close()
    if found is None:
        raise ValueError(f"the command took longer than {timeout_s:g} s, and was killed")
    if len(found) > max_bytes:
        raise ValueError(f"the command printed more than {max_bytes} bytes")
    if code != 0:
        raise ValueError(f"the command ended with {code}")
    return found


def _read(process: "subprocess.Popen[bytes]", *, deadline_s: float, max_bytes: int) -> bytes | None:
    """What it prints until it ends; None: its time is over. Whoever it leaves behind is not waited for."""
    assert process.stdout is not None
    out = process.stdout.fileno()
    os.set_blocking(out, False)
    found = bytearray()
    ended = os.pidfd_open(process.pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            selector.register(ended, selectors.EVENT_READ)
            while True:
                ready = {key.fd for key, _ in selector.select(max(0.0, deadline_s - time.monotonic()))}
                if out in ready and not _take(out, found, max_bytes):
                    selector.unregister(out)
                if len(found) > max_bytes:
                    return bytes(found)
                if ended in ready:
                    _take(out, found, max_bytes)
                    return bytes(found)
                if time.monotonic() >= deadline_s:
                    return None
    finally:
        os.close(ended)


def _take(out: int, found: bytearray, max_bytes: int) -> bool:
    """Take what is there; False at the end of it."""
    while len(found) <= max_bytes:
        try:
            piece = os.read(out, PIECE_BYTES)
        except BlockingIOError:
            return True
        if not piece:
            return False
        found += piece
    return True
