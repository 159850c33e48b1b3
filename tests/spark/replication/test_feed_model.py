"""The change feed beside a naive replay: what a reader is given over sessions, trims, copies and backups.

The model knows nothing of cursors. It keeps of each replica the whole history that it has now, record by
record, and compares sets: a reader that has all that it was given in this history, and lacks nothing that
left the changelog, is served and gets exactly the rest, each once, in the order of its CSNs; any other one
is refused. A record is its CSN, key and value: a history that was written anew is another one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication.feed.errors import CursorAhead, CursorParted, CursorRefused
from spark.replication.feed.position import Position
from spark.replication.feed.reading import FeedRecord, Keys, Starting, read_feed
from spark.replication.records import SessionMode
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from tests.spark.replication.history_sites import DATABASE, Machine, session

Record = tuple[str, bytes, bytes | None]
STEPS = 30


@dataclass
class Site:
    """A machine, and the history that it has, trimmed records among it."""

    machine: Machine
    history: set[Record] = field(default_factory=set)

    def logged(self) -> set[Record]:
        rows = self.machine.conn.execute("select csn, key, payload from replica_changelog")
        return set(rows)

    def look(self) -> None:
        self.history |= self.logged()


@dataclass
class Reader:
    """A reader that keeps a text, and whatever it was given."""

    site: Site
    starting: Starting
    keys: Keys | None
    text: str | None = None
    covered: set[Record] = field(default_factory=set)
    given: list[Record] = field(default_factory=list)
    newest: int = 3

    def wants(self, record: Record) -> bool:
        return self.keys is None or record[1].startswith(self.keys.prefix)

    def begin(self) -> None:
        """What it does not ask for: all that is there, but for its last records, or what has left already."""
        logged = sorted(self.site.logged())
        wanted = {Starting.LATEST: [], Starting.NEWEST: logged[-self.newest :], Starting.EARLIEST: logged}
        self.covered = self.site.history - set(wanted[self.starting])

    def is_good(self) -> bool:
        """Whether the naive comparison lets it go on."""
        history = self.site.history
        return self.covered <= history and history - self.covered <= self.site.logged()

    def read(self, draw: random.Random) -> None:
        """Read to the end, as the site is now; sometimes only a part of a page arrives."""
        while True:
            start = self.starting if self.text is None else Position.of(self.text)
            rows = self.newest if start is Starting.NEWEST else draw.choice([1, 2, 7, 500])
            page = read_feed(
                self.site.machine.conn,
                start,
                keys=self.keys,
                rows_max=rows,
                bytes_max=draw.choice([1, 10**6]),
            )
            taken = page.records[: draw.randrange(len(page.records) + 1)] if draw.random() < 0.3 else None
            self._take(page.records if taken is None else taken)
            if taken is not None:
                places = {record.rid: record.place for record in taken}
                self.text = page.begin.moved(places).text()
                continue
            self.text = page.end.text()
            if not page.more:
                return

    def _take(self, records: tuple[FeedRecord, ...]) -> None:
        csns = [record.csn for record in records]
        assert csns == sorted(csns)
        for record in records:
            self.given.append((record.csn, record.key, record.payload))

    def check_whole(self) -> None:
        """Exactly once, of each replica id in the order of its CSNs."""
        assert len(set(self.given)) == len(self.given), "given twice"
        wanted = {record for record in self.site.history if self.wants(record)}
        seen = {record for record in self.covered if self.wants(record)} | set(self.given)
        assert seen == wanted
        newest: dict[int, str] = {}
        for csn, _, _ in self.given:
            rid = Csn(csn).rid
            assert csn > newest.get(rid, "")
            newest[rid] = csn


class World:
    """Three replicas, their backups, and readers that come and go."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.sites = [Site(Machine(rid, folder / f"{seed}-{rid}.db")) for rid in (1, 2, 3)]
        self.kept: dict[int, tuple[object, set[Record]]] = {}
        self.readers: list[Reader] = []
        self.values = 0
        self.refused: set[str] = set()
        self.served = 0

    def step(self) -> None:
        site = self.draw.choice(self.sites)
        weights = {
            self.write: 10,
            self.meet: 12,
            self.trim: 3,
            self.back_up: 2,
            self.put_back: 3,
            self.copy: 1,
            self.open: 4,
            self.read: 10,
        }
        [act] = self.draw.choices(list(weights), list(weights.values()))
        act(site)

    def write(self, site: Site) -> None:
        self.values += 1
        keys = [
            b"%c%d" % (self.draw.choice(b"ab"), self.draw.randrange(4))
            for _ in range(self.draw.randint(1, 3))
        ]
        site.machine.write(*keys, value=b"v%d" % self.values)
        site.look()

    def meet(self, site: Site) -> None:
        other = self.draw.choice([each for each in self.sites if each is not site])
        session(site.machine, other.machine, batches_max=self.draw.choice([1, 2, None]), trusted=(1, 2, 3))
        site.look()
        other.look()

    def trim(self, site: Site) -> None:
        if logged := sorted(site.logged()):
            csn = Csn(self.draw.choice(logged)[0])
            site.machine.trim(str(csn), csn.rid)

    def back_up(self, site: Site) -> None:
        self.kept[site.machine.rid] = site.machine.back_up(), set(site.history)

    def put_back(self, site: Site) -> None:
        if site.machine.rid not in self.kept:
            return
        kept, history = self.kept[site.machine.rid]
        site.machine.put_back(kept, metadata=self.draw.random() < 0.5)  # type: ignore[arg-type]
        site.history = set(history)

    def copy(self, site: Site) -> None:
        other = self.draw.choice([each for each in self.sites if each is not site])
        outcome = session(
            site.machine, other.machine, mode=SessionMode.TOTAL, discard=True, trusted=(1, 2, 3)
        )
        if outcome == "UP_TO_DATE":
            other.history = set(site.history)
        site.look()
        other.look()

    def open(self, site: Site) -> None:
        keys = self.draw.choice([None, None, Keys(DATABASE, b"a"), Keys(DATABASE)])
        reader = Reader(site, self.draw.choice(list(Starting)), keys, newest=self.draw.choice([1, 3, 20]))
        reader.begin()
        reader.read(self.draw)
        self.readers.append(reader)
        self.check(reader)

    def read(self, _site: Site) -> None:
        if not self.readers:
            return
        reader = self.draw.choice(self.readers)
        if not reader.is_good():
            with pytest.raises(CursorRefused) as refused:
                reader.read(self.draw)
            self.refused.add(refused.value.code)
            return
        reader.read(self.draw)
        self.served += 1
        self.check(reader)

    def check(self, reader: Reader) -> None:
        reader.check_whole()
        reader.covered |= reader.site.history  # what its filter has passed over, it is behind as well

    def close(self) -> None:
        for site in self.sites:
            site.machine.close()


