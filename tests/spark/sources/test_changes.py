"""`lethe_changes`: the pages of a changelog, as a table and as a stream that has each record exactly once."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from lethe_client import Lethe, ProblemError
from lethe_client.changes import Change
from lethe_client.replication import ReplicaVectors
from lethe_spark import ChangesMissing, ChangesSource, OptionInvalid
from lethe_spark.changes import Asked, ChangesStream, Window, asked, read_window
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from tests.http.service_process import ServiceProcess
from tests.spark.sources.conftest import Reading

SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 200))]
_numbers = itertools.count(1)


@dataclass
class Replica:
    """A REPLICA store, and the options that read it with the right to read data and no other."""

    service: ServiceProcess
    lethe: Lethe
    name: str
    options: dict[str, str]

    def write(self, rng: random.Random, count: int) -> None:
        changes = [
            Change(
                b"db%d" % rng.randrange(2), b"k%d" % rng.randrange(20), rng.choice((b"", b"\xff\x00", None))
            )
            for _ in range(count)
        ]
        self.lethe.changes.write(self.name, changes)

    def pages(self) -> list[tuple[Any, ...]]:
        """The records as the pages of the changelog have them."""
        return [
            (each.rid, each.csn, each.prev, each.kind, each.database, each.key, each.payload, each.logged_at)
            for each in self.lethe.changes.list(self.name)
        ]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    directory = tmp_path_factory.mktemp("service")
    made = ServiceProcess(directory, settings={"LETHE_ALLOWED_ROOTS": str(directory)}).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def token_file(service: ServiceProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with service.http() as http:
        answer = http.post("/v1/tokens", json={"name": "auditor", "scopes": ["data:read"]})
        assert answer.status_code == 201, answer.text
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(str(answer.json()["token"]) + "\n")
    return path


@pytest.fixture
def replica(service: ServiceProcess, token_file: Path) -> Iterator[Replica]:
    yield from _made(service, token_file, {})


@pytest.fixture
def short_replica(service: ServiceProcess, token_file: Path) -> Iterator[Replica]:
    """One whose changelog a purge cuts to ten records."""
    yield from _made(service, token_file, {"nsslapd-changelogmaxentries": 10})


def _made(service: ServiceProcess, token_file: Path, parameters: dict[str, Any]) -> Iterator[Replica]:
    name = f"replica-{next(_numbers)}"
    path = service.directory / f"{name}.db"
    with service.http() as http, Lethe(service.url, service.token) as lethe:
        body = {"id": name, "kind": "REPLICA", "rid": 7, "url": f"sqlite:///{path}", "parameters": parameters}
        answer = http.post("/v1/stores", json=body)
        assert answer.status_code == 201, answer.text
        yield Replica(
            service, lethe, name, {"url": service.url, "token_file": str(token_file), "store": name}
        )


def direct(replica: Replica, **options: str) -> list[tuple[Any, ...]]:
    """The rows of the source as a table, without Spark."""
    reader = ChangesSource(replica.options | options).reader(None)
    return [row for part in reader.partitions() for row in reader.read(part)]  # type: ignore[misc]


@pytest.mark.parametrize("seed", SEEDS)
def test_every_record_is_that_of_the_pages(replica: Replica, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(rng.randint(0, 5)):
        replica.write(rng, rng.randint(1, 120))
    assert direct(replica) == replica.pages()
    assert direct(replica, rids="8") == []


def test_spark_has_the_same_records(reading: Reading, replica: Replica) -> None:
    replica.write(random.Random(1), 450)
    rows = reading.rows("lethe_changes", **replica.options)
    found = sorted(
        (row["rid"], row["csn"], row["prev"], row["kind"], bytes(row["database"]), bytes(row["key"]))
        for row in rows
    )
    assert found == [record[:6] for record in replica.pages()]
    assert [row["payload"] for row in sorted(rows, key=lambda row: row["csn"])] == [
        record[6] for record in replica.pages()
    ]


def test_the_offset_is_the_ruv_and_a_window_is_repeatable(replica: Replica) -> None:
    stream = ChangesStream(asked(replica.options))
    start = stream.initialOffset()
    replica.write(random.Random(2), 30)
    first = stream.latestOffset(start, None)
    assert first["ruv"] == dict(replica.lethe.replication.vectors(replica.name).ruv or {})
    replica.write(random.Random(3), 20)
    second = stream.latestOffset(first, None)
    assert stream.partitions(second, second) == []
    windows = [*stream.partitions(start, first), *stream.partitions(first, second)]
    read = [list(stream.read(window)) for window in windows]
    assert [row for rows in read for row in rows] == replica.pages()
    assert [list(stream.read(window)) for window in windows] == read
    latest = ChangesStream(asked(replica.options | {"starting": "latest"}))
    assert latest.initialOffset() == second


def test_a_stream_that_leaves_a_replica_id_out_since_says_so(replica: Replica) -> None:
    """It was said to be restored."""
    replica.write(random.Random(12), 3)
    stream = ChangesStream(asked(replica.options))
    start = stream.latestOffset(stream.initialOffset(), None)
    narrowed = ChangesStream(asked(replica.options | {"rids": "8"}))
    with pytest.raises(ChangesMissing, match="has read replica 7, which the option 'rids' does not name"):
        narrowed.latestOffset(start, None)


def test_records_that_were_trimmed_end_the_stream(short_replica: Replica) -> None:
    replica = short_replica
    stream = ChangesStream(asked(replica.options))
    replica.write(random.Random(4), 30)
    seen = stream.latestOffset(stream.initialOffset(), None)
    replica.write(random.Random(5), 30)
    ahead = stream.latestOffset(seen, None)
    with replica.service.http() as http:
        body = {"kind": "CHANGELOG", "reason": "a test"}
        answer = http.post(f"/v1/stores/{replica.name}/purges", json=body)
        assert answer.status_code == 202, answer.text
        replica.lethe.jobs.wait(answer.json()["id"])
    left = len(replica.pages())
    assert left < 30
    with pytest.raises(ChangesMissing, match=r"were trimmed from .*; keep the changelog longer"):
        [row for part in stream.partitions(seen, ahead) for row in stream.read(part)]
    assert len(direct(replica)) == left
    fresh = ChangesStream(asked(replica.options))
    start = fresh.initialOffset()
    parts = fresh.partitions(start, fresh.latestOffset(start, None))
    assert len([row for part in parts for row in fresh.read(part)]) == left


def test_a_window_that_a_restored_replica_lacks_is_not_read_as_far_as_it_goes(replica: Replica) -> None:
    """A batch was planned, its run was killed and the replica restored from a backup.

    The batch that Spark repeated had fewer records, and was committed as whole. Once the replica had its
    changes again from others, the stream went on behind the gap.
    """
    rng = random.Random(11)
    replica.write(rng, 5)
    path = replica.service.directory / f"{replica.name}.db"
    backup = path.with_suffix(".backup")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as copy:
        source.backup(copy)
    stream = ChangesStream(asked(replica.options))
    replica.write(rng, 5)
    wanted = replica.pages()
    start = stream.initialOffset()
    windows = stream.partitions(start, stream.latestOffset(start, None))
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(backup)) as copy:
        later = now.execute("select * from replica_changelog where csn > ?", [wanted[4][1]]).fetchall()
        ruv = now.execute("select * from replica_ruv").fetchall()
        copy.backup(now)
    with pytest.raises(ChangesMissing, match=r"it was restored; .* start the stream again, when it has them"):
        [row for window in windows for row in stream.read(window)]
    with closing(sqlite3.connect(path)) as now, now:  # as a peer brings them
        now.executemany(f"insert into replica_changelog values ({', '.join('?' * len(later[0]))})", later)
        now.execute("delete from replica_ruv")
        now.executemany(f"insert into replica_ruv values ({', '.join('?' * len(ruv[0]))})", ruv)
    assert [row for window in windows for row in stream.read(window)] == wanted


def test_a_replica_that_was_restored_with_its_metadata_and_written_to_ends_the_stream(
    tmp_path: Path,
) -> None:
    """A machine was put back to its backup: nobody there knows of it, and the next writes pass the offset.

    The stream went on behind records that the replica has not; a batch that was planned before had none.
    """
    rng = random.Random(13)
    kept, directory = tmp_path / "backup", tmp_path / "machine"
    machine = ServiceProcess(directory, settings={"LETHE_ALLOWED_ROOTS": str(directory)}).start()
    try:
        token = directory / "data" / "admin.token"
        made = _made(machine, token, {})  # it ends with the test
        replica = next(made)
        replica.write(rng, 5)
        machine.stop()
        shutil.copytree(directory, kept)
        machine.start()
        replica.write(rng, 5)
        stream = ChangesStream(asked(replica.options))
        begin = stream.initialOffset()
        seen = stream.latestOffset(begin, None)
        planned = stream.partitions(begin, seen)
        assert len([row for window in planned for row in stream.read(window)]) == 10
        machine.stop()
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        machine.start()
        replica.write(rng, 5)
        behind = stream.partitions(seen, stream.latestOffset(seen, None))
        for windows in (behind, planned):
            with pytest.raises(ChangesMissing, match="it was restored from a backup, and written to since"):
                [row for window in windows for row in stream.read(window)]
        assert len(direct(replica)) == 10
    finally:
        machine.stop()


@dataclass(frozen=True, slots=True)
class Standing(Asked):
    """Options whose replica stands as a test says."""

    found: ReplicaVectors | None = None

    def vectors(self) -> ReplicaVectors:
        assert self.found is not None
        return self.found


def _standing(**fields: Any) -> Standing:
    options = {"url": "http://127.0.0.1:1", "token_file": "/t", "store": "s"}
    made = asked(options)
    vectors = ReplicaVectors(rid=1, status="ONLINE", generation="g", incarnation="i", ruv={"1": "05"})
    return Standing(made.service, made.store, made.rids, made.starting, replace(vectors, **fields))


def test_a_replica_that_went_back_or_was_made_anew_ends_the_stream() -> None:
    start = ChangesStream(_standing()).latestOffset({"generation": "g", "incarnation": "i", "ruv": {}}, None)
    assert start == {"generation": "g", "incarnation": "i", "ruv": {"1": "05"}}
    with pytest.raises(ChangesMissing, match="it was restored from a backup; start with a new checkpoint"):
        ChangesStream(_standing(ruv={"1": "04"})).latestOffset(start, None)
    for other in ({"incarnation": "j"}, {"generation": "h"}):
        with pytest.raises(ChangesMissing, match="was made anew or restored since"):
            ChangesStream(_standing(**other)).latestOffset(start, None)
    assert ChangesStream(_standing(ruv=None, status="INITIALIZING")).latestOffset(start, None) == start
    with pytest.raises(ChangesMissing, match="is INITIALIZING; start the stream when it is ONLINE"):
        ChangesStream(_standing(ruv=None, status="INITIALIZING")).initialOffset()


def test_available_now_neither_begins_nor_ends_behind_the_moment_that_it_began(replica: Replica) -> None:
    replica.write(random.Random(9), 3)
    for starting in ("earliest", "latest"):
        stream = ChangesStream(asked(replica.options | {"starting": starting}))
        stream.prepareForTriggerAvailableNow()
        there = dict(replica.lethe.replication.vectors(replica.name).ruv or {})
        replica.write(random.Random(10), 3)
        start = stream.initialOffset()
        end = stream.latestOffset(start, None)
        assert end["ruv"] == there
        assert stream.latestOffset(end, None) == end
        assert (start == end) == (starting == "latest")


def test_the_token_is_in_no_partition_and_no_reader(replica: Replica, token_file: Path) -> None:
    replica.write(random.Random(6), 3)
    reader = ChangesSource(replica.options).reader(None)
    data = pickle.dumps((reader, reader.partitions()))
    assert token_file.read_text().strip().encode() not in data


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'store' is missing"),
        ({"store": "s", "url": "http://x"}, "give both 'url' and 'token_file', or neither"),
        ({"store": "s", "rids": "0"}, "rids names '0', which is no number from 1 to 65534"),
        ({"store": "s", "starting": "now"}, "give one of earliest, latest"),
        ({"store": "s", "token": "secret"}, "there is no option 'token'"),
    ],
)
def test_options_that_are_wrong_are_refused_by_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionInvalid, match=words):
        ChangesSource(options).schema()


def test_a_token_file_that_is_not_there_is_named(replica: Replica, tmp_path: Path) -> None:
    wrong = replica.options | {"token_file": str(tmp_path / "none")}
    with pytest.raises(
        OptionInvalid, match=r"the token file .* cannot be read here .*each worker must see it"
    ):
        ChangesSource(wrong).reader(None).partitions()
    replica.write(random.Random(7), 1)
    incarnation = replica.lethe.replication.vectors(replica.name).incarnation
    nothing = Window(7, None, "0" * 20, incarnation)
    assert list(read_window(asked(replica.options), nothing)) == []


def _pythons_of_spark() -> list[int]:
    """The Python processes below the JVM of this process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    found = []
    for pid in parents:
        with contextlib.suppress(OSError):
            words = (Path("/proc") / str(pid) / "cmdline").read_bytes()
            if b"pyspark" in words and b"java" not in words.split(b"\0")[0] and is_ours(pid):
                found.append(pid)
    return [pid for pid in found if pid != os.getpid()]


