"""A replica that holds a part of the keys: what it holds after every session, and who may bring or get what.

The oracle is a log of every change that was ever written: after each session the leaf has, of the keys of its
part, the newest change that its RUV covers, and nothing else.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.changes.batch import decode_arrow, encode_arrow
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction, ExtinctionStatus
from spark.formats.part import PREFIXES_MAX, Part, PartInvalid, Prefix
from spark.formats.replica import tables_of
from spark.replication.consumer.apply import apply_batch, apply_entries
from spark.replication.consumer.extinctions import write_extinction
from spark.replication.errors import LayoutUnknown, ReplicaNotOnline, ReplicaPartial, ReplicaWasRestored
from spark.replication.feed.key_history import read_key_history
from spark.replication.feed.reading import Keys, Starting, read_feed
from spark.replication.proofs.chain import digests_of
from spark.replication.records import ReplicaStatus, SessionMode, entry_schema, local_schema, record_schema
from spark.replication.replica import local_write
from spark.replication.replica.digest import digest_changes, digest_entries
from spark.replication.replica.entries import read_entries
from spark.replication.replica.extinction_index import read_index
from spark.replication.replica.replica import snapshot
from spark.replication.session_errors import PartDiffers, SupplierPartial
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, acquire
from spark.replication.snapshots.take import take_snapshot
from spark.replication.supplier.classic import ClassicReader
from spark.replication.supplier.decide import Consumer, Supplier, Window
from spark.replication.supplier.slices import Bounds, plan_slices
from spark.replication.supplier.window import WindowReader
from tests.spark.replication.consumer_side import consumer_side, target_of
from tests.spark.replication.history_sites import GENERATION, Machine, session
from tests.spark.replication.wire_model_site import fast_folder

PART = Part.of([Prefix(b"db", b"eu-"), Prefix(b"other", b"")])
OTHER_PART = Part.of([Prefix(b"db", b"eu-")])
DATABASES = (b"db", b"other", b"third")
KEYS = (b"eu-1", b"eu-2", b"eu-\xff", b"ev", b"us-1", b"us-2", b"e")
TOTAL = SessionMode.TOTAL
Key = tuple[bytes, bytes]


# -- the part itself


def test_parts_of_the_same_keys_are_equal() -> None:
    wide = Prefix(b"db", b"a")
    assert Part.of([Prefix(b"db", b"ab"), wide, Prefix(b"db", b"a"), Prefix(b"db", b"abc")]) == Part.of(
        [wide]
    )
    assert Part.parse(PART.text()) == PART == Part.read(PART.document())


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        [1],
        [{"database": "ZA=="}],
        [{"database": "", "prefix": ""}],
        [{"database": "!", "prefix": ""}],
    ],
)
def test_what_names_no_part_is_refused(document: object) -> None:
    with pytest.raises(PartInvalid):
        Part.read(document)
    with pytest.raises(PartInvalid):
        Part.of(Prefix(b"db", bytes([65, number])) for number in range(PREFIXES_MAX + 1))


@pytest.mark.parametrize("dialect", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_the_condition_of_sql_chooses_what_the_mask_chooses(
    request: pytest.FixtureRequest, tmp_path: Path, dialect: str
) -> None:
    rng = random.Random(5)
    with consumer_side(target_of(request, dialect, tmp_path)) as side:
        places = sorted({(rng.choice(DATABASES), _bytes(rng, 1, 4)) for _ in range(200)})
        csns = [str(Csn.of(1_700_000_000 + at, 0, 1)) for at in range(len(places))]
        columns = [[d for d, _ in places], [k for _, k in places], [b"v"] * len(places), csns]
        batch = pa.RecordBatch.from_arrays(
            [
                *(pa.array(c, f.type) for c, f in zip(columns, entry_schema(), strict=False)),
                pa.array([False] * len(places)),
            ],
            schema=entry_schema(),
        )
        table = tables_of(side.conn).entries
        with side.conn.transaction():
            side.conn.execute_many(
                f"insert into {table} (database, key, value, csn, is_tombstone)"
                " values (:database, :key, :value, :csn, :is_tombstone)",
                batch.to_pylist(),
            )
        for _ in range(40):
            wanted = [Prefix(rng.choice(DATABASES), _bytes(rng, 0, 2)) for _ in range(rng.randint(1, 4))]
            part = Part.of(wanted)
            sql, params = part.condition()
            rows = side.conn.execute(f"select database, key from {table} where {sql}", params)
            found = {(bytes(d), bytes(k)) for d, k in rows}
            masked = batch.filter(pa.array(part.covers(batch))).to_pylist()
            brute = {
                (d, k) for d, k in places if any(d == p.database and k.startswith(p.prefix) for p in wanted)
            }
            assert found == brute == {(row["database"], row["key"]) for row in masked}


def _bytes(rng: random.Random, least: int, most: int) -> bytes:
    return bytes(rng.choice((0, 1, 127, 254, 255)) for _ in range(rng.randint(least, most)))


# -- the oracle


@dataclass
class World:
    """Two replicas that hold all keys, a leaf that holds PART, and every change that was ever written."""

    folder: Path
    rng: random.Random
    log: dict[str, tuple[Key, bytes | None]] = field(default_factory=dict)
    reached: int = 0
    purged: int = 0
    is_parted: bool = False
    """A whole machine was restored and may have written on: one CSN no longer names one history."""
    refusals: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.whole = [Machine(rid, self.folder / f"r{rid}.db") for rid in (1, 2)]
        self.leaf = Machine(9, self.folder / "leaf.db")
        self.kept = {id(each): each.back_up() for each in (*self.whole, self.leaf)}

    def close(self) -> None:
        for each in (*self.whole, self.leaf):
            each.close()

    def write(self, at: Machine) -> None:
        at.clock_s += 1
        rows = [
            {
                "database": self.rng.choice(DATABASES),
                "key": self.rng.choice(KEYS),
                "value": None if self.rng.random() < 0.25 else bytes([self.rng.randrange(256)]),
            }
            for _ in range(self.rng.randint(1, 4))
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=local_schema())
        with suppress(ReplicaNotOnline, ReplicaWasRestored):
            done = local_write.write_group(
                at.conn, [local_write.LocalRequest(batch)], now_s=at.clock_s, expected=at.expected()
            )
            assert at.memory is not None
            at.memory = (at.memory[0], done.own_max)
            self._note(at)

    def discard(self, at: Machine) -> None:
        at.clock_s += 1
        low, high = sorted((self.rng.choice(KEYS), self.rng.choice(KEYS)))
        name = f"ext_{self.rng.randrange(10**9)}"
        found = Extinction(name, frozenset({self.rng.choice(DATABASES)}), low, high)
        with suppress(ReplicaNotOnline, ReplicaWasRestored):
            csn = write_extinction(at.conn, found, now_s=at.clock_s, expected=at.expected())
            assert at.memory is not None
            at.memory = (at.memory[0], str(csn))

    def _note(self, at: Machine) -> None:
        rows = at.conn.execute(
            "select csn, database, key, payload from replica_changelog where rid = :rid and kind = 'CHANGE'",
            {"rid": at.rid},
        )
        for csn, database, key, payload in rows:
            self.log.setdefault(csn, ((bytes(database), bytes(key)), payload))

    def expected(self) -> dict[Key, tuple[str, bytes | None]]:
        """By the leaf's RUV alone."""
        ruv = self.leaf.state().vectors.ruv
        newest: dict[Key, tuple[str, bytes | None]] = {}
        for csn, (key, value) in sorted(self.log.items()):
            if csn <= ruv.get(Csn(csn).rid, "") and _is_in_part(key):
                newest[key] = (csn, value)
        return self._but_gone(newest)

    def held(self) -> dict[Key, tuple[str, bytes | None]]:
        rows = self.leaf.conn.execute("select database, key, csn, value from replica_entries")
        return self._but_gone({(bytes(d), bytes(k)): (csn, value) for d, k, csn, value in rows})

    def _but_gone(self, found: dict[Key, tuple[str, bytes | None]]) -> dict[Key, tuple[str, bytes | None]]:
        """Without what no replica has to show: extinct keys, and deleted ones up to the leaf's bound."""
        bound = self.leaf.state().replica.buried or ""
        left = {key: each for key, each in found.items() if each[1] is not None or each[0] > bound}
        return self._but_extinct(left)

    def _but_extinct(self, found: dict[Key, tuple[str, bytes | None]]) -> dict[Key, tuple[str, bytes | None]]:
        index = read_index(self.leaf.conn, tables_of(self.leaf.conn))
        return {
            key: each for key, each in found.items() if index.status(*key) is not ExtinctionStatus.EXTINCT
        }

    def bring(self, supplier: Machine) -> None:
        is_new = self.leaf.state().replica.part is None
        mode = TOTAL if is_new or self.rng.random() < 0.1 else SessionMode.INCREMENTAL
        cut = self.rng.randint(0, 3) if self.rng.random() < 0.3 else None
        found = session(supplier, self.leaf, mode=mode, batches_max=cut, part=PART)
        assert found != "PART_DIFFERS", "they agree"
        self.refusals[found] = self.refusals.get(found, 0) + 1
        if found == "UP_TO_DATE":
            self.reached += 1
            self._compare_digests(supplier)
        self.check()

    def _compare_digests(self, supplier: Machine) -> None:
        if supplier.state().vectors.ruv != self.leaf.state().vectors.ruv:
            return
        bound = max(each.state().replica.buried or "" for each in (supplier, self.leaf))
        ours = digest_entries(supplier.conn, part=PART, buried=bound)
        assert ours == digest_entries(self.leaf.conn, buried=bound)
        purged = [each.state().vectors.purged for each in (supplier, self.leaf)]
        for rid, upto in supplier.state().vectors.ruv.items():
            after = max((each[rid] for each in purged if rid in each), default=None)
            ours = digest_changes(supplier.conn, rid, after=after, upto=upto, part=PART)
            assert ours == digest_changes(self.leaf.conn, rid, after=after, upto=upto)

    def check(self) -> None:
        """What is true at every moment."""
        seen = self.leaf.state().replica
        if seen.status in (ReplicaStatus.PARTIAL, ReplicaStatus.RESTORED):
            assert self.is_parted or self.held() == self.expected()
        assert seen.status is not ReplicaStatus.ONLINE or seen.generation == GENERATION
        if seen.part is not None:
            assert seen.part == PART
            assert seen.status is not ReplicaStatus.ONLINE
            [(written,)] = self.leaf.conn.execute("select status from replica_replica")
            assert written not in ("ONLINE", "EMPTY"), "an older version would not know"
        for database, key in self.held():
            assert _is_in_part((database, key))
        for row in self.leaf.conn.execute(
            "select database, key from replica_changelog where kind = 'CHANGE'"
        ):
            assert _is_in_part((bytes(row[0]), bytes(row[1])))
        for each in self.whole:
            assert each.state().replica.part is None

    def attack(self) -> None:
        """Whoever must be refused is."""
        supplier = self.rng.choice(self.whole)
        if self.leaf.state().replica.part is not None:
            mode = self.rng.choice((TOTAL, SessionMode.INCREMENTAL))
            for part in (None, OTHER_PART):
                found = session(supplier, self.leaf, mode=mode, part=part)
                assert found in ("PART_DIFFERS", "SUPPLIER_RESTORED", "SUPPLIER_EMPTY", "CLOCK_SKEW"), found
            assert not self.leaf.write(b"eu-1")
            found = session(self.leaf, supplier, mode=mode)
            assert found.startswith("SUPPLIER_"), found
        other = self.whole[0] if supplier is self.whole[1] else self.whole[1]
        if other.state().vectors.ruv and supplier.state().replica.status is ReplicaStatus.ONLINE:
            for mode in (TOTAL, SessionMode.INCREMENTAL):
                before = other.state()
                assert session(supplier, other, mode=mode, part=PART) == "PART_DIFFERS"
                assert other.state().vectors == before.vectors
        self.check()

    def step(self) -> None:
        pick, at = self.rng.random(), self.rng.choice(self.whole)
        if pick < 0.35:
            self.write(at)
        elif pick < 0.40:
            self.discard(at)
        elif pick < 0.55:
            self.between(at)
        elif pick < 0.80:
            self.bring(at)
        elif pick < 0.86:
            self.attack()
        elif pick < 0.88:
            self._trim(self.rng.choice((*self.whole, self.leaf)))
        elif pick < 0.93:
            self.meet()
            self.purged += sum(each.bury() for each in self.rng.sample((*self.whole, self.leaf), 2))
            self.check()
        elif pick < 0.96:
            each = self.rng.choice((*self.whole, self.leaf))
            self.kept[id(each)] = each.back_up()
        else:
            each = self.rng.choice((at, self.leaf, self.leaf))
            is_whole_machine = self.rng.random() < 0.5
            self.is_parted |= is_whole_machine and each is not self.leaf
            each.put_back(self.kept[id(each)], metadata=is_whole_machine)

    def between(self, at: Machine) -> None:
        other = self.whole[0] if at is self.whole[1] else self.whole[1]
        session(at, other, mode=SessionMode.INCREMENTAL)

    def meet(self) -> None:
        """Everybody hears of everybody, so that tombstones may go."""
        for _ in range(2):
            for each in self.whole:
                self.between(each)
                self.bring(each)

    def _trim(self, at: Machine) -> None:
        ruv = at.state().vectors.ruv
        if at is self.leaf and ruv:
            rid = self.rng.choice(sorted(ruv))
            at.trim(str(ruv[rid]), rid)


