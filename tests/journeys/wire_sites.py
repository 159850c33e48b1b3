"""Three services with a sick wire before each, replicas that are put back, and a judge that is naive.

The judge is written from the specification alone: what was answered to a writer stays where it was, unless an
admin gave it up or put a machine back; each change is there once; green means equal. It reads the replicas'
own files, past the services.
Source: issue 15, B7.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import sqlite3
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

from spark.formats.csn import Csn
from tests.http.service_process import NO_TLS
from tests.journeys.replicas import GENERATION, SETTINGS, TERMINAL, Pair, Site, agree, register
from tests.journeys.service import START_TIMEOUT_S, Service
from tests.journeys.sick_wire import Faults, SickWire

SICK = Faults(cuts=0.02, delays=0.08, doubles=0.06, flips=0.03, answer_flips=0.03, delay_max_s=0.05)
SICKER = replace(SICK, heads=0.01)
"""Damaged heads end some sessions: what is no HTTP any more is not sent again."""
PATIENCE_S = 60.0
# A lease whose release was cut off is waited for.
SHORT_LEASE = SETTINGS | {"LETHE_REPLICATION_LEASE_S": "4"}
_numbers = itertools.count(1)

Held = frozenset[tuple[str, bytes | None]]


class Wrong(AssertionError):
    """A promise was broken."""


@dataclass
class Kept:
    """A machine as it was: its target's file, the replica's row in the metadata, and all metadata."""

    target: Path
    metadata: Path
    row: tuple[Any, ...] | None


@dataclass
class Node(Site):
    """A replica of a service of its own that can be put back."""

    rid: int = 0
    file: Path = Path()
    folder: Path = Path()
    acknowledged: int = 0

    def put(self, *keys: str) -> bool:
        """One request of a writer; whether it was acknowledged. Its values are its keys."""
        changes = [{"database": "ZGI=", "key": _base64(key), "value": _base64(key)} for key in keys]
        answer = self.call("POST", f"{self.path}/changes", json={"changes": changes})
        if answer.status_code != 200:
            assert answer.status_code == 409, answer.text
            return False
        self.acknowledged += len(keys)
        told = answer.json()
        there = {csn for csn, _ in self.held()}
        if not {told["first_csn"], told["last_csn"]} <= there:
            raise Wrong(f"{self.store}: what was answered is not there")
        return True

    def held(self) -> Held:
        """The changes that it shows, with what they say; each has a key of its own, and is there once."""
        with closing(sqlite3.connect(self.file, timeout=10)) as raw:
            try:
                entries = raw.execute("select csn, value from replica_entries").fetchall()
                counts = raw.execute("select count(*), count(distinct key) from replica_changelog")
                [(records, keys)] = counts.fetchall()
            except sqlite3.OperationalError:
                return frozenset()
        if records != keys:
            raise Wrong(f"{self.store}: {records} records of {keys} keys: some are double")
        return frozenset(entries)

    def vector(self) -> dict[int, str]:
        """Its RUV, past the service."""
        with closing(sqlite3.connect(self.file, timeout=10)) as raw:
            rows = raw.execute("select rid, max_csn from replica_ruv where max_csn is not null")
            return dict(rows.fetchall())

    @property
    def _metadata(self) -> Path:
        return self.service.data_dir / "lethe.db"

    def back_up(self) -> Kept:
        """Keep all of it."""
        number = next(_numbers)
        kept = Kept(self.folder / f"kept-{number}.db", self.folder / f"metadata-{number}.db", None)
        copy_database(self.file, kept.target)
        copy_database(self._metadata, kept.metadata)
        with closing(sqlite3.connect(self._metadata, timeout=10)) as raw:
            query = "select incarnation, own_max_csn from replicas where store = ?"
            kept.row = raw.execute(query, (self.store,)).fetchone()
        return kept

    def put_back(self, kept: Kept, *, target: bool = True, metadata: bool = True) -> None:
        """Target, metadata of this replica, or both are as they were, beneath the running service."""
        if target:
            copy_database(kept.target, self.file)
        if metadata and kept.row is not None:
            with closing(sqlite3.connect(self._metadata, timeout=10)) as raw, raw:
                query = "update replicas set incarnation = ?, own_max_csn = ? where store = ?"
                raw.execute(query, (*kept.row, self.store))

    def put_back_machine(self, kept: Kept) -> None:
        """The machine is lost, and comes up with the files of before."""
        self.service.kill9()
        for kept_file, file in ((kept.target, self.file), (kept.metadata, self._metadata)):
            for suffix in ("", "-wal", "-shm"):
                Path(f"{file}{suffix}").unlink(missing_ok=True)
            shutil.copyfile(kept_file, file)
            file.chmod(0o600)
        self.service.start()


@dataclass
class Star:
    """Replicas of several services, each of which can bring its changes to each other over sick wires."""

    nodes: list[Node]
    wires: list[SickWire]
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)

    def pair(self, supplier: Node, consumer: Node) -> Pair:
        """The agreement between two of them, over the consumer's wire."""
        key = self.nodes.index(supplier), self.nodes.index(consumer)
        if key not in self.pairs:
            wire = next(each for each in self.wires if each.server_port == consumer.service.port)
            self.pairs[key] = agree(supplier, consumer, port=wire.port, batch_rows=2)
        return self.pairs[key]

    def bring(
        self, supplier: Node, consumer: Node, *, mode: str = "INCREMENTAL", discard: bool = False
    ) -> str:
        """One session, judged: its outcome, or the code of what ended or holds it up.

        Raises: Wrong.
        """
        pair, before = self.pair(supplier, consumer), (supplier.held(), consumer.held())
        outcome = _session(pair, mode=mode, discard=discard)
        after = supplier.held(), consumer.held()
        self.happened["sessions"] += 1
        self.happened[outcome] += 1
        lost = before[0] - after[0], before[1] - after[1]
        if lost[0] or (lost[1] and not discard):
            raise Wrong(f"{mode} removed unasked: {lost}, {outcome}")
        if outcome == "UP_TO_DATE":
            vector = supplier.vector()
            foreign = {each for each in after[1] if each[0] <= vector.get(Csn(each[0]).rid, "")} - after[0]
            if after[0] - after[1] or foreign:
                raise Wrong(f"green while different: {after[0] - after[1]} {foreign}")
        return outcome

    def level(self) -> None:
        """Everybody brings everybody level."""
        for _ in range(2 if len(self.nodes) > 2 else 1):
            for supplier in self.nodes:
                for consumer in self.nodes:
                    if supplier is not consumer:
                        assert (found := self.bring(supplier, consumer)) == "UP_TO_DATE", found

    def assert_level(self) -> None:
        """What the first one has is brought to the second one, and they do not differ."""
        supplier, consumer = self.nodes
        assert (found := self.bring(supplier, consumer)) == "UP_TO_DATE", found
        assert supplier.held() <= consumer.held()

    def look_again(self, supplier: Node) -> None:
        """Agreements that were made since are gone with the metadata that was put back."""
        listed = supplier.done("GET", f"{supplier.path}/agreements?page_size=100")["items"]
        there = {each["id"] for each in listed}
        gone = [
            key
            for key, pair in self.pairs.items()
            if pair.supplier is supplier and pair.agreement_id not in there
        ]
        for key in gone:
            del self.pairs[key]

    def grant(self, supplier: Node, consumer: Node) -> None:
        """An admin's word at the consumer, once."""
        body = {"supplier_rid": supplier.rid, "reason": "a test"}
        consumer.done("POST", f"{consumer.path}/discard-grants", 201, json=body)