PATIENCE_S = 120.0
ATTEMPTS = 10


def _stream(session: SparkSession, replica: Replica, folder: Path, **trigger: Any) -> StreamingQuery:
    frame = session.readStream.format("lethe_changes").options(**replica.options).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "sink"))


def _kill_at_work(session: SparkSession, replica: Replica, folder: Path, rng: random.Random) -> int:
    """Run the stream until it has written, then kill one of its Python processes; how many were killed."""
    query = _stream(session, replica, folder, processingTime="0 seconds")
    try:
        until = time.monotonic() + PATIENCE_S
        while query.isActive and time.monotonic() < until and not query.recentProgress:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.5))
        victims = _pythons_of_spark() if query.isActive else []
        for victim in rng.sample(victims, min(1, len(victims))):
            os.kill(victim, signal.SIGKILL)
        time.sleep(rng.uniform(0, 0.5))
        return min(1, len(victims))
    finally:
        query.stop()


def _drain(session: SparkSession, replica: Replica, folder: Path) -> None:
    """Read all that is left; a worker that was killed may fail the first attempts."""
    for attempt in range(ATTEMPTS):
        query = _stream(session, replica, folder, availableNow=True)
        try:
            query.awaitTermination()
        except StreamingQueryException:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _sunk(session: SparkSession, folder: Path) -> list[str]:
    """The CSNs in the sink, each as often as it is there."""
    frame = session.read.parquet(str(folder / "sink"))
    return sorted(row["csn"] for row in frame.select("csn").collect())