def _is_in_part(key: Key) -> bool:
    return key[0] == b"other" or (key[0] == b"db" and key[1].startswith(b"eu-"))


def _run(seed: int, steps: int) -> World:
    """A world in memory where there is room: it makes, and waits for, hundreds of files."""
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        world = World(Path(folder), random.Random(seed))
        try:
            for _ in range(steps):
                world.step()
            return world
        finally:
            world.close()


def test_a_leaf_has_what_its_ruv_and_its_part_say() -> None:
    worlds = [_run(seed, 24) for seed in range(16)]
    assert sum(world.reached for world in worlds) > 40, [world.refusals for world in worlds]
    assert sum(world.purged for world in worlds) > 10


@pytest.mark.long
@pytest.mark.parametrize("share", range(20))
def test_a_leaf_has_what_its_ruv_and_its_part_say_in_many_cases(share: int) -> None:
    """A thousand worlds."""
    worlds = [_run(seed, 60) for seed in range(1_000 + 50 * share, 1_050 + 50 * share)]
    assert sum(world.purged for world in worlds) > 50


# -- directed attacks


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """A supplier with changes of all keys, and a leaf that has copied its part."""
    supplier, leaf = Machine(1, tmp_path / "supplier.db"), Machine(9, tmp_path / "leaf.db")
    supplier.write(b"eu-1", b"us-1")
    assert session(supplier, leaf, mode=TOTAL, part=PART) == "UP_TO_DATE"
    yield supplier, leaf
    supplier.close()
    leaf.close()


