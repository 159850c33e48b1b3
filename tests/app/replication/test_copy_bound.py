"""The bound that goes with a copy: of every page that was read, also where the supplier is put back then."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.jobs.errors import JobFailed
from app.replication.peer.answers import PeerRefused
from app.replication.supplier import copying
from app.replication.supplier.copying import BoundNotKept, CopyOutdated, PageBound
from app.replication.supplier.extinctions import require_bound_taken
from app.replication.supplier.ground import Ground
from app.replication.supplier.lease import Lease
from app.replication.supplier.record import Record
from app.replication.supplier.resuming import beginning, granted, note_beginning
from spark.formats.csn import Csn
from spark.replication.replica.buried import take_bound
from spark.replication.replica.replica import create_file, ensure_layout, snapshot
from spark.replication.sessions.begin import TOMBSTONES_CAPABILITY
from spark.targets.connection import Connection, Target, connect
from tests.spark.replication.consumer_side import GENERATION
from tests.spark.replication.replica_tables import csn
from tests.spark.replication.tombstone_tables import put_entries

TOLD: Mapping[int, Csn] = {1: csn(50, 1)}


class _Record:
    """What a session keeps."""

    def __init__(self, total: dict[str, Any]) -> None:
        self.total, self.saved = total, {**total}

    def set_total(self, total: dict[str, Any]) -> None:
        self.total = dict(total)

    def save(self) -> None:
        self.saved = {**self.total}


class _Client:
    """A consumer whose copy was begun at `begun`."""

    def __init__(self, begun: Mapping[int, Csn]) -> None:
        self.begun, self.heard = dict(begun), list[Any]()

    def complete_total(self, _session: str, *, ruv: Mapping[int, Csn], **said: Any) -> Mapping[int, Csn]:
        if dict(ruv) != self.begun:
            facts = {"ruv": {str(rid): str(found) for rid, found in self.begun.items()}}
            raise PeerRefused(
                409,
                copying.TOTAL_RUV_DIFFERS,
                "another RUV",
                retry_after_s=None,
                facts=facts | {"generation": GENERATION},
            )
        self.heard.append(said["buried"])
        return ruv


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A supplier's file: its RUV ends at 50, and `a` is deleted there."""
    made = tmp_path / "s.db"
    create_file(_target(made))
    with _opened(made) as conn:
        ensure_layout(conn, rid=1, generation=GENERATION, incarnation="inc_a")
        conn.execute(
            "insert into replica_ruv (rid, min_csn, max_csn) values (1, :csn, :csn)", {"csn": str(csn(50, 1))}
        )
        put_entries(conn, {b"a": (csn(30, 1), True), b"b": (csn(5, 1), False), b"z": (csn(6, 1), False)})
        conn.execute("pragma wal_checkpoint(truncate)")
    return made


def _target(path: Path) -> Target:
    return Target(f"sqlite:///{path}", table_prefix="replica_")


def _opened(path: Path) -> Connection:
    return connect(_target(path), application_name="test")


def _purge(conn: Connection) -> None:
    """Of `a`."""
    with conn.transaction():
        take_bound(conn, snapshot(conn).replica.buried, csn(30, 1))
        conn.execute("delete from replica_entries where key = :key", {"key": b"a"})


