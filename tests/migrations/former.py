"""Former versions: their code, their processes, metadata filled by them.

`python -m tests.migrations.former [REVISION...]` makes the fixtures in tests/data/former anew, from the code
of their commits as git has it: what real services of them have written, with a purge in every state, on both
engines; since schedules came, with what `landed.py` fills too, and since 0026 with what `peers.py` does.
"""

from __future__ import annotations

import contextlib
import gzip
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lethe_client import Lethe

from tests.conftest import SharedServer
from tests.data.checkpoints.record_cleanup import dump_of
from tests.journeys.crashes import CRASHING, build_large
from tests.journeys.ground import Expected, add_store, expect, purge_request
from tests.journeys.service import Process, Service, until
from tests.migrations import landed, peers
from tests.oracles.symmetricds import Place, snapshot
from tests.postgresql_server import PostgresqlServer, find_binaries, scratch_directory
from tests.spark.events.catalogs import Catalogs, Templates

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "data" / "former"
SOMEWHERE = "/LETHE-FIXTURE"
"""Where the targets lie, in the fixture."""
ROWS = 120
SEED = 1016
UNIT_ROWS = 20
SLOW_ROWS_PER_S = 5.0
SETTINGS = {**CRASHING, "LETHE_SPARK__ENABLED": "false", "LETHE_RUNNER_JOBS_MAX": "12"}
ENDED = ("SUCCEEDED", "FAILED", "ABORTED", "ABANDONED")
GOES_ON = ("QUEUED", "RUNNING", "WAITING", "PAUSED")
STATES = (*ENDED, *GOES_ON, "PAUSING", "ABORTING")


@dataclass(frozen=True)
class Former:
    """A version that is upgraded from.

    Attributes:
        has_landed: whether it has schedules, windows and webhooks (`landed.py`).
        has_peers: whether it is at work on replicas and nodes of Slony-I (`peers.py`).
    """

    commit: str
    revision: str
    has_landed: bool
    has_peers: bool = False

    @property
    def fixture(self) -> Path:
        """What one of its services has written."""
        return FIXTURES / self.revision


BEFORE_SCHEDULES = Former("3170ca9", "0016", has_landed=False)
LANDED = Former("c82eb2a", "0019", has_landed=True)
WITH_PEERS = Former("766716ed", "0026", has_landed=False, has_peers=True)
FORMERS = (BEFORE_SCHEDULES, LANDED, WITH_PEERS)


