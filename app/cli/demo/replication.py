"""The demo's third part: changes of three replicas brought to another, then both ways while both write."""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lethe_client import Change, Job, Lethe, SessionRequest

from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session
from app.cli.shell.watching import follow, note_failure

RIDS: Final[Mapping[str, int]] = {"site-a": 1, "site-b": 2, "site-c": 3}
CHANGES: Final[Mapping[str, int]] = {"site-a": 50_000, "site-b": 20_000, "site-c": 30_000}
DATABASE: Final = b"orders"
# Slow enough to be seen.
ROWS_PER_S: Final = 40_000
BESIDE_WRITES: Final = 100
BESIDE_PAUSE_S: Final = 0.02


class _NotBrought(Exception):
    """A session or an audit did not succeed; the job says why."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.id)
        self.job = job


def show_replication(session: Session, folder: Path, secrets: Path) -> tuple[int, dict[str, Any]]:
    """Write on three replicas, bring two of them level, write on both while sessions run, and audit."""
    out = session.out
    agreements = _prepare(session, folder, secrets)
    out.note(f"\nWriting {sum(CHANGES.values()):,} changes on three replicas ...")
    for store, count in CHANGES.items():
        for _ in session.client.changes.import_blocks(store, _changes(store, count)):
            pass
    try:
        report = _replicate(session, agreements)
    except _NotBrought as error:
        note_failure(session, error.job)
        return ExitCode.FAILED, {"job": error.job.raw}
    return (ExitCode.OK if report["audit"]["agrees"] else ExitCode.FAILED), report


def _prepare(session: Session, folder: Path, secrets: Path) -> dict[tuple[str, str], str]:
    """The stores, and the agreements by (supplier, consumer)."""
    client = session.client
    generation = f"{int(time.time()):08x}000000010000"
    for store, rid in RIDS.items():
        client.stores.create(
            store, f"sqlite:///{folder / store}.db", kind="REPLICA", rid=rid, generation=generation
        )
    pairs = [("site-b", "site-a"), ("site-c", "site-a"), ("site-a", "site-b")]
    token = _register_peer(session, secrets)
    return {
        (supplier, consumer): client.agreements.create(
            supplier, url=client.url, consumer_store=consumer, token=token
        ).id
        for supplier, consumer in pairs
    }


def _register_peer(session: Session, secrets: Path) -> str:
    """A token for peers alone, in the folder for secrets, and its registration; how agreements name it."""
    made = session.client.tokens.create("demo-peer", role="peer")
    path = secrets / "peer.token"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(made.token or "")
    host = urlsplit(session.client.url).netloc
    session.client.secrets.create("peer", f"file:{path.name}", hosts=[host], stores=list(RIDS))
    return "secret:peer"


def _changes(store: str, count: int, *, part: str = "first") -> Iterator[Change]:
    for number in range(count):
        yield Change(
            DATABASE, f"{store}/{number % (count * 9 // 10 + 1)}".encode(), f"{part} {number}".encode()
        )


def _replicate(session: Session, agreements: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    client, out = session.client, session.out
    for supplier in ("site-b", "site-c"):
        _run(session, supplier, agreements[supplier, "site-a"])
    agreement = agreements["site-a", "site-b"]
    comparison = client.replication_sessions.compare("site-a", agreement)
    out.say(f"\nsite-a against site-b: {comparison.outcome}, replicas {list(comparison.need)}")
    out.say(f"One session, throttled to {ROWS_PER_S:,} changes/s:")
    job = _run(session, "site-a", agreement, SessionRequest(rows_per_s=ROWS_PER_S, reason="demo"))
    found = client.replication_sessions.get("site-a", str((job.subject or {})["id"]))
    _show_counters(session, found.raw)
    out.say("\nThe same both ways, while both are written to:")
    beside = _beside_writers(session, agreements)
    audit = _ended(session, client.audits.create("site-a", agreement, reason="demo"))
    result = dict(audit.result or {})
    out.facts(
        {
            "changes written beside the sessions": beside,
            "the audit of both sides": "they agree" if result.get("agrees") else "THEY DIFFER",
        }
    )
    return {"session": found.raw, "beside": beside, "audit": result}


def _beside_writers(session: Session, agreements: Mapping[tuple[str, str], str]) -> int:
    """Run sessions both ways until both writers have ended, and once more each; how much was written."""
    both = ("site-a", "site-b"), ("site-b", "site-a")
    stopping = threading.Event()
    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(_write_beside, session.client, store, stopping) for store, _ in both]
        try:
            while not all(writer.done() for writer in writers):
                for pair in both:
                    _run(session, pair[0], agreements[pair])
        finally:
            stopping.set()
        written = sum(writer.result() for writer in writers)
    for pair in both:
        _run(session, pair[0], agreements[pair])
    return written


def _write_beside(client: Lethe, store: str, stopping: threading.Event) -> int:
    for number in range(BESIDE_WRITES):
        if stopping.wait(BESIDE_PAUSE_S):
            return number
        # Both sites write the same keys: the greater CSN wins on both.
        client.changes.put(store, DATABASE, f"shared/{number}".encode(), f"of {store}".encode())
    return BESIDE_WRITES


def _run(session: Session, store: str, agreement: str, request: SessionRequest | None = None) -> Job:
    return _ended(session, session.client.replication_sessions.create(store, agreement, request))


def _ended(session: Session, started: Job) -> Job:
    job = follow(session, started)
    if job.state != "SUCCEEDED":
        raise _NotBrought(job)
    return job


def _show_counters(session: Session, found: Mapping[str, Any]) -> None:
    names = ("read", "sent", "covered", "acknowledged")
    rows = [[rid, *(counts[name] for name in names)] for rid, counts in sorted(found["counters"].items())]
    session.out.table(["rid", *names], rows, title=f"\n{found['outcome']}; each change was read once:")
