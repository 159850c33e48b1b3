"""A snapshot of a replica, put into a blank one: it goes on as a copy would; damaged files change nothing."""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from spark.formats.csn import Csn
from spark.replication.errors import ReplicationRefused
from spark.replication.proofs.values import History
from spark.replication.records import entry_schema, record_schema
from spark.replication.replica import replica
from spark.replication.snapshots import form
from spark.replication.snapshots import take as taking
from spark.replication.snapshots.form import (
    EXTINCTIONS,
    Manifest,
    SnapshotDamaged,
    SnapshotWriter,
    read_manifest,
)
from spark.replication.snapshots.place import Placed, place_snapshot
from tests.spark.replication.history_sites import GENERATION, Machine, session
from tests.spark.replication.test_copy_resumed import entries

INCARNATION = "inc_import"


def export(machine: Machine, path: Path, *, part_rows: int = 7) -> Path:
    with path.open("wb") as out:
        taking.take_snapshot(
            machine.conn,
            out,
            now_s=machine.clock_s,
            shown=lambda _seen: None,
            told=lambda _rows, _size: None,
            part_rows=part_rows,
        )
    return path


def put_in(machine: Machine, path: Path, *, told: object = None, incarnation: str = INCARNATION) -> Placed:
    manifest = read_manifest(path)
    adopted: list[tuple[str, Csn | None]] = []
    with machine.conn.transaction():
        placed = place_snapshot(
            machine.conn,
            path,
            manifest,
            incarnation=incarnation,
            adopt=lambda *heard: adopted.append(heard),
            now_s=machine.clock_s,
            ahead_max_s=300,
            told=told if callable(told) else lambda _rows: None,
        )
    if adopted:
        machine.memory = adopted[0]
    return placed


def blank(rid: int, path: Path, clock_s: int) -> Machine:
    return Machine(rid, path, clock_s=clock_s)


def state_of(machine: Machine) -> list[object]:
    names = ("replica", "generator", "ruv", "entries", "changelog", "points", "known_keys", "session")
    return [machine.conn.execute(f"select * from replica_{name} order by 1, 2") for name in names]


def level(one: Machine, other: Machine) -> None:
    assert entries(one) == entries(other)
    assert one.state().vectors.ruv == other.state().vectors.ruv


def run(folder: Path, seed: int) -> None:
    """Random writes of two replicas, an export, more writes, an import, and ordinary sessions after it."""
    dice = random.Random(seed)
    one, other = Machine(1, folder / "one.db"), Machine(3, folder / "three.db")
    machines = [one, other]
    try:
        for _ in range(dice.randrange(1, 5)):
            writer = dice.choice(machines)
            writer.clock_s = max(each.clock_s for each in machines)
            keys = dice.sample(range(40), dice.randrange(1, 12))
            writer.write(*(b"k%02d" % key for key in keys), value=b"%d" % dice.randrange(99))
            if dice.random() < 0.6:
                session(*dice.sample(machines, 2))
        path = export(one, folder / "snapshot", part_rows=dice.randrange(1, 9))
        kept = entries(one)
        ruv = dict(one.state().vectors.ruv)
        for _ in range(dice.randrange(3)):
            one.write(b"k%02d" % dice.randrange(60), value=b"later")
        two = blank(2, folder / "two.db", max(each.clock_s for each in machines))
        machines.append(two)
        assert put_in(two, path).entries == len(kept)
        assert (entries(two), two.state().vectors.ruv) == (kept, ruv)
        assert put_in(two, path).again
        # An ordinary session goes on from there, both ways; no total initialisation.
        outcome = session(one, two)
        assert outcome == "UP_TO_DATE", outcome
        level(one, two)
        two.write(b"own", value=b"of two")
        assert session(two, one) == "UP_TO_DATE"
        assert session(other, one) in ("UP_TO_DATE", "UNPROVEN")
        assert session(one, two) == "UP_TO_DATE"
        level(one, two)
    finally:
        for machine in machines:
            machine.close()


