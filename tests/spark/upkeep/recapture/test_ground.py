"""The ground, the triggers and the model by themselves: a purge by hand is what the checks ask for."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import pytest

from tests.oracles.symmetricds import Place, snapshot
from tests.spark.upkeep.recapture import ground as grounds
from tests.spark.upkeep.recapture.by_hand import recapture_by_hand
from tests.spark.upkeep.recapture.case import case_of, random_case
from tests.spark.upkeep.recapture.hands import hand
from tests.spark.upkeep.recapture.shapes import ITEM
from tests.spark.upkeep.recapture.stranding import strand_all
from tests.spark.upkeep.recapture.texts import NotReadable, parse, write
from tests.spark.upkeep.recapture.triggers import Capture


def test_texts_are_read_as_they_were_written() -> None:
    values = ['"', "\\", "", None, 'a"b\\c,d\ne', "漢"]
    assert parse(write(values)) == values
    assert write(["a", None, ""]) == '"a",,""'
    assert parse("") == [None]
    assert parse('"a",') == ["a", None]


@pytest.mark.parametrize("text", ['"a', '"a\\', "a", '"a"b', '"a" ,"b"'])
def test_texts_that_no_trigger_writes_are_refused(text: str) -> None:
    with pytest.raises(NotReadable):
        parse(text)


def test_triggers_write_what_symmetricds_writes(place: Place) -> None:
    """Of an insert, an update, a touch and a delete, with each variant."""
    grounds.clear(place)
    captures = [
        Capture(f"t{number}", number + 1, ITEM, ("name", "id", "price"), ("id",), variant, "sale", "name")
        for number, variant in enumerate(("always", "changed", "condition", "none"))
    ]
    grounds.make(place, [ITEM], captures)
    with hand(place) as worker:
        grounds.insert(worker, ITEM, {"id": 7, "name": 'say "x" \\, o\'neil', "price": Decimal("1.5")})
        grounds.update(worker, ITEM, (7,), {"id": 7})
        grounds.update(worker, ITEM, (7,), {"name": None, "price": None})
        grounds.delete(worker, ITEM, (7,))
    rows = snapshot(place)["data"]
    price = "1.5" if place.dialect == "sqlite" else "1.50"
    full = f'"say \\"x\\" \\\\, o\'neil","7","{price}"'
    own = [row for row in rows if row["trigger_hist_id"] == 1]
    assert [(r["event_type"], r["pk_data"], r["row_data"], r["old_data"]) for r in own] == [
        ("I", None, full, None),
        ("U", '"7"', full, full),
        ("U", '"7"', ',"7",', full),
        ("D", '"7"', None, ',"7",'),
    ]
    assert {row["channel_id"] for row in rows} == {"sale"}
    counted = Counter((row["trigger_hist_id"], row["event_type"]) for row in rows)
    assert [counted[number, "U"] for number in (1, 2, 3, 4)] == [2, 1, 1, 0]


def test_purge_by_hand_is_what_the_checks_ask_for(place: Place) -> None:
    reasons: Counter[str | None] = Counter()
    compared = 0
    for seed in range(40 if place.dialect == "sqlite" else 8):
        case = random_case(place, seed)
        reasons.update(verdict.code for verdict in case.model.verdicts)
        recapture_by_hand(case.model)
        case.check()
        compared += case.check_converges(snapshot(place))
    assert compared > 5
    assert reasons[None] > 20
    assert place.dialect != "sqlite" or len(reasons) == 8, reasons


FAULTS = {
    "a copy is lacking": "delete from sym_data where event_type = 'D' and data_id > {greatest}",
    "a touch is lacking": "delete from sym_data where event_type = 'U' and data_id > {greatest}",
    "a copy too many": "insert into sym_data (table_name, event_type, trigger_hist_id, pk_data, create_time)"
    " values ('item', 'D', 1, '\"1\"', '2026-11-01 00:00:00.000')",
    "values of yesterday": 'update sym_data set row_data = \'"1","first","1.5"\''
    " where event_type = 'U' and data_id > {greatest}",
    "a value has changed": "update item set price = 2",
    "what went is still there": "insert into sym_data select * from spare where data_id not in"
    " (select data_id from sym_data)",
    "what stays has gone": "delete from sym_data where event_type = 'I' and pk_data is null"
    " and row_data like '\"2\"%'",
}


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
@pytest.mark.parametrize("fault", FAULTS)
def test_checks_see_what_is_wrong(place: Place, fault: str) -> None:
    capture = Capture("t", 1, ITEM, ITEM.names, ITEM.key)
    ground = grounds.make(place, [ITEM], [capture])
    with hand(place) as worker:
        for key in (1, 2):
            grounds.insert(worker, ITEM, {"id": key, "name": "first", "price": Decimal("1.5")})
        grounds.update(worker, ITEM, (1,), {"name": "second"})
        grounds.delete(worker, ITEM, (2,))
        strand_all(ground)
        case = case_of(ground, fault)
        worker.run("create table spare as select * from sym_data")
        recapture_by_hand(case.model)
        case.check()
        greatest = max(row["data_id"] for row in case.original["data"])
        worker.run(FAULTS[fault].format(greatest=greatest))
    with pytest.raises(AssertionError):
        case.check()
