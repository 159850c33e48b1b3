"""Environments under a real service: made, erased, killed in the middle, and read by an independent model."""

from __future__ import annotations

import os
from pathlib import Path

from lethe_client import CycleRequest, Lethe

from tests.oracles.je_liveness_reader import read_environment
from tests.oracles.je_liveness_recovery import as_the_user_sees, recover

AT_ONCE = CycleRequest(min_file_age="PT0S", duration="PT0S")
Record = tuple[str, bytes, bytes]


def live_records(directory: Path) -> set[Record]:
    """What a JE process would find, by the naive model."""
    log = read_environment(directory)
    return as_the_user_sees(log, recover(log).records)


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.jdb"))}


def add_environment(client: Lethe, name: str, directory: Path) -> str:
    client.stores.create(name, str(directory), kind="JE")
    return name


def busy_s(pid: int) -> float:
    """Seconds of processor time that a process and its children have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(each) for each in fields[11:15]) / ticks


def children_of(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