@pytest.mark.parametrize("seed", range(30))
def test_a_replica_that_was_imported_goes_on_with_ordinary_sessions(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.long
def test_a_thousand_replicas_that_were_imported(tmp_path: Path) -> None:
    for seed in range(1_000, 2_000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        run(folder, seed)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """An export of a replica of twenty entries."""
    machine = Machine(1, tmp_path / "one.db")
    machine.write(*(b"k%02d" % number for number in range(20)))
    path = export(machine, tmp_path / "snapshot")
    machine.close()
    return path


@pytest.fixture
def two(tmp_path: Path) -> Machine:
    return blank(2, tmp_path / "two.db", 1_800_000_100)


def refused(machine: Machine, path: Path) -> str:
    before = state_of(machine)
    with pytest.raises(ReplicationRefused) as found:
        put_in(machine, path)
    assert state_of(machine) == before
    return found.value.code


def test_a_file_that_was_cut_short_or_changed_is_refused(written: Path, two: Machine, tmp_path: Path) -> None:
    whole = written.read_bytes()
    dice = random.Random(5)
    end = len(whole) - len(whole.rstrip(b"\0"))
    damaged = tmp_path / "damaged"
    for length in [0, 1, 511, 512, *(dice.randrange(len(whole) - end) for _ in range(40))]:
        damaged.write_bytes(whole[:length])
        assert refused(two, damaged) == "SNAPSHOT_DAMAGED"
    changed = 0
    for _ in range(150):
        place = dice.randrange(len(whole) - end)
        other = bytearray(whole)
        other[place] ^= 1 << dice.randrange(8)
        damaged.write_bytes(other)
        try:
            manifest = read_manifest(damaged)
        except SnapshotDamaged:
            changed += 1
            assert refused(two, damaged) == "SNAPSHOT_DAMAGED"
        else:  # a bit of a tar header, or of the blanks of the manifest, that says nothing
            assert manifest == read_manifest(written)
    assert changed > 100
    assert put_in(two, written).entries == 20


def _forged(written: Path, path: Path, edit: object) -> Path:
    """The same parts, and another manifest."""
    assert callable(edit)
    with tarfile.open(written) as old, tarfile.open(path, "w") as new:
        for member in old:
            held = old.extractfile(member)
            assert held is not None
            body = held.read()
            if member.name == "manifest.json":
                document = json.loads(body)
                edit(document)
                body = json.dumps(document).encode()
                member.size = len(body)
            new.addfile(member, io.BytesIO(body))
    return path


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda found: found["ruv"].update({"9": str(Csn.of(1_800_000_000, 0, 9))}), id="ruv"),
        pytest.param(lambda found: found.update(entries=19), id="count"),
        pytest.param(lambda found: found.update(generation=str(Csn.of(5, 0, 1))), id="generation"),
        pytest.param(lambda found: found["parts"].pop(), id="a-part-less"),
        pytest.param(lambda found: found["parts"].reverse(), id="another-order"),
        pytest.param(lambda found: found.update(signature=""), id="no-signature"),
        pytest.param(lambda found: found.update(format=2), id="a-later-format"),
        pytest.param(lambda found: found.pop("history"), id="no-history"),
    ],
)
def test_a_manifest_that_its_replica_has_not_signed_is_refused(
    written: Path, two: Machine, tmp_path: Path, edit: object
) -> None:
    assert refused(two, _forged(written, tmp_path / "forged", edit)) == "SNAPSHOT_DAMAGED"


KEY = Ed25519PrivateKey.generate()
AT = str(Csn.of(1_800_000_000, 0, 1))


def _made_up(path: Path, name: str, rows: pa.RecordBatch) -> Path:
    """A snapshot of one part, well signed by a replica that nobody knows."""
    public = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    with path.open("wb") as out:
        writer = SnapshotWriter(out)
        writer.put(name, rows)
        manifest = Manifest(
            1,
            GENERATION,
            {1: Csn(AT)},
            History(public),
            1_800_000_000,
            entries=0 if name == EXTINCTIONS else rows.num_rows,
            extinctions=rows.num_rows if name == EXTINCTIONS else 0,
            parts=tuple(writer.parts),
        )
        writer.end(replace(manifest, signature=KEY.sign(manifest.to_sign)))
    return path


def test_a_small_file_that_stands_for_more_than_fits_into_memory_is_refused(
    two: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [b"%04d" % number for number in range(500)]
    columns = [[b"d"] * 500, keys, [bytes(10_000)] * 500, [AT] * 500, [False] * 500]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(column, each.type) for column, each in zip(columns, entry_schema(), strict=True)],
        schema=entry_schema(),
    )
    path = _made_up(tmp_path / "bomb", "entries-000001.parquet", rows)
    assert path.stat().st_size < 40_000
    with monkeypatch.context() as patched:
        patched.setattr(form, "ROWS_MAX_BYTES", 1_000_000)
        assert refused(two, path) == "SNAPSHOT_DAMAGED"
    assert put_in(two, path).entries == 500


