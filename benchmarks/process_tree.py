"""Memory and processor time of a process and all that it has started, as the kernel tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KIB = 1024
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(pid: int | None = None) -> Iterator[int]:
    """The process and its children's children, those that live now."""
    pid = pid or os.getpid()
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from tree(int(child))


def tree_memory_mib(pid: int | None = None) -> float:
    """Proportional memory: pages that several processes share count once."""
    total_kib = 0
    for each in tree(pid):
        # A process may end while it is looked at.
        with suppress(OSError):
            for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kib += int(line.split()[1])
    return total_kib / KIB


def tree_cpu_s(pid: int) -> float:
    """Processor time of those that live, and of children that they have seen end."""
    ticks = 0
    for each in tree(pid):
        with suppress(OSError):
            # The name, in brackets, may hold anything.
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / TICKS_PER_S
