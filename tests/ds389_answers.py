"""Answers of real directory servers to the product's own searches: recorded, and given again.

Anew: `.venv/bin/python -m tests.ds389_answers` (as root, with 389-ds-base and faketime installed).
"""

from __future__ import annotations

import base64
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spark.replication.ds389.reading import read_replica
from spark.replication.ds389.records import Reading
from spark.targets.ldap.connection import Entry, LdapTarget, opened_directory
from tests.ds389_servers import PASSWORD, READER, SUFFIX, Server, servers

DATA = Path(__file__).parent / "data" / "ds389" / "answers.json.gz"


def target_of(server: Server) -> LdapTarget:
    return LdapTarget(server.url, READER, SUFFIX, PASSWORD, tells_loopback=True)


def read_server(server: Server) -> Reading:
    """By the product, over the network."""
    with opened_directory(target_of(server), connect_timeout_s=5) as directory:
        return read_replica(directory, SUFFIX, now=lambda: datetime.now(UTC))


class Recording:
    """A connection whose answers are kept."""

    def __init__(self, directory: Any) -> None:
        self.directory = directory
        self.kept: list[dict[str, Any]] = []

    def search(
        self, base: str, condition: str, attributes: Iterable[str], *, is_base: bool = False
    ) -> list[tuple[str, Entry]]:
        found = self.directory.search(base, condition, list(attributes), is_base=is_base)
        entries = [
            [dn, {k: [base64.b64encode(v).decode() for v in vs] for k, vs in e.items()}] for dn, e in found
        ]
        self.kept.append({"base": base, "filter": condition, "entries": entries})
        return found  # type: ignore[no-any-return]


class Recorded:
    """The same, without a server."""

    def __init__(self, kept: list[dict[str, Any]]) -> None:
        self.answers = {(one["base"], one["filter"]): one["entries"] for one in kept}

    def search(
        self, base: str, condition: str, attributes: Iterable[str], *, is_base: bool = False
    ) -> list[tuple[str, Entry]]:
        return [
            (dn, {name: [base64.b64decode(value) for value in values] for name, values in entry.items()})
            for dn, entry in self.answers[base, condition]
        ]


def record(server: Server) -> dict[str, Any]:
    with opened_directory(target_of(server), connect_timeout_s=5) as directory:
        recording = Recording(directory)
        reading = read_replica(recording, SUFFIX, now=lambda: datetime.now(UTC))
    return {"at": reading.at.isoformat(), "port": server.port, "answers": recording.kept}


def recorded(state: str) -> tuple[dict[str, Reading], dict[str, tuple[str, int]]]:
    """The readings of a recorded state by store, and the places of all stores of the recording."""
    document = json.loads(gzip.decompress(DATA.read_bytes()))
    readings = {}
    for name, one in document[state].items():
        at = datetime.fromisoformat(one["at"])
        readings[name] = read_replica(Recorded(one["answers"]), SUFFIX, now=lambda at=at: at)
    places = {name: ("127.0.0.1", one["port"]) for name, one in document["healthy"].items()}
    return readings, places


def main() -> int:
    """Record a healthy ring of three, and what becomes of it."""
    found: dict[str, Any] = {}

    def keep(state: str, asked: list[Server]) -> None:
        found[state] = {each.name: record(each) for each in asked}
        print(state, sorted(found[state]), file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="lethe-ds389-") as root, servers(Path(root), 3) as ring:
        s1, s2, s3 = ring
        write_everywhere(ring)
        keep("healthy", ring)
        s3.stop()
        s3.back_up(Path(root) / "kept")
        s1.write("while-away")
        wait_until(lambda: any(one.state == "red" for one in read_server(s1).agreements), "a red agreement")
        keep("stopped", [s1, s2])
        s3.start()
        s3.write("of-three")
        wait_until(lambda: {"of-three", "while-away"} <= s1.people() & s2.people() & s3.people(), "all level")
        for each in (s1, s2):
            each.modify(each.agreements[s3.name], nsds5ReplicaEnabled="off")
        s3.stop()
        s3.put_back(Path(root) / "kept")
        s3.start()
        keep("restored", ring)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_bytes(gzip.compress(json.dumps(found, indent=1).encode(), mtime=0))
    return 0


def write_everywhere(ring: list[Server]) -> None:
    """A person at each server, until each has all."""
    for each in ring:
        each.write(f"at-{each.name}")
    wanted = {f"at-{each.name}" for each in ring}
    wait_until(lambda: all(wanted <= each.people() for each in ring), "all level")


def wait_until(condition: Callable[[], bool], what: str, *, max_s: float = 60.0) -> None:
    ends = time.monotonic() + max_s
    while not condition():
        assert time.monotonic() < ends, what
        time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(main())
