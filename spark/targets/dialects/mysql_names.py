"""How a session of MariaDB or MySQL says whose it is: by the names of the user-level locks that it holds.

There is no application_name, and what takes its place (connection attributes, thread lists) is off by default
or needs rights over the whole server. `GET_LOCK` needs none, lives exactly as long as its session, is seen by
all, and `IS_USED_LOCK` names the connection that holds it now: a connection id that was given again after a
restart of the server holds no such lock.

Of each job there are 64 slots. A session of the job holds in its slot:
- `slot`: nobody else takes it;
- `b<n>` for every bit n of its token;
- `here`, taken last: who sees it can trust the bits;
- `work`, from before its writing transaction begins until after it has ended.

Invariants:
- A session has its name before its first other statement, and loses it only with its life.
- Whoever acts on a connection id has just read it on the connection that acts: a server that was restarted in
  between would have ended that one as well.
"""

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark.targets.errors import TargetLockTimeout

SLOTS = 64
TOKEN_BITS = 63
NAME_BYTES = 64
_HERE, _WORK, _SLOT = "here", "work", "slot"

# Runs one statement with `:name` parameters; its only row.
Ask = Callable[[str, dict[str, Any]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class NamedSession:
    """A session of a job; `in_transaction`: it has begun to write and not ended."""

    connection_id: int
    slot: int
    token: int
    in_transaction: bool


class SessionNames:
    """The locks of one session."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._job: tuple[str, int] | None = None
        self._slot: int | None = None
        self.own = lock_name("session", uuid.uuid4().hex)
        """Held by this very session and no other: the proof that a connection id is still ours."""
        _get(ask, [self.own])

    def take(self, application_name: str) -> None:
        """Wear the name of `<job>:<unit>:<token>`; other names say nothing that anybody asks for.

        Raises: TargetLockTimeout: all slots of the job are taken.
        """
        job = parse_application_name(application_name)
        if job == self._job:
            return
        self.drop()
        if job is None:
            return
        job_id, token = job
        self._slot = self._free_slot(job_id)
        self._job = job
        bits = [_name(job_id, self._slot, f"b{bit}") for bit in range(TOKEN_BITS) if token >> bit & 1]
        _get(self._ask, [*bits, _name(job_id, self._slot, _HERE)])

    def drop(self) -> None:
        """Lay the name down, before another one."""
        if self._job is None or self._slot is None:
            return
        job_id, token = self._job
        bits = [_name(job_id, self._slot, f"b{bit}") for bit in range(TOKEN_BITS) if token >> bit & 1]
        last = _name(job_id, self._slot, _SLOT)
        _release(self._ask, [_name(job_id, self._slot, _HERE), *bits, last])
        self._job = self._slot = None

    def begin_work(self) -> None:
        """Before a writing transaction begins."""
        if self._job is not None and self._slot is not None:
            _get(self._ask, [_name(self._job[0], self._slot, _WORK)])

    def end_work(self) -> None:
        """After it has ended."""
        if self._job is not None and self._slot is not None:
            _release(self._ask, [_name(self._job[0], self._slot, _WORK)])

    def _free_slot(self, job_id: str) -> int:
        names = [_name(job_id, slot, _SLOT) for slot in range(SLOTS)]
        for slot, holder in enumerate(_used(self._ask, names)):
            if holder is None and _try(self._ask, names[slot]):
                return slot
        raise TargetLockTimeout(f"{SLOTS} sessions of {job_id} are open at the target")


def parse_application_name(name: str) -> tuple[str, int] | None:
    """Job and token of `<job>:<unit>:<token>`; None: another kind of name."""
    job_id, _, rest = name.partition(":")
    token = rest.rpartition(":")[2]
    if not job_id or ":" not in rest or not token.isdecimal() or int(token) >> TOKEN_BITS:
        return None
    return job_id, int(token)


def named_sessions(ask: Ask, job_id: str) -> list[NamedSession]:
    """Every living session of a job, the one that asks included."""
    here = _used(ask, [_name(job_id, slot, _HERE) for slot in range(SLOTS)])
    found = [_read_slot(ask, job_id, slot) for slot, holder in enumerate(here) if holder is not None]
    return [session for session in found if session is not None]


def _read_slot(ask: Ask, job_id: str, slot: int) -> NamedSession | None:
    """Who is in a slot. A session that dies meanwhile may be read with too small a token, or not at all."""
    bits = [_name(job_id, slot, f"b{bit}") for bit in range(TOKEN_BITS)]
    first, work, *held = _used(ask, [_name(job_id, slot, tag) for tag in (_HERE, _WORK)] + bits)
    if first is None:
        return None
    token = sum(1 << bit for bit, holder in enumerate(held) if holder == first)
    return NamedSession(first, slot, token, in_transaction=work == first)


def lock_name(*parts: str) -> str:
    """A name that is short enough, equal only for equal parts, and the same in any case of letters."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"lethe:{digest[:40]}"


def _name(job_id: str, slot: int, tag: str) -> str:
    name = f"{lock_name('job', job_id)}:{slot}:{tag}"
    assert len(name) <= NAME_BYTES, "the server refuses longer names"
    return name


def _numbered(function: str, names: list[str]) -> tuple[str, dict[str, Any]]:
    calls = ", ".join(function.format(f":n{index}") for index in range(len(names)))
    return f"select {calls}", {f"n{index}": name for index, name in enumerate(names)}


def _get(ask: Ask, names: list[str]) -> None:
    taken = ask(*_numbered("get_lock({}, 0)", names))
    if any(answer != 1 for answer in taken):
        raise TargetLockTimeout("the name of a session is taken by another one")


def _try(ask: Ask, name: str) -> bool:
    return bool(ask(*_numbered("get_lock({}, 0)", [name]))[0] == 1)


def _release(ask: Ask, names: list[str]) -> None:
    ask(*_numbered("release_lock({})", names))


def _used(ask: Ask, names: list[str]) -> tuple[int | None, ...]:
    return ask(*_numbered("is_used_lock({})", names))