@dataclass
class Services:
    """Three services, and a wire before each."""

    services: list[Service]
    wires: list[SickWire]
    folder: Path

    def star(self, *rids: int, faults: Faults = SICK) -> Star:
        """A new replica on each service, for so many replica ids."""
        for wire in self.wires:
            wire.faults = faults
        nodes = []
        for service, rid in zip(itertools.cycle(self.services), rids, strict=False):
            name = f"wire-{next(_numbers)}"
            file = self.folder / f"{name}.db"
            site = register(service, name, f"sqlite:///{file}", rid, generation=GENERATION)
            nodes.append(Node(**vars(site), rid=rid, file=file, folder=self.folder))
        return Star(nodes, self.wires)

    def suffered(self) -> Counter[str]:
        """What the wires have done so far."""
        return sum((wire.happened for wire in self.wires), Counter[str]())


@contextmanager
def three_services(folder: Path, *, seed: int) -> Iterator[Services]:
    """Three services that start side by side; they end with the block."""
    services = [Service(folder / f"wire{number}", SHORT_LEASE) for number in range(3)]
    with ExitStack() as stack:
        for service in services:
            service.spawn()
            stack.callback(_end, service)
        for service in services:
            _await_ready(service)
        wires = [stack.enter_context(SickWire(service.port, SICK, seed=seed)) for service in services]
        try:
            yield Services(services, wires, folder)
        except BaseException:
            for service in services:
                print(service.report())
            raise


def copy_database(source: Path, target: Path) -> None:
    """A file of SQLite as it is now into another one, which may be in use."""
    with closing(sqlite3.connect(source)) as before, closing(sqlite3.connect(target, timeout=10)) as after:
        before.backup(after)


def _end(service: Service) -> None:
    service.close()
    if not service.has_ended():
        service.kill9()


def _await_ready(service: Service) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        assert not service.has_ended(), service.tail()
        assert time.monotonic() < deadline, service.tail()
        with contextlib.suppress(OSError, httpx.TransportError):
            if httpx.get(f"{service.url}/readyz", timeout=5, verify=NO_TLS).status_code == 200:
                return
        time.sleep(0.05)


def _session(pair: Pair, *, mode: str, discard: bool) -> str:
    fields: dict[str, Any] = {"discard_consumer_changes": True} if discard else {}
    body = {"agreement_id": pair.agreement_id, "mode": mode} | fields
    answer = pair.supplier.call("POST", f"{pair.supplier.path}/replication-sessions", json=body)
    if answer.status_code != 202:
        return str(answer.json()["code"])
    job_id, deadline = str(answer.json()["id"]), time.monotonic() + PATIENCE_S
    while True:
        job = pair.supplier.done("GET", f"/v1/jobs/{job_id}")
        if job["state"] == "SUCCEEDED":
            return str(pair.session(job)["outcome"])
        if job["state"] in TERMINAL:
            return str((job["error"] or {"code": job["state"]})["code"])
        waits = [each["ref"] for each in job.get("waiting_on") or () if each["ref"].endswith("_NOT_GRANTED")]
        if waits or time.monotonic() > deadline:
            pair.supplier.call("POST", f"/v1/jobs/{job_id}:abort")
            pair.wait(job_id)
            return waits[0].split(": ")[-1] if waits else "TOO_SLOW"
        time.sleep(0.05)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