def _window(machine: Machine, part: Part | None) -> pa.RecordBatch:
    upto = machine.state().vectors.ruv[machine.rid]
    [found] = WindowReader(
        machine.conn, {machine.rid: Window(None, upto)}, rows_max=1_000, bytes_max=1_000_000, part=part
    )
    return found


def test_changes_of_other_keys_travel_without_key_and_value(pair: tuple[Machine, Machine]) -> None:
    supplier, _ = pair
    whole, sent = _window(supplier, None), _window(supplier, PART)
    assert digests_of(whole) == digests_of(sent)
    rows = decode_arrow(encode_arrow(sent), record_schema(), rows_max=10, bytes_max=10**6).to_pylist()
    assert [(row["kind"], row["key"]) for row in rows] == [("CHANGE", b"eu-1"), ("WITHHELD", b"")]
    assert b"us-1" not in encode_arrow(sent)
    bounds = Bounds(rows_max=10, bytes_max=10**6, part=PART)
    windows = {1: Window(None, supplier.state().vectors.ruv[1])}
    [found] = [
        batch
        for each in plan_slices(supplier.conn, windows, bounds)
        for batch in each.reader(supplier.conn, bounds)
    ]
    assert found == sent
    vectors = supplier.state().vectors
    reader = ClassicReader(supplier.conn, rows_max=10, bytes_max=10**6, part=PART)
    load = reader.next_load(
        Supplier(vectors.ruv, vectors.min, vectors.purged, GENERATION), Consumer({}, GENERATION)
    )
    assert load.batch == sent


