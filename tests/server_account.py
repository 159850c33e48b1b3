"""How servers of tests run: under an account of their own where root starts them, and not longer than it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
from collections.abc import Callable
from typing import Any

PR_SET_PDEATHSIG = 1


def server_account(*names: str) -> pwd.struct_passwd | None:
    """The first account of these that is there, to run a server by; None: the caller's own, who is not root.

    Raises: LookupError: the caller is root, and there is none.
    """
    if os.geteuid() != 0:
        return None
    for name in names:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise LookupError(f"running as root, and there is no account {' or '.join(names)}")


def identity_of(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """What subprocess is given to run by an account, in a folder that it may enter."""
    if account is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def die_with(parent: int, how: signal.Signals) -> Callable[[], None]:
    """What a child does before it runs: it asks for a signal when its parent dies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def set_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, int(how), 0, 0, 0)
        if os.getppid() != parent:  # died between fork and prctl
            os._exit(1)

    return set_death_signal
