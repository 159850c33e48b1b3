"""Three services in a ring, each with one replica; what is written there, and what must be true in the end.

Every request is repeated under its key until it is answered, so in the end each has been written once: not
only what was answered is looked for, but nothing else may be there either.
"""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.journeys.replicas import GENERATION, SETTINGS, TERMINAL, Pair, Site, agree, register
from tests.journeys.service import serving

RIDS = (1, 2, 3)
DATABASES = (b"db", b"\x00\xff")
KEYS = 40
CHANGES_MAX = 12
PAUSE_S = 0.2
# A session is so slow that a kill meets it at work, and some yield before they have sent all.
MAX_CHANGES = 300
SLOW = {"throttle": {"rows_per_s": 600}, "max_changes": MAX_CHANGES}
TRY_AGAIN = (429, 502, 503, 504)
PATIENCE_S = 90.0
# A lease that a killed supplier leaves at a killed consumer is waited for.
RING = SETTINGS | {"LETHE_REPLICATION_LEASE_S": "8"}

Change = tuple[bytes, bytes, bytes | None]


@dataclass(frozen=True)
class Written:
    """A request that was answered: its changes in their order, and the CSNs that they got."""

    rid: int
    changes: tuple[Change, ...]
    first_csn: str
    last_csn: str


@dataclass
class RingSite(Site):
    """A site whose callers keep their connection: six of them must leave the machine to the services."""

    def __post_init__(self) -> None:
        self._own = threading.local()
        self._clients: list[httpx.Client] = []

    def close(self) -> None:
        """Give back the connections of all threads."""
        for client in self._clients:
            client.close()

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """One request; again while the service is being started."""
        if not hasattr(self._own, "client"):
            bearer = {"Authorization": f"Bearer {self.service.token}"}
            self._own.client = httpx.Client(
                base_url=self.service.url, headers=bearer, timeout=30, verify=False, trust_env=False
            )
            self._clients.append(self._own.client)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer: httpx.Response = self._own.client.request(method, path, **more)
                return answer
            except httpx.TransportError:
                assert time.monotonic() < deadline, f"{self.store} does not answer"
                time.sleep(0.2)


@dataclass
class Ring:
    """The sites in their order, each the supplier of the next: `pairs[i]` brings the changes of `sites[i]`.

    Attributes:
        incarnations: of the replicas at the beginning; another one at the end would be another replica.
    """

    sites: list[Site]
    pairs: list[Pair]
    incarnations: list[str] = field(default_factory=list)

    def replica(self, site: Site) -> dict[str, Any]:
        """What a replica says of itself."""
        found: dict[str, Any] = site.done("GET", f"/v1/replicas/{site.store}/ruv")
        return found


@contextmanager
def ring_of_three(directory: Path, urls: Sequence[str], **fields: Any) -> Iterator[Ring]:
    """Three services with a replica each, sessions in a ring whenever something is unsent.

    Args:
        fields: of each store.
    """
    with ExitStack() as stack:
        services = [stack.enter_context(serving(directory / f"ring{rid}", RING)) for rid in RIDS]
        sites = [
            RingSite(**vars(register(service, f"ring-{rid}", url, rid, generation=GENERATION, **fields)))
            for service, url, rid in zip(services, urls, RIDS, strict=True)
        ]
        for site in sites:
            stack.callback(site.close)
            site.write(1, prefix=site.store)
        pairs = [
            # Of a session without a bound writers make one without an end, where they are as fast as it.
            agree(supplier, consumer, interval="PT1S", batch_rows=30, max_changes=MAX_CHANGES)
            for supplier, consumer in zip(sites, [*sites[1:], sites[0]], strict=True)
        ]
        made = Ring(sites, pairs)
        made.incarnations = [made.replica(site)["incarnation"] for site in sites]
        yield made