def test_available_now_ends_with_the_newest_record_and_not_with_a_batch_that_was_left_behind(
    reading: Reading, replica: Replica, tmp_path: Path
) -> None:
    """A run once ended with the batch that a kill had left behind; what came after it was in no sink."""
    rng = random.Random(8)
    replica.write(rng, 30)
    reading.run(lambda session: _drain(session, replica, tmp_path))
    [commit] = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    left_behind = [*tmp_path.rglob("_spark_metadata/0"), *tmp_path.rglob("*.crc"), commit]
    for path in left_behind:  # as after a kill in the midst of the first batch
        path.unlink()
    replica.write(rng, 20)
    wanted = [record[1] for record in replica.pages()]
    reading.run(lambda session: _drain(session, replica, tmp_path))
    assert len(wanted) == 50
    assert reading.run(lambda session: _sunk(session, tmp_path)) == wanted


@pytest.mark.long
@pytest.mark.parametrize("kills", [5, 50])
def test_the_stream_has_each_record_once_over_kills(
    reading: Reading, replica: Replica, tmp_path: Path, kills: int
) -> None:
    rng, written = random.Random(kills), random.Random(1)
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.1):
            replica.write(written, 5)

    writer = threading.Thread(target=write)
    writer.start()
    killed = attempts = 0
    try:
        while killed < kills:
            attempts += 1
            assert attempts < 10 * kills, "the stream does not get to work"
            killed += reading.run(lambda session: _kill_at_work(session, replica, tmp_path, rng))
    finally:
        ended.set()
        writer.join()
    reading.run(lambda session: _drain(session, replica, tmp_path))
    wanted = [record[1] for record in replica.pages()]
    assert reading.run(lambda session: _sunk(session, tmp_path)) == wanted
    assert len(wanted) > kills


def test_a_service_that_refuses_says_so(replica: Replica, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("nobody")
    reader = ChangesSource(replica.options | {"token_file": str(wrong)}).reader(None)
    with pytest.raises(ProblemError, match=r"(?i)token"):
        reader.partitions()