@pytest.mark.parametrize(("kind", "payload"), [("EXTINCTION", None), ("CHANGE", b"value")])
def test_a_record_that_is_no_extinction_is_refused(
    two: Machine, tmp_path: Path, kind: str, payload: bytes | None
) -> None:
    record = {"csn": AT, "kind": kind, "database": b"d", "key": b"k", "payload": payload}
    rows = pa.RecordBatch.from_pylist([record], schema=record_schema())
    assert refused(two, _made_up(tmp_path / "made-up", EXTINCTIONS, rows)) == "SNAPSHOT_DAMAGED"


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.FIFOTYPE])
def test_a_header_that_is_of_no_file_is_refused_before_it_is_read(
    two: Machine, tmp_path: Path, kind: bytes
) -> None:
    path, member = tmp_path / "headers", tarfile.TarInfo("x")
    member.type, member.size = kind, 3 << 30
    with path.open("wb") as out:
        out.write(member.tobuf(tarfile.GNU_FORMAT))
        out.truncate(3 << 30)
    assert refused(two, path) == "SNAPSHOT_DAMAGED"


def test_a_pipe_is_no_snapshot_and_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        read_manifest(tmp_path / "pipe")


def test_a_replica_that_holds_anything_takes_no_snapshot(written: Path, two: Machine) -> None:
    two.write(b"own")
    assert refused(two, written) == "REPLICA_NOT_BLANK"


def test_a_replica_of_the_same_number_takes_no_snapshot(written: Path, tmp_path: Path) -> None:
    same = blank(1, tmp_path / "same.db", 1_800_000_100)
    assert refused(same, written) == "DUPLICATE_RID"


def test_a_replica_of_another_generation_takes_no_snapshot(written: Path, two: Machine) -> None:
    two.conn.execute(f"update replica_replica set generation = '{Csn.of(7, 0, 2)}'")
    assert refused(two, written) == "GENERATION_MISMATCH"
    two.conn.execute(f"update replica_replica set generation = '{GENERATION}'")
    assert put_in(two, written).entries == 20


def test_a_replica_that_knows_another_key_of_that_number_takes_no_snapshot(
    written: Path, two: Machine
) -> None:
    two.conn.execute("insert into replica_known_keys (rid, public_key) values (1, :key)", {"key": b"k" * 32})
    assert refused(two, written) == "DUPLICATE_RID"


def test_a_snapshot_from_the_future_is_refused(written: Path, two: Machine) -> None:
    two.clock_s -= 10_000
    assert refused(two, written) == "CLOCK_SKEW"


@pytest.mark.parametrize("step", [7, 14, 20])
def test_an_import_that_dies_leaves_the_replica_blank(written: Path, two: Machine, step: int) -> None:
    def dies(rows: int) -> None:
        if rows >= step:
            raise KeyboardInterrupt

    before = state_of(two)
    with pytest.raises(KeyboardInterrupt):
        put_in(two, written, told=dies)
    assert state_of(two) == before
    assert put_in(two, written).entries == 20


def test_an_export_is_of_one_moment(tmp_path: Path) -> None:
    """Writes between two parts are not in it."""
    machine, writer = Machine(1, tmp_path / "one.db"), Machine(1, tmp_path / "one.db")
    for each in (machine, writer):  # as the file of a store is
        each.conn.execute("pragma journal_mode = wal")
    machine.write(*(b"k%02d" % number for number in range(20)))
    kept = entries(machine)

    def told(rows: int, _size: int) -> None:
        writer.conn.execute("update replica_entries set value = :value", {"value": b"%d" % rows})

    with (tmp_path / "snapshot").open("wb") as out:
        taking.take_snapshot(
            machine.conn,
            out,
            now_s=machine.clock_s,
            shown=lambda _seen: None,
            told=told,
            part_rows=3,
        )
    target = blank(2, tmp_path / "two.db", machine.clock_s + 1)
    put_in(target, tmp_path / "snapshot")
    assert entries(target) == kept


def test_a_replica_that_is_not_online_exports_nothing(tmp_path: Path) -> None:
    machine = Machine(1, tmp_path / "one.db")
    machine.write(b"k")
    replica.mark_restored(machine.conn, upto=str(Csn.of(1_900_000_000, 0, 1)))
    with pytest.raises(ReplicationRefused):
        export(machine, tmp_path / "snapshot")
    with pytest.raises(SnapshotDamaged):
        read_manifest(tmp_path / "snapshot")