def test_small_changes_of_other_keys_fit_into_a_batch(pair: tuple[Machine, Machine]) -> None:
    """The digest of a change may be longer than the change."""
    supplier, _ = pair
    supplier.write(*(b"%d" % number for number in range(200)), value=b"")
    vectors, bytes_max = supplier.state().vectors, 12_000
    reader = ClassicReader(supplier.conn, rows_max=1_000, bytes_max=bytes_max, part=PART)
    load = reader.next_load(
        Supplier(vectors.ruv, vectors.min, vectors.purged, GENERATION), Consumer({}, GENERATION)
    )
    window = WindowReader(
        supplier.conn, {1: Window(None, vectors.ruv[1])}, rows_max=1_000, bytes_max=bytes_max, part=PART
    )
    for batch in (load.batch, *window):
        assert len(batch) > 1
        assert (
            decode_arrow(encode_arrow(batch), record_schema(), rows_max=1_000, bytes_max=bytes_max) == batch
        )


def test_a_key_that_a_leaf_does_not_hold_has_no_history_there(pair: tuple[Machine, Machine]) -> None:
    supplier, leaf = pair
    supplier.write(b"us-1", b"eu-1")
    assert session(supplier, leaf, part=PART) == "UP_TO_DATE"
    assert read_key_history(leaf.conn, b"db", b"eu-1", before=None, rows_max=9, bytes_max=9).changes
    for database, key in ((b"db", b"us-1"), (b"db", b"eu"), (b"third", b"eu-1")):
        with pytest.raises(ReplicaPartial):
            read_key_history(leaf.conn, database, key, before=None, rows_max=9, bytes_max=9)
    assert read_key_history(supplier.conn, b"db", b"us-1", before=None, rows_max=9, bytes_max=9).changes


