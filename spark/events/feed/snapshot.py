"""PostgreSQL's snapshots of transactions, as SYNC events carry them.

A snapshot `xmin:xmax:xip,...` sees every transaction below xmax that is not among xip.
Source: slony-events-confirmations, 4.1.1; facts/slony, section 5.
"""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class TxidSnapshot:
    """Which transactions a SYNC sees."""

    xmin: int
    xmax: int
    in_progress: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what PostgreSQL writes.

        Raises: ValueError.
        """
        xmin, xmax, running = text.split(":")
        found = cls(int(xmin), int(xmax), tuple(sorted(int(item) for item in running.split(",") if item)))
        if not 0 < found.xmin <= found.xmax:
            raise ValueError(f"not a snapshot of transactions: {text[:80]!r}")
        return found

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.in_progress))}"

    def sees(self, txid: int) -> bool:
        """Whether a transaction had ended when the snapshot was taken."""
        return txid < self.xmax and txid not in self.in_progress

    def follows(self, before: "TxidSnapshot") -> bool:
        """Whether it sees all that an earlier one sees.

        SYNCs made without the lock of sl_event may stand in another order than their snapshots.
        """
        if self.xmax < before.xmax:
            return False
        return all(not before.sees(txid) for txid in self.in_progress)

    def ended_since(self, before: "TxidSnapshot") -> list[int]:
        """Transactions that ran at the earlier one, and had ended at this."""
        return [txid for txid in before.in_progress if self.sees(txid)]