class Activity:
    """Writers and askers for sessions on all sites, each a thread, until told to stop."""

    def __init__(self, ring: Ring, seed: int) -> None:
        self._ended = threading.Event()
        self._faults: list[BaseException] = []
        self._guard = threading.Lock()
        self.written: list[Written] = []
        self.replayed = 0
        self.asked = 0
        works: list[Callable[[], None]] = []
        for number, (site, pair) in enumerate(zip(ring.sites, ring.pairs, strict=True)):
            works += [self._writer(site, number + 1, seed), self._asker(pair, number + 1, seed)]
        self._threads = [threading.Thread(target=self._guarded, args=(work,), daemon=True) for work in works]

    def __enter__(self) -> Activity:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def stop(self) -> None:
        """End all of them after what each is about; a fault of any is raised."""
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S + 10)
            assert not thread.is_alive()
        self.raise_faults()

    def raise_faults(self) -> None:
        """Raise what a thread has found wrong."""
        if self._faults:
            raise self._faults[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while not self._ended.is_set():
                work()
        except BaseException as fault:  # noqa: BLE001  the test's own thread raises it
            self._faults.append(fault)

    def _writer(self, site: Site, rid: int, seed: int) -> Callable[[], None]:
        rng, serial = Random(f"{seed} writer {rid}"), iter(range(10**9))

        def write() -> None:
            number = next(serial)
            changes = tuple(
                (
                    rng.choice(DATABASES),
                    f"k{rng.randrange(KEYS)}".encode(),
                    None if rng.random() < 0.2 else f"{rid}.{number}.{part}".encode(),
                )
                for part in range(rng.randint(1, CHANGES_MAX))
            )
            key = f"ring-{rid}-{number}"
            answer = write_until_answered(site, key, changes)
            told = answer.json()
            assert (told["rid"], told["changes"]) == (rid, len(changes))
            if rng.random() < 0.1:
                again = write_until_answered(site, key, changes)
                assert (again.json(), again.headers["Idempotency-Replayed"]) == (told, "true")
            with self._guard:
                self.replayed += answer.headers.get("Idempotency-Replayed") == "true"
                self.written.append(Written(rid, changes, told["first_csn"], told["last_csn"]))
            self._ended.wait(rng.random() * 2 * PAUSE_S)

        return write

    def _asker(self, pair: Pair, rid: int, seed: int) -> Callable[[], None]:
        rng = Random(f"{seed} asker {rid}")

        def ask() -> None:
            body = {"agreement_id": pair.agreement_id, "strategy": rng.choice(["WINDOW", "CLASSIC"])} | SLOW
            answer = pair.supplier.call("POST", f"{pair.supplier.path}/replication-sessions", json=body)
            # 409: the one before still runs, or the agreement's interval was faster.
            assert answer.status_code in (202, 409, *TRY_AGAIN), answer.text
            with self._guard:
                self.asked += answer.status_code == 202
            self._ended.wait(0.5 + 0.5 * rng.random())

        return ask


def write_until_answered(site: Site, key: str, changes: Sequence[Change]) -> httpx.Response:
    """One request, repeated under its key while the service or its target is away."""
    body = {
        "changes": [
            {
                "database": _text(database),
                "key": _text(name),
                "value": None if value is None else _text(value),
            }
            for database, name, value in changes
        ]
    }
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = site.call("POST", f"{site.path}/changes", json=body, headers={"Idempotency-Key": key})
        if answer.status_code == 200:
            return answer
        assert answer.status_code in TRY_AGAIN, answer.text
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


@dataclass
class Killer:
    """Kills services that are supplier or consumer of a session right now, and starts them again."""

    ring: Ring
    rng: Random
    kills: list[str] = field(default_factory=list)
    _next: list[int] = field(default_factory=list)

    def kill(self, *, as_supplier: bool) -> None:
        """Kill a service at some moment of a session that it takes part in; all have their turn."""
        if not self._next:
            self._next = self.rng.sample(range(len(self.ring.sites)), len(self.ring.sites))
        number = self._next.pop()
        victim = self.ring.sites[number]
        pair = self.ring.pairs[number if as_supplier else number - 1]
        assert (pair.supplier if as_supplier else pair.consumer) is victim
        _meet_session(pair.consumer, self.rng)
        victim.service.kill9()
        self.kills.append(f"{victim.store} as {'supplier' if as_supplier else 'consumer'}")
        time.sleep(self.rng.random())
        victim.service.start()


def _meet_session(consumer: Site, rng: Random) -> None:
    """Return at some moment at which a supplier holds the lease of a consumer."""
    held = "select 1 from replica_session where session_id is not null"
    deadline = time.monotonic() + PATIENCE_S
    with consumer.open() as conn:
        while True:
            if conn.execute(held):
                time.sleep(rng.random() * 0.3)
                if conn.execute(held):
                    return
            assert time.monotonic() < deadline, f"no session at {consumer.store}"
            time.sleep(0.01)


def converge(ring: Ring, *, timeout_s: float) -> float:
    """Wait until the ring, with nobody but its intervals, has made all RUVs equal; how long that took."""
    began = time.monotonic()
    while True:
        ruvs = [site.ruv() for site in ring.sites]
        if ruvs[0] == ruvs[1] == ruvs[2]:
            return time.monotonic() - began
        assert time.monotonic() < began + timeout_s, (ruvs, [_sessions(pair)[:3] for pair in ring.pairs])
        time.sleep(0.2)


def _sessions(pair: Pair) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pair.supplier.done(
        "GET", f"{pair.supplier.path}/replication-sessions?page_size=100"
    )["items"]
    return found


def assert_converged(ring: Ring, written: Sequence[Written]) -> None:
    """Equal everywhere, nothing lost, nothing twice, nothing else; nobody needed more than sessions."""
    changelogs = [_plain(site.changelog()) for site in ring.sites]
    entries = [_plain(site.entries()) for site in ring.sites]
    vectors = [
        site.rows("select rid, min_csn, max_csn, purged_csn from replica_ruv order by 1")
        for site in ring.sites
    ]
    for site, changelog, found, vector in zip(ring.sites, changelogs, entries, vectors, strict=True):
        assert_whole(changelog, vector)
        assert_written_once(changelog, written)
        assert found == newest(changelog), site.store
        assert site.count("dead_letters") == 0, site.store
    assert changelogs[0] == changelogs[1] == changelogs[2]
    assert entries[0] == entries[1] == entries[2]
    assert vectors[0] == vectors[1] == vectors[2]
    for site, incarnation in zip(ring.sites, ring.incarnations, strict=True):
        told = ring.replica(site)
        assert (told["status"], told["generation"]) == ("ONLINE", GENERATION)
        assert told["incarnation"] == incarnation


def _plain(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows as both dialects have them: bytes, and numbers for what SQLite has no other type for."""
    return [
        tuple(bytes(value) if isinstance(value, bytes | memoryview) else value for value in row)
        for row in rows
    ]


def assert_whole(changelog: Sequence[tuple[Any, ...]], vector: Sequence[Sequence[Any]]) -> None:
    """Each replica's records are one chain from its first to what the RUV says, and none has left."""
    found = []
    for rid in RIDS:
        chain = [(csn, prev) for its, csn, prev, *_ in changelog if its == rid]
        assert chain[0][1] is None
        assert [prev for _, prev in chain[1:]] == [csn for csn, _ in chain[:-1]]
        assert all(earlier[0] < later[0] for earlier, later in pairwise(chain))
        found.append((rid, chain[0][0], chain[-1][0], None))
    assert [tuple(row) for row in vector] == found


def assert_written_once(changelog: Sequence[tuple[Any, ...]], written: Sequence[Written]) -> None:
    """What was answered is what is there, each change once, with the CSNs and in the order of its answer."""
    records = {
        rid: [
            (csn, (database, key, payload))
            for its, csn, _, _, database, key, payload in changelog
            if its == rid
        ]
        for rid in RIDS
    }
    for rid in RIDS:
        # The first record of each replica was there before the writers.
        rest = records[rid][1:]
        for request in sorted((each for each in written if each.rid == rid), key=lambda each: each.first_csn):
            mine, rest = rest[: len(request.changes)], rest[len(request.changes) :]
            assert tuple(change for _, change in mine) == request.changes, request
            assert (mine[0][0], mine[-1][0]) == (request.first_csn, request.last_csn)
        assert rest == [], f"records of replica {rid} that nobody has written"


def newest(changelog: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The entries that a changelog makes: of each key what its greatest CSN says."""
    found: dict[tuple[bytes, bytes], tuple[str, bytes | None]] = {}
    for _, csn, _, _, database, key, payload in changelog:
        found[database, key] = max(
            found.get((database, key), ("", None)), (csn, payload), key=lambda at: at[0]
        )
    return [
        (database, key, value, csn, value is None) for (database, key), (csn, value) in sorted(found.items())
    ]


def assert_sessions_did_it(ring: Ring) -> None:
    """No session found a replica that needs more than a session, and none gave up."""
    for pair in ring.pairs:
        ended = [each for each in _sessions(pair) if each["outcome"] is not None]
        assert {each["outcome"] for each in ended} <= {"UP_TO_DATE", "YIELDED"}, ended
        agreement = pair.supplier.done("GET", f"{pair.supplier.path}/agreements/{pair.agreement_id}")
        assert agreement["status"]["needs_total"] is False
        assert agreement["status"]["lag_changes"] == 0


def assert_audits_agree(ring: Ring) -> None:
    """An audit of each agreement compares everything, and finds nothing."""
    for pair in ring.pairs:
        body = {"agreement_id": pair.agreement_id}
        job = pair.supplier.done("POST", f"{pair.supplier.path}/audits", 202, json=body)
        ended = pair.wait(job["id"], *TERMINAL)
        assert ended["state"] == "SUCCEEDED", ended
        result = ended["result"]
        assert (result["agrees"], result["complete"], result["differing"]) == (True, True, [])
        assert result["entries"]["agrees"]
        assert {row["rid"]: row["agrees"] for row in result["rids"]} == dict.fromkeys(RIDS, True)