def _wanted(
    supplier: Machine, mode: SessionMode, *, part: Part | None = None, holds: Part | None = None
) -> Acquire:
    now = Csn.of(supplier.clock_s, 0, 1)
    ruv = supplier.state().vectors.ruv
    return Acquire("rps_1", mode, "s", 1, GENERATION, ruv, now, 60.0, part=part, holds=holds)


def test_a_copy_of_other_keys_is_refused_in_the_middle(tmp_path: Path) -> None:
    supplier, leaf = Machine(1, tmp_path / "supplier.db"), Machine(9, tmp_path / "leaf.db")
    supplier.write(b"eu-1", b"us-1")
    now_s = supplier.clock_s
    epoch = acquire(leaf.conn, _wanted(supplier, TOTAL, part=PART), now_s=now_s).epoch
    with pytest.raises(PartDiffers):
        apply_entries(
            leaf.conn,
            Ticket("rps_1", epoch, 1),
            read_entries(supplier.conn, after=None, rows_max=9),
            now_s=now_s,
        )
    assert leaf.entries() == {}
    supplier.close()
    leaf.close()


@pytest.mark.parametrize("mode", SessionMode)
def test_a_supplier_that_says_it_is_partial_brings_nothing(
    pair: tuple[Machine, Machine], tmp_path: Path, mode: SessionMode
) -> None:
    supplier, leaf = pair
    third = Machine(3, tmp_path / "third.db")
    for consumer in (leaf, third):
        for parts in ({"holds": PART}, {"holds": PART, "part": PART}):
            before = consumer.state(), consumer.entries()
            with pytest.raises(SupplierPartial):
                acquire(consumer.conn, _wanted(supplier, mode, **parts), now_s=supplier.clock_s)
            assert (consumer.state(), consumer.entries()) == before
    third.close()


def test_a_supplier_that_forgets_the_part_in_the_middle_is_refused(pair: tuple[Machine, Machine]) -> None:
    supplier, leaf = pair
    supplier.write(b"us-2")
    seen = supplier.state()
    now_s = supplier.clock_s = leaf.clock_s = supplier.clock_s + 1
    wanted = _wanted(supplier, SessionMode.INCREMENTAL, part=PART)
    epoch = acquire(leaf.conn, wanted, now_s=now_s).epoch
    before = leaf.log(), leaf.entries(), leaf.state()
    upto, after = seen.vectors.ruv[1], leaf.state().vectors.ruv[1]
    [batch] = WindowReader(supplier.conn, {1: Window(after, upto)}, rows_max=10, bytes_max=10**6)
    with pytest.raises(PartDiffers):
        apply_batch(leaf.conn, Ticket("rps_1", epoch, 1), batch, now_s=now_s, trusted_rids=(1,))
    assert (leaf.log(), leaf.entries(), leaf.state()) == before


