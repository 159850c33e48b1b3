"""Single cases of captures anew that chance would hardly find."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.symmetricds import Place, Rows, create, snapshot
from tests.spark.upkeep.recapture.after import new_rows
from tests.spark.upkeep.recapture.case import Case, case_of
from tests.spark.upkeep.recapture.ground import Ground, delete, insert, install, make, update
from tests.spark.upkeep.recapture.hands import Hand, hand
from tests.spark.upkeep.recapture.model import KEY_UNREADABLE, NOT_CAPTURED
from tests.spark.upkeep.recapture.recapture_run import run_of
from tests.spark.upkeep.recapture.shapes import ITEM, Column, Shape
from tests.spark.upkeep.recapture.stranding import strand_all
from tests.spark.upkeep.recapture.triggers import Capture

ALWAYS = Capture("t", 1, ITEM, ITEM.names, ITEM.key)


def _item(key: int, name: str = "first") -> dict[str, Any]:
    return {"id": key, "name": name, "price": Decimal("1.5")}


def _ground(place: Place, work: Callable[[Hand], None], captures: Iterable[Capture] = (ALWAYS,)) -> Ground:
    """One table after some work, all of it stranded."""
    ground = make(place, [ITEM], captures)
    with hand(place) as worker:
        work(worker)
    strand_all(ground)
    return ground


def _here_and_gone(worker: Hand) -> None:
    insert(worker, ITEM, _item(1))
    insert(worker, ITEM, _item(2))
    update(worker, ITEM, (1,), {"name": "second"})
    delete(worker, ITEM, (2,))


def _purged(ground: Ground, *, rows: int = 500) -> tuple[Case, Rows, dict[str, tuple[int, list[int]]]]:
    """The case before, all rows after, and what is still stranded."""
    case = case_of(ground, "single")
    run = run_of(ground.place, rows=rows)
    run.plan()
    run.run()
    return case, snapshot(ground.place), run.remaining()


def test_layout_without_prerouting_is_captured_anew(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/x.db")
    create(place)
    with hand(place) as worker:
        worker.run("alter table sym_data drop column is_prerouted")
    case, _, _ = _purged(_ground(place, _here_and_gone))
    assert len(case.model.gone()) == 3
    case.check()


@pytest.mark.parametrize("encoding", ["text", "text_ms", "text_s", "epoch_ms"])
def test_copy_of_a_delete_has_a_time_as_its_column_has_them(tmp_path: Path, encoding: Any) -> None:
    place = Place(f"sqlite:///{tmp_path}/x.db", encoding=encoding)
    create(place)
    case, after, _ = _purged(_ground(place, _here_and_gone))
    (copied,) = [row for row in new_rows(case.model, after) if row["event_type"] == "D"]
    old = next(each.row for each in case.model.verdicts if each.row["event_type"] == "D")
    assert type(copied["create_time"]) is type(old["create_time"])
    assert copied["create_time"] > old["create_time"]
    if encoding == "epoch_ms":
        assert len(str(copied["create_time"])) == len(str(old["create_time"])), "of the same unit"
    else:
        assert datetime.fromisoformat(copied["create_time"])


def test_tables_of_other_schemas_and_prefixes_are_found(postgresql_url: str) -> None:
    place = Place(postgresql_url, schema="Sym X", prefix="My_")
    create(place)
    shape = Shape(ITEM.name, ITEM.columns, ITEM.key, schema="Shop %")
    ground = Ground(place, (shape,))
    with hand(place) as worker:
        worker.run('create schema "Shop %"')
        worker.run("create table item (id text primary key, name text)")  # of another schema: not meant
        worker.run("insert into item values ('1', 'not meant'), ('2', 'not meant')")
        worker.run(shape.create("postgresql"))
        install(ground, worker, [Capture("t", 1, shape, shape.names, shape.key)], schema="Shop %")
        insert(worker, shape, _item(1))
        insert(worker, shape, _item(2))
        delete(worker, shape, (2,))
    strand_all(ground)
    case, _, _ = _purged(ground)
    assert len(case.model.gone()) == 2
    case.check()


def test_one_trigger_of_many_tables_is_asked_table_by_table(place: Place) -> None:
    """What it captures of one table says nothing of another, where it captures no updates."""
    other = Shape("aaa", ITEM.columns, ITEM.key)
    captures = [ALWAYS, Capture("t", 2, other, other.names, other.key, "none")]
    ground = make(place, [ITEM, other], captures)
    with hand(place) as worker:
        for shape in (ITEM, other, ITEM, other):
            insert(worker, shape, _item(1 if not worker.run(f"select 1 from {shape.name}") else 2))
    strand_all(ground)
    case = case_of(ground, "wildcard")
    rows = [each.data_id for each in case.model.verdicts]
    run = run_of(place)
    run.run()
    left = {row["data_id"] for row in snapshot(place)["data"]}
    assert [data_id in left for data_id in rows] == [False, True, False, True]
    assert run.remaining() == {NOT_CAPTURED: (2, [rows[1], rows[3]])}


@pytest.mark.parametrize("text", ["abc", "", "1x", "99999999999999999999999999", "1e400", "0x1", "1.5"])
def test_texts_that_are_no_integer_trouble_nobody(place: Place, text: str) -> None:
    """What was captured of them stays, or it is a delete of a key that cannot be; the others go."""
    _ground(place, _here_and_gone)
    with hand(place) as worker:
        worker.run(f"update sym_data set pk_data = '\"{text}\"' where event_type = 'D'")
        worker.run(
            f"insert into sym_data (table_name, event_type, trigger_hist_id, row_data, create_time)"
            f" select table_name, 'I', trigger_hist_id, '\"{text}\",\"x\",', create_time"
            " from sym_data where event_type = 'D'"
        )
    before = snapshot(place)["data"]
    run = run_of(place)
    run.plan()
    run.run()
    left = {row["data_id"] for row in snapshot(place)["data"]}
    gone = [row for row in before if row["data_id"] not in left]
    assert [row["event_type"] for row in gone if '"1"' in (row["pk_data"] or row["row_data"])] == ["I", "U"]
    if text != "1.5":
        kept = run.remaining().get(KEY_UNREADABLE, (0, []))
        assert kept[0] == 1, "the delete cannot be read"


def _veto(worker: Hand) -> None:
    """Somebody has forbidden updates, without a word."""
    if worker.dialect == "postgresql":
        worker.run("create function veto() returns trigger as $$ begin return null; end $$ language plpgsql")
        worker.run("create trigger veto before update on item for each row execute procedure veto()")
    else:
        worker.run("create trigger veto before update on item begin select raise(ignore); end")


@pytest.mark.parametrize("place", ["sqlite-3.x", "postgresql-3.x"], indirect=True)
def test_row_that_must_not_be_updated_is_not_taken_for_gone(place: Place) -> None:
    """A copied delete would take it from other nodes."""

    def work(worker: Hand) -> None:
        insert(worker, ITEM, _item(1))
        delete(worker, ITEM, (1,))
        insert(worker, ITEM, _item(1))
        _veto(worker)

    case, after, kept = _purged(_ground(place, work))
    assert new_rows(case.model, after) == []
    assert kept == {NOT_CAPTURED: (3, [each.data_id for each in case.model.verdicts])}


def test_key_that_the_server_makes_by_itself_troubles_nobody(postgresql_url: str) -> None:
    """`update t set id = id` is refused where id is always generated."""
    place = Place(postgresql_url)
    create(place)
    column = Column("id", "int", "bigint generated always as identity")
    shape = Shape("made", (column, Column("name", "text")), ("id",))
    ground = make(place, [ITEM, shape], [ALWAYS, Capture("m", 2, shape, shape.names, shape.key)])
    with hand(place) as worker:
        insert(worker, shape, {"name": "x"})
        insert(worker, shape, {"name": "y"})
        delete(worker, shape, (2,))
        _here_and_gone(worker)
    strand_all(ground)
    case, after, kept = _purged(ground)
    left = {row["data_id"] for row in after["data"]}
    of_item = [each.data_id for each in case.model.verdicts if each.key and each.key[0] == "item"]
    assert len([data_id for data_id in of_item if data_id not in left]) == 3
    assert sum(count for count, _ in kept.values()) == len([d for d in left if d in _ids(case)])


def _ids(case: Case) -> set[int]:
    return {each.data_id for each in case.model.verdicts}


def test_column_that_notes_the_time_of_changes_stays_as_it_is(mariadb_url: str) -> None:
    place = Place(mariadb_url)
    create(place)
    noted = Column("at", "moment", "timestamp(6) null default '2020-01-02' on update current_timestamp(6)")
    shape = Shape("noted", (*ITEM.columns, noted), ("id",))
    ground = make(place, [shape], [Capture("n", 1, shape, ITEM.names, shape.key)])
    with hand(place) as worker:
        insert(worker, shape, _item(1))
    strand_all(ground)
    case, _, _ = _purged(ground)
    assert len(case.model.gone()) == 1
    case.check()


@pytest.mark.parametrize("is_named_today", [False, True])
def test_histories_with_and_without_a_place_are_of_one_table(served: Place, is_named_today: bool) -> None:
    """SymmetricDS leaves the place out where it is its own; a setting of the trigger may name it."""
    ground = _ground(served, _here_and_gone)
    columns = "trigger_id, source_table_name, column_names, pk_column_names, last_trigger_build_reason"
    catalog = f"'{ground.database}'"
    schema = "'public'" if served.dialect == "postgresql" else "null"
    own, other = ("null", "null"), (catalog, schema)
    before, today = (own, other) if is_named_today else (other, own)
    history = served.name("trigger_hist")
    with hand(served) as worker:
        worker.run(
            f"insert into {history} (trigger_hist_id, {columns}, create_time, source_catalog_name,"
            f" source_schema_name) select 900, {columns}, create_time, {before[0]}, {before[1]}"
            f" from {history} where trigger_hist_id = 1"
        )
        worker.run(
            f"update {history} set source_catalog_name = {today[0]}, source_schema_name = {today[1]}"
            " where trigger_hist_id = 1"
        )
        worker.run(f"update {served.name('data')} set trigger_hist_id = 900 where trigger_hist_id = 1")
    case, _, kept = _purged(ground)
    assert len(case.model.gone()) > 1
    assert NOT_CAPTURED not in kept
    case.check()


def test_key_that_an_update_has_changed_is_not_lost(place: Place) -> None:
    """The update of key 1 to key 2 is the only row that says of key 2; then key 1 came again."""

    def work(worker: Hand) -> None:
        insert(worker, ITEM, _item(1))
        worker.run(f"delete from {place.name('data')}")  # delivered
        update(worker, ITEM, (1,), {"id": 2})
        insert(worker, ITEM, _item(1, "again"))

    case, after, _ = _purged(_ground(place, work))
    change = case.model.verdicts[0]
    stays = change.data_id in {row["data_id"] for row in after["data"]}
    told = any('"2"' in (row["row_data"] or "") for row in new_rows(case.model, after))
    assert stays or told, "nothing tells other nodes of key 2 any more"


TYPES: dict[str, tuple[tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...]]] = {
    "sqlite": (
        (
            *(("INT", 5), ("BIGINT", -5), ("SMALLINT", 3), ("INTEGER", 2**40), ("NUMERIC", 7)),
            *(
                ("DECIMAL(5,1)", 1),
                ("CHAR(3)", "abc"),
                ("VARCHAR", "x'y"),
                ("TEXT", "t"),
                ("varchar(9)", "low"),
            ),
        ),
        (
            *(("REAL", 1.5), ("BLOB", "b"), ("DATE", "2026-01-01"), ("TIMESTAMP", "2026-01-01 00:00:00")),
            ("BOOLEAN", 1),
        ),
    ),
    "postgresql": (
        (
            *(("smallint", 3), ("integer", -(2**31)), ("bigint", 2**62), ("numeric", Decimal("1.500"))),
            *(("numeric(30,10)", Decimal("12345678901234567890.5")), ("char(5)", "ab"), ("varchar", "x'y")),
            *(("text", "back\\slash"), ("date", date(2026, 1, 2))),
            ("uuid", "0000000A-aaaa-4bbb-8ccc-000000000001"),
        ),
        (
            *(("boolean", "true"), ("real", 1.5), ("double precision", 0.1), ("time", "10:00")),
            *(("timestamp", "2026-01-02 03:04:05"), ("interval", "1 day"), ("inet", "10.0.0.1")),
        ),
    ),
    "mariadb": (
        (
            *(("tinyint", 3), ("int unsigned", 2**32 - 1), ("bigint", -(2**62)), ("bigint unsigned", 5)),
            *(("bigint(20) unsigned", 2**64 - 1), ("decimal(20,5)", Decimal("-1.5")), ("char(5)", "ab")),
            *(("varchar(20)", "x'y\\"), ("date", "2026-01-02")),
        ),
        (
            *(("enum('a','b')", "a"), ("set('a','b')", "a"), ("datetime", "2026-01-02 03:04:05")),
            *(("double", 1.5), ("float", 0.5), ("time", "10:00:00"), ("year", 2026)),
        ),
    ),
}


def test_types_of_keys_are_read_or_named(place: Place) -> None:
    """Of each type: a row that was inserted, deleted and inserted again; and one that was deleted."""
    readable, unreadable = TYPES[place.dialect]
    shapes: list[tuple[Shape, Any]] = [
        (_of_type(number, name), value) for number, (name, value) in enumerate([*readable, *unreadable])
    ]
    captures = [
        Capture(f"t{n}", n, shape, shape.names, shape.key) for n, (shape, _) in enumerate(shapes, start=1)
    ]
    ground = make(place, [shape for shape, _ in shapes], captures)
    with hand(place) as worker:
        for shape, value in shapes:
            for _ in range(2):
                insert(worker, shape, {"note": "x", "k": value})
                worker.run(f"delete from {shape.name}")
            insert(worker, shape, {"note": "y", "k": value})
    strand_all(ground)
    before = snapshot(place)["data"]
    run = run_of(place)
    run.run()
    left = {row["data_id"] for row in snapshot(place)["data"]}
    stayed = {
        shape.columns[1].declared
        for (shape, _) in shapes
        for row in before
        if row["table_name"] == shape.name and row["data_id"] in left
    }
    assert stayed == {name for name, _ in unreadable}
    assert set(run.remaining()) == {KEY_UNREADABLE}


def _of_type(number: int, declared: str) -> Shape:
    """A table whose key is of a type; strange ones are captured as texts."""
    kind: Any = "text"
    if any(word in declared.lower() for word in ("int", "numeric", "decimal")) and declared != "interval":
        kind = "int"
    elif declared == "date":
        kind = "date"
    return Shape(f"k{number}", (Column("note", "text"), Column("k", kind, declared)), ("k",))
