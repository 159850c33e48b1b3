"""Who was refused: counted by source, written to the audit now and then, and bounded in both.

Rules:
- a row tells of one source and the time since the last writing; no secret, and no path that a stranger chose;
- of very many sources the rest is one row, and so is what a day's budget leaves over: nobody fills a disk;
- what a process that is killed has not written is lost.
"""

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import Final

from app.auth.actions import Action
from app.auth.rows import AuditEvent, audited
from app.clock import Clock
from app.db import Database
from app.kit.shared_rates import SharedTable, rates_of

SOURCES_MAX: Final = 32
CODES_MAX: Final = 8
OPERATIONS_MAX: Final = 3
ROWS_BURST: Final = 500
ROWS_PER_DAY: Final = 2_000
DAY_S: Final = 86_400
OTHERS: Final = "other addresses"
NOBODY: Final = "unknown"
NETWORK_BITS: Final = 64
"""Whoever has one address of IPv6 has so many."""


@lru_cache(maxsize=4_096)
def source_of(address: str) -> str:
    """What counts as one client: an address, of IPv6 its network."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return NOBODY  # what a proxy hands on unread: a text that a stranger chose is no place to count by
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), NETWORK_BITS), strict=False))


@dataclass(slots=True)
class Refused:
    """What one source was refused; `sources` is more than 1 where several are one row."""

    source: str
    token_id: str | None
    token_name: str | None
    first_at: datetime
    last_at: datetime
    count: int = 0
    sources: int = 1
    codes: Counter[str] = field(default_factory=Counter)
    operations: list[str] = field(default_factory=list)

    def add(self, code: str, operation: str | None) -> None:
        """One more."""
        self.count += 1
        if code in self.codes or len(self.codes) < CODES_MAX:
            self.codes[code] += 1
        is_new = operation is not None and operation not in self.operations
        if operation is not None and is_new and len(self.operations) < OPERATIONS_MAX:
            self.operations.append(operation)

    def merge(self, other: "Refused") -> None:
        """Count what another source was refused here."""
        self.count += other.count
        self.sources += other.sources
        self.first_at = min(self.first_at, other.first_at)
        self.last_at = max(self.last_at, other.last_at)
        for code, count in other.codes.items():
            if code in self.codes or len(self.codes) < CODES_MAX:
                self.codes[code] += count

    def row(self) -> AuditEvent:
        """The audit row."""
        detail = {
            "count": self.count,
            "codes": dict(self.codes),
            "operations": self.operations,
            "sources": self.sources,
            "first_at": self.first_at.isoformat(),
            "last_at": self.last_at.isoformat(),
        }
        subject, actor = ("address", self.source[:80]), self.token_name or NOBODY
        return audited(
            Action.LOGIN_REFUSE, subject, at=self.last_at, actor=actor, token_id=self.token_id, detail=detail
        )


class Refusals:
    """Of one process. Counting and writing may be done by several threads.

    Args:
        table: of the processes that share the day's budget.
    """

    def __init__(self, clock: Clock, *, table: SharedTable | None = None) -> None:
        self._clock = clock
        self._guard = Lock()
        self._found: OrderedDict[tuple[str, str | None], Refused] = OrderedDict()
        self._others: Refused | None = None
        self._budget = rates_of(table, "refusals", per_s=ROWS_PER_DAY / DAY_S, burst=ROWS_BURST)

    def note(
        self, address: str, *, token_id: str | None, token_name: str | None, code: str, operation: str | None
    ) -> None:
        """Count one."""
        now, source = self._clock.now(), source_of(address)
        with self._guard:
            found = self._found.get((source, token_id))
            if found is None and len(self._found) < SOURCES_MAX:
                found = self._found[(source, token_id)] = Refused(source, token_id, token_name, now, now)
            if found is None:
                found = Refused(OTHERS, None, None, now, now)
                found.add(code, operation)
                self._merge(found)
                return
            found.last_at = max(found.last_at, now)
            found.add(code, operation)

    def write(self, database: Database) -> int:
        """Write what was counted since the last time; returns the rows.

        Raises: MetadataBusy, MetadataUnavailable: it is written the next time.
        """
        found = self._take()
        if not found:
            return 0
        is_written = False
        try:
            with database.transaction(is_news=False) as db:
                for refused in found:
                    db.add(refused.row())
            is_written = True
        finally:
            with self._guard:
                for refused in () if is_written else found:
                    self._merge(refused)
        return len(found)

    def _take(self) -> Sequence[Refused]:
        with self._guard:
            taken = []
            for refused in self._found.values():
                if self._is_affordable():
                    taken.append(refused)
                else:
                    self._merge(refused)
            self._found.clear()
            if self._others is not None and self._is_affordable():
                taken.append(self._others)
                self._others = None
        return taken

    def _is_affordable(self) -> bool:
        if self._budget.wait_s("rows") > 0:
            return False
        self._budget.take("rows")
        return True

    def _merge(self, refused: Refused) -> None:
        if self._others is None:
            self._others = Refused(OTHERS, None, None, refused.first_at, refused.last_at, sources=0)
        self._others.merge(refused)