def test_a_leaf_that_was_made_to_look_whole_brings_nothing_to_a_whole_replica(
    pair: tuple[Machine, Machine], tmp_path: Path
) -> None:
    """Its row says ONLINE and its part is gone: what was withheld from it is known by its records."""
    supplier, leaf = pair
    supplier.write(b"us-2", b"eu-2")
    assert session(supplier, leaf, part=PART) == "UP_TO_DATE"
    third = Machine(3, tmp_path / "third.db")
    assert session(supplier, third, mode=TOTAL) == "UP_TO_DATE"
    supplier.write(b"us-3")
    assert session(supplier, leaf, part=PART) == "UP_TO_DATE"
    leaf.conn.execute("update replica_replica set status = 'ONLINE'")
    assert leaf.state().replica.status is ReplicaStatus.PARTIAL
    assert session(leaf, third) == "SUPPLIER_PARTIAL"
    leaf.conn.execute("update replica_replica set layout_version = 2")
    before = third.log()
    assert session(leaf, third) == "PART_DIFFERS"
    assert third.log() == before
    third.close()


@pytest.mark.parametrize(
    "spoilt", ["delete from replica_part", "update replica_part set keys = '[]'", "drop table replica_part"]
)
def test_a_leaf_whose_part_is_lost_is_unknown(pair: tuple[Machine, Machine], spoilt: str) -> None:
    _, leaf = pair
    leaf.conn.execute(spoilt)
    with pytest.raises(LayoutUnknown):
        snapshot(leaf.conn)


def test_half_a_copy_of_a_part_is_gone_on_with_by_nobody_else(tmp_path: Path) -> None:
    """The supplier, or the leaf, was killed in the middle of the copy: what is there is a part of a part."""
    supplier, leaf = Machine(1, tmp_path / "supplier.db"), Machine(9, tmp_path / "leaf.db")
    supplier.write(b"eu-1", b"eu-2", b"us-1")
    acquire(leaf.conn, _wanted(supplier, TOTAL, part=PART), now_s=supplier.clock_s)
    leaf.conn.execute("update replica_session set expires_at_s = 1")
    leaf.close()
    leaf.open()
    state = leaf.state().replica
    assert (state.status, state.part) == (ReplicaStatus.INITIALIZING, PART)
    assert not leaf.write(b"eu-1")
    for mode in (TOTAL, SessionMode.INCREMENTAL):
        for part in (None, OTHER_PART):
            assert session(supplier, leaf, mode=mode, part=part) == "PART_DIFFERS"
    assert session(supplier, leaf, mode=TOTAL, part=PART) == "UP_TO_DATE"
    assert set(leaf.entries()) == {b"eu-1", b"eu-2"}
    assert leaf.state().replica.status is ReplicaStatus.PARTIAL
    supplier.close()
    leaf.close()


def test_a_partial_replica_is_in_no_file(pair: tuple[Machine, Machine], tmp_path: Path) -> None:
    _, leaf = pair
    with (tmp_path / "file").open("wb") as out, pytest.raises(ReplicaNotOnline):
        take_snapshot(
            leaf.conn, out, now_s=leaf.clock_s, shown=lambda _seen: None, told=lambda _rows, _size: None
        )


def test_a_layout_of_before_is_not_raised_by_an_upgrade(pair: tuple[Machine, Machine]) -> None:
    supplier, leaf = pair
    for machine, version in ((supplier, 2), (leaf, 3)):
        machine.close()
        machine.open()
        [(found,)] = machine.conn.execute("select layout_version from replica_replica")
        assert found == version


def test_the_feed_of_a_leaf_passes_over_what_was_withheld(pair: tuple[Machine, Machine]) -> None:
    supplier, leaf = pair
    supplier.write(b"us-2", b"eu-2", b"us-3")
    assert session(supplier, leaf, part=PART) == "UP_TO_DATE"
    for keys in (None, Keys(b"db", b"eu-")):
        page = read_feed(leaf.conn, Starting.EARLIEST, keys=keys, rows_max=10, bytes_max=10**6)
        assert ([record.key for record in page.records], page.more) == ([b"eu-2"], False)