def former_code(former: Former, directory: Path) -> Path | None:
    """The tree of a former version, in a directory; None where this clone does not have it."""
    tree = directory / "former"
    tree.mkdir()
    archive = subprocess.run(
        ["git", "archive", former.commit, "app", "spark", "client", "migrations"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        return None
    subprocess.run(["tar", "-x", "-C", tree], input=archive.stdout, check=True)
    _name_it(tree)
    return tree


def _name_it(tree: Path) -> None:
    """The distribution that this code asks for its version by: it had another name then."""
    facts = tree / "lethe-0.1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: lethe\nVersion: 0.1.0\n")


def as_former(process: Process, tree: Path) -> Process:
    """Let a process run the code of a tree, in this project's environment."""
    process.command = [sys.executable, "-P", "-m", "app.cli.main"]
    process.settings |= {"PYTHONPATH": f"{tree}:{tree / 'client'}", "PYTHONSAFEPATH": "1"}
    return process


def place_of(state: str, directory: Path | str) -> Place:
    """The target of the purge that is in a state."""
    return Place(f"sqlite:///{directory}/{state.lower()}.db")


def store_of(state: str) -> str:
    """Its store."""
    return f"former-{state.lower()}"


def expected_of(state: str, directory: Path) -> Expected:
    """What the whole purge of a store leaves and removes, by the oracle; `directory` is a scratch folder."""
    place = place_of(state, directory)
    build_large(place, SEED + STATES.index(state), rows=ROWS)
    return expect(place, snapshot(place))


class Filling:
    """One store and one purge for each state.

    Args:
        targets: where the targets are made.
        archive: whether what goes is kept.
    """

    def __init__(self, client: Lethe, targets: Path, *, archive: bool) -> None:
        self.client = client
        self.archive = archive
        self.targets = targets
        self.jobs: dict[str, str] = {}
        self._held: list[sqlite3.Connection] = []

    def fill(self) -> dict[str, str]:
        """Bring the purges into their states, as they stay until the service is killed; state to job."""
        for state in STATES:
            place = place_of(state, self.targets)
            build_large(place, SEED + STATES.index(state), rows=ROWS)
            runs_on = ["nobody"] if state == "QUEUED" else []
            add_store(self.client, store_of(state), place, runs_on=runs_on)
        for state in STATES:
            self._begin(state)
        self._end("SUCCEEDED")
        self.client.jobs.abort(self.jobs["ABORTED"])
        self._await("ABORTED")
        self.client.jobs.pause(self.jobs["PAUSED"])
        self._await("PAUSED")
        self._orders()
        # Only these go on: the rest of each is left for the next version.
        for state in ("RUNNING", "PAUSING", "ABORTING"):
            assert self.client.jobs.get(self.jobs[state]).state == state
        return self.jobs

    def _begin(self, state: str) -> None:
        place = place_of(state, self.targets)
        speed = 5_000.0 if state == "SUCCEEDED" else SLOW_ROWS_PER_S
        request = purge_request(place, archive=self.archive, max_rows_in_tx=UNIT_ROWS, rows_per_s=speed)
        self.jobs[state] = self.client.purges.create(store_of(state), request).id
        if state not in ("SUCCEEDED", "QUEUED"):
            until(lambda: self.client.jobs.get(self.jobs[state]).progress.done > 0)
        if state == "FAILED":
            with closing(sqlite3.connect(self.targets / "failed.db")) as target:
                target.execute("alter table sym_data rename to sym_data_gone")
            self._await("FAILED")

    def _orders(self) -> None:
        """Locked targets: an order cannot be carried out there, and one is given up."""
        for state in ("PAUSING", "ABORTING", "ABANDONED"):
            self._held.append(sqlite3.connect(self.targets / f"{state.lower()}.db", isolation_level=None))
            self._lock(self._held[-1])
        self.client.jobs.pause(self.jobs["PAUSING"])
        for state in ("ABORTING", "ABANDONED"):
            self.client.jobs.abort(self.jobs[state])
        self.client.stores.suspend(store_of("WAITING"), reason="the fixture wants it to wait")
        self._await("WAITING")
        self._abandon()

    @staticmethod
    def _lock(target: sqlite3.Connection) -> None:
        def locked() -> bool:
            with contextlib.suppress(sqlite3.OperationalError):
                target.execute("begin exclusive")
                return True
            return False

        until(locked)

    def _abandon(self) -> None:
        job_id = self.jobs["ABANDONED"]
        until(lambda: "TARGET_SILENCE" in str(self.client.jobs.get(job_id).raw["waiting_on"]))
        self.client.jobs.abandon(job_id, reason="the fixture gives it up")
        self._await("ABANDONED")

    def _await(self, state: str) -> None:
        self.client.jobs.wait(self.jobs[state], until=(state,), timeout_s=60)

    def _end(self, state: str) -> None:
        assert self.client.jobs.wait(self.jobs[state], timeout_s=60).state == state

    def let_go(self) -> None:
        """Unlock the targets."""
        for held in self._held:
            held.close()


@dataclass(frozen=True)
class Filled:
    """What a former service has left.

    Attributes:
        jobs: state to job.
        port: of the service.
    """

    jobs: dict[str, str]
    port: int


def filled(
    former: Former,
    tree: Path,
    directory: Path,
    *,
    metadata_url: str | None = None,
    archive: bool = True,
    nodes: peers.Nodes | None = None,
) -> Filled:
    """Run a former service, fill its metadata, and kill it.

    The data directory is `service` below `directory`, the targets lie in `targets`.

    Args:
        nodes: of Slony-I, for a version that has them to work on.
    """
    settings = dict(SETTINGS)
    if metadata_url is not None:
        settings |= {"LETHE_METADATA_URL": metadata_url, "LETHE_MIGRATE": "true"}
    targets = directory / "targets"
    targets.mkdir()
    service = Service(directory / "service", settings)
    as_former(service, tree)
    service.start()
    filling = Filling(service.client, targets, archive=archive)
    try:
        if former.has_landed:
            landed.begin(service.client, targets)
            landed.fill(service.client, targets)
        if former.has_peers:
            assert nodes is not None
            peers.fill(service, targets, nodes)
        jobs = filling.fill()
    except BaseException:
        print(service.report())
        raise
    finally:
        service.close()
        if not service.has_ended():
            service.kill9()
        filling.let_go()
    return Filled(jobs, service.port)


def _pack(former: Former, text: str, name: str) -> None:
    data = gzip.compress(text.encode(), 9, mtime=0)
    (former.fixture / f"{name}.gz").write_bytes(data)
    print(f"{former.revision} {name}: {len(data)} bytes")


def _dumped(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        return "\n".join(database.iterdump())


def main() -> None:
    """Make the fixtures of the revisions that are named, or all."""
    with contextlib.ExitStack() as stack:
        binaries = find_binaries(stack.enter_context(scratch_directory()))
        server = PostgresqlServer(binaries, stack.enter_context(scratch_directory()))
        server.start()
        stack.callback(server.stop)
        for former in FORMERS:
            if former.revision in sys.argv[1:] or len(sys.argv) == 1:
                _make(former, binaries, server)


def _make(former: Former, binaries: Path, server: PostgresqlServer) -> None:
    shutil.rmtree(former.fixture, ignore_errors=True)
    former.fixture.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tree = former_code(former, directory)
        assert tree is not None, f"git has no {former.commit} here"
        for engine in ("sqlite", "postgresql"):
            _make_one(former, tree, engine, binaries, server)


def _make_one(former: Former, tree: Path, engine: str, binaries: Path, server: PostgresqlServer) -> None:
    ground, database = tree.parent / engine, f"former_{former.revision}"
    ground.mkdir()
    url = server.create_database(database) if engine == "postgresql" else None
    catalogs = Catalogs(Templates(SharedServer(server.url(), None)))
    nodes = peers.fresh_nodes(catalogs) if former.has_peers else {}
    began = time.monotonic()
    left = filled(former, tree, ground, metadata_url=url, archive=False, nodes=nodes)
    print(f"{engine}: filled in {time.monotonic() - began:.0f} s")
    file = ground / "service" / "lethe.db"
    metadata = _dumped(file) if url is None else dump_of(binaries, url).decode()
    targets = ground / "targets"
    metadata = peers.generic(metadata.replace(str(targets), SOMEWHERE), left.port, nodes)
    _pack(former, metadata, f"{engine}.metadata.sql")
    for target in sorted(targets.glob("*.db")):
        _pack(former, _dumped(target), f"{engine}.{target.stem}.sql")
    if former.has_landed:
        _pack(former, landed.packed(targets), f"{engine}.landed.json")
    for name, node in nodes.items():
        _pack(former, dump_of(binaries, node.url).decode(), f"{engine}.{name}.node")


if __name__ == "__main__":
    main()