def _put_back(path: Path, backup: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    shutil.copy(backup, path)


def _pages(conn: Connection, bound: PageBound, *, after: tuple[bytes, bytes] | None = None) -> Iterator[Any]:
    return copying._batches(
        conn, generation=GENERATION, begun=TOLD, after=after, rows_max=1, bytes_max=10**6, bound=bound
    )


def _ground(conn: Connection, client: _Client, **total: Any) -> tuple[Ground, _Record]:
    seen = snapshot(conn)
    record = _Record(beginning(seen) | {"is_begun": True} | total)
    cast(Any, record).row = SimpleNamespace(id="rps_1")
    return cast(Ground, SimpleNamespace(conn=conn, client=client, record=record)), record


def _lease(
    *, is_copied: bool = False, capabilities: frozenset[str] = frozenset({TOMBSTONES_CAPABILITY})
) -> Lease:
    acquired = SimpleNamespace(capabilities=capabilities, is_copied=is_copied)
    return cast(Lease, SimpleNamespace(acquired=acquired, epoch=SimpleNamespace(epoch=1), next_seq=3))


@contextmanager
def _keeping(bound: PageBound, record: _Record) -> Iterator[None]:
    """The session's thread, which looks again and again."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.01):
            bound.keep(cast(Record, record))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_supplier_that_is_put_back_between_two_pages_sends_the_bound_of_the_first(
    path: Path, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"
    shutil.copy(path, backup)
    with _opened(path) as conn:
        _purge(conn)
        bound = PageBound(None)
        _, record = _ground(conn, _Client(TOLD))
        with _keeping(bound, record):
            first = next(_pages(conn, bound)).records().column("key").to_pylist()
        assert (first, bound.csn) == ([b"b"], csn(30, 1))
        kept = record.saved
    _put_back(path, backup)
    with _opened(path) as conn:
        again = PageBound(kept["buried"])  # another attempt goes on behind the last page
        rest = [page.records().column("key")[0].as_py() for page in _pages(conn, again, after=(b"db", b"b"))]
        assert (rest, snapshot(conn).replica.buried) == ([b"z"], None)
        ground, record = _ground(conn, client := _Client(TOLD), **kept)
        copying._complete(ground, _lease())
        assert client.heard == [csn(30, 1)]


def test_no_page_leaves_before_its_bound_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that died between a page and its answer knew nothing of what was purged before the page."""
    monkeypatch.setattr(copying, "KEPT_WITHIN_S", 0.2)
    with _opened(path) as conn:
        bound = PageBound(None)
        pages = _pages(conn, bound)
        assert next(pages).records().column("key").to_pylist() == [b"a"]  # nothing was purged
        _purge(conn)
        with pytest.raises(BoundNotKept):
            next(pages)
        assert bound.csn == csn(30, 1)


def test_a_bound_that_rises_while_it_is_kept_is_kept_too(path: Path) -> None:
    with _opened(path) as conn:
        bound = PageBound(None)
        bound.meet(csn(30, 1))
        _, record = _ground(conn, _Client(TOLD))
        save = record.save

        def meet_more() -> None:
            save()
            bound.meet(csn(40, 1))

        record.save = meet_more  # type: ignore[method-assign]
        bound.keep(cast(Record, record))
        record.save = save  # type: ignore[method-assign]
        assert record.saved["buried"] == str(csn(30, 1))
        bound.keep(cast(Record, record))
        bound.await_keeping()
        assert record.saved["buried"] == str(csn(40, 1))


def test_a_new_copy_knows_no_bound_of_the_one_before(path: Path) -> None:
    with _opened(path) as conn:
        acquired = cast(Any, SimpleNamespace(resume_after=None, is_copied=False))
        total = beginning(snapshot(conn)) | {"buried": str(csn(30, 1))}
        assert granted(total, acquired)["buried"] is None


def test_a_copy_that_was_begun_before_what_was_purged_is_begun_anew(path: Path) -> None:
    """The answer to its first acquire was lost, and the tombstone went that its windows would bring."""
    with _opened(path) as conn:
        _purge(conn)
        ground, record = _ground(conn, client := _Client({1: csn(10, 1)}))
        with pytest.raises(CopyOutdated):
            copying._complete(ground, _lease())
        assert client.heard == []
        assert (record.saved["is_anew"], record.saved["ruv"]) == (True, {"1": str(csn(50, 1))})
        note_beginning(ground, snapshot(conn))  # of the next acquire, also by another attempt
        assert record.total["is_anew"]


@pytest.mark.parametrize("begun", [{1: csn(10, 1)}, {1: csn(40, 1)}])
def test_an_earlier_beginning_counts_where_nothing_was_purged_behind_it(
    path: Path, begun: Mapping[int, Csn]
) -> None:
    with _opened(path) as conn:
        if begun[1] > csn(30, 1):
            _purge(conn)
        ground, _ = _ground(conn, client := _Client(begun))
        assert copying._complete(ground, _lease()) == begun
        assert client.heard == [snapshot(conn).replica.buried]


def test_a_copy_that_is_complete_is_not_begun_anew(path: Path) -> None:
    with _opened(path) as conn:
        _purge(conn)
        ground, _ = _ground(conn, _Client({1: csn(10, 1)}))
        assert copying._complete(ground, _lease(is_copied=True)) == {1: csn(10, 1)}


def test_who_keeps_no_bound_gets_no_copy_without_its_tombstones(path: Path, tmp_path: Path) -> None:
    require_bound_taken(None, frozenset())
    require_bound_taken(csn(30, 1), frozenset({TOMBSTONES_CAPABILITY}))
    with pytest.raises(JobFailed) as failed:
        require_bound_taken(csn(30, 1), frozenset())
    assert failed.value.code == "TOMBSTONES_NOT_SUPPORTED"
    # Also where the supplier was put back meanwhile, and has its tombstones again.
    with _opened(path) as conn:
        ground, _ = _ground(conn, client := _Client(TOLD), buried=str(csn(30, 1)))
        with pytest.raises(JobFailed, match="purged"):
            copying._complete(ground, _lease(capabilities=frozenset()))
        assert client.heard == []