def _run(folder: Path, seeds: Iterator[int] | range) -> tuple[int, set[str]]:
    served, refused = 0, set[str]()
    for seed in seeds:
        world = World(folder, seed)
        try:
            for _ in range(STEPS):
                world.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            world.close()
        served, refused = served + world.served, refused | world.refused
    return served, refused


def test_every_reader_gets_each_change_once_or_is_refused(tmp_path: Path) -> None:
    served, refused = _run(tmp_path, range(45))
    assert served > 150
    assert refused >= {"CURSOR_AHEAD", "CURSOR_TRIMMED"}


def test_a_history_that_was_written_anew_is_another_one_though_its_csns_are_the_same(tmp_path: Path) -> None:
    machine = Machine(1, tmp_path / "1.db")
    machine.write(b"first")
    kept, clock_s = machine.back_up(), machine.clock_s

    def read(start: Position | Starting) -> tuple[Position, list[bytes]]:
        page = read_feed(machine.conn, start, keys=None, rows_max=10, bytes_max=10**6)
        return page.end, [record.key for record in page.records]

    behind, _ = read(Starting.EARLIEST)
    lost = machine.write(b"lost")
    position, keys = read(Starting.EARLIEST)
    assert keys == [b"first", b"lost"]
    machine.put_back(kept)  # with its metadata: nobody knows of it
    with pytest.raises(CursorAhead):
        read(position)
    machine.clock_s = clock_s
    assert machine.write(b"anew") == lost  # the same CSN, another change
    with pytest.raises(CursorParted) as refused:
        read(Position.of(position.text()))
    assert refused.value.rids == (1,)
    assert read(behind)[1] == [b"anew"]
    # And one that has another CSN above the cursor's is no continuation either.
    machine.put_back(kept)
    machine.clock_s = clock_s + 10
    assert machine.write(b"other") > lost
    with pytest.raises(CursorParted):
        read(position)
    machine.close()


def test_the_newest_are_the_last_records_that_are_there(tmp_path: Path) -> None:
    machine = Machine(1, tmp_path / "1.db")

    def newest(rows: int) -> list[bytes]:
        page = read_feed(machine.conn, Starting.NEWEST, keys=None, rows_max=rows, bytes_max=10**6)
        assert not page.more
        latest = read_feed(machine.conn, Starting.LATEST, keys=None, rows_max=rows, bytes_max=10**6)
        assert page.end == latest.end
        return [record.key for record in page.records]

    [_, second, _] = [machine.write(name)[0] for name in (b"a", b"b", b"c")]
    every = [b"a", b"b", b"c"]
    assert [newest(rows) for rows in (1, 2, 3, 9)] == [every[2:], every[1:], every, every]
    machine.trim(str(second), 1)
    assert [newest(rows) for rows in (1, 2, 9)] == [[b"c"]] * 3
    machine.close()


def test_a_hole_in_the_changelog_is_an_error_and_no_gap(tmp_path: Path) -> None:
    machine = Machine(1, tmp_path / "1.db")
    csns = machine.write(b"a") + machine.write(b"b") + machine.write(b"c")
    for hole in csns[1:]:
        machine.conn.execute("delete from replica_changelog where csn = :csn", {"csn": hole})
        with pytest.raises(ChangelogIncomplete):
            read_feed(machine.conn, Starting.EARLIEST, keys=None, rows_max=10, bytes_max=10**6)
    machine.close()


@pytest.mark.long
def test_the_same_over_many_histories(tmp_path: Path) -> None:
    served, refused = _run(tmp_path, range(1_000, 2_000))
    assert served > 2_500
    assert refused == {"CURSOR_AHEAD", "CURSOR_TRIMMED", "CURSOR_PARTED"}
