"""Leaves captured rows of a ground stranded, some of them such that nobody can capture them anew."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tests.oracles.symmetricds import CUTOFF, Place, Row, load, snapshot
from tests.oracles.symmetricds_upkeep import expected_after_upkeep, late_in_gaps
from tests.spark.upkeep.recapture.ground import LOWEST_BATCH, MISSING_HISTORY, OLD, Ground
from tests.spark.upkeep.recapture.hands import Hand, hand, literal
from tests.spark.upkeep.recapture.texts import parse, write


def strand(ground: Ground, edge: int) -> None:
    """All captured rows below `edge` are stranded; the row `edge` has an event, and a live gap follows."""
    place = ground.place
    ground.captured = {row["data_id"]: row for row in snapshot(place)["data"]}
    with hand(place) as worker:
        worker.run(f"update {place.name('data')} set create_time = {_time(place, OLD)}")
    _surround(place, edge, gap=max(ground.captured) + 1)


def strand_all(ground: Ground) -> None:
    """All captured rows are stranded; above them comes one of a table that nobody knows."""
    place = ground.place
    before = max(row["data_id"] for row in snapshot(place)["data"])
    other = {"table_name": "unknown", "event_type": "I", "trigger_hist_id": MISSING_HISTORY}
    load(place, {"data": [{**other, "data_id": before + 1, "row_data": '"1"', "create_time": CUTOFF}]})
    strand(ground, before + 1)


def strand_by_chance(ground: Ground, rng: Random) -> None:
    """As `strand`; some rows are gone, some young, some spoilt, some histories or tables gone."""
    place, ids = ground.place, sorted(ground.captured)
    if not ids:
        return
    edge = rng.choice(ids[-max(1, len(ids) // 4) :])
    with hand(place) as worker:
        data = place.name("data")
        for data_id in ids:
            time = rng.choices([OLD, CUTOFF, None, CUTOFF - timedelta(milliseconds=1)], [90, 2, 2, 6])[0]
            worker.run(f"update {data} set create_time = {_time(place, time)} where data_id = {data_id}")
            if data_id < edge and rng.random() < 0.2:
                worker.run(f"delete from {data} where data_id = {data_id}")
        for row in snapshot(place)["data"]:
            if row["data_id"] < edge and rng.random() < 0.12:
                _spoil(worker, place, rng, row)
        if rng.random() < 0.4:
            _spoil_history(worker, ground, rng)
        if rng.random() < 0.15:
            shape = rng.choice(ground.shapes)
            worker.run(f"drop table {shape.place(place.dialect)}")
            ground.dropped.add(shape.name)
            ground.captures = [each for each in ground.captures if each.shape is not shape]
    _surround(place, edge, gap=rng.randrange(edge + 1, ids[-1] + 3))
    if rng.random() < 0.5:  # an old event of a batch that is gone: its row is stranded from the first step on
        events = [{"data_id": rng.choice(ids), "batch_id": LOWEST_BATCH - 1, "create_time": OLD}]
        load(place, {"data_event": [each for each in events if each["data_id"] < edge]})
    # Whether the greatest row goes depends on what was captured before its unit: test_recapture_gaps has it.
    for start in rng.sample(ids[:-1], rng.choice([0, 0, 1, 3]) if len(ids) > 3 else 0):
        end = min(start + rng.choice([0, 1, 4]), ids[-1] - 1)
        gap = {"start_id": start, "end_id": end, "is_expired": 1}
        load(place, {"data_gap": [{**gap, "create_time": CUTOFF}]})


def stranded_rows(place: Place) -> list[Row]:
    """The rows of sym_data that wait for a recapture: stranded, or late in an expired gap; in order."""
    before = snapshot(place)
    expected = expected_after_upkeep("STRANDED", place, before, CUTOFF)
    left = {row["data_id"] for row in expected["data"]}
    routed = {**before, "data_event": expected["data_event"]}
    left -= {row["data_id"] for row in late_in_gaps(place, routed, CUTOFF)}
    return [row for row in before["data"] if row["data_id"] not in left]


def _surround(place: Place, edge: int, *, gap: int) -> None:
    load(
        place,
        {
            "data_event": [{"data_id": edge, "batch_id": LOWEST_BATCH, "create_time": OLD}],
            "outgoing_batch": [
                {"batch_id": LOWEST_BATCH, "node_id": "n1", "status": "OK", "create_time": OLD}
            ],
            "data_gap": [
                {"start_id": gap, "end_id": gap + 50_000_000, "is_expired": 0, "create_time": CUTOFF}
            ],
        },
    )


def _time(place: Place, time: object) -> str:
    return literal(place.encode(time), place.dialect)


def _spoil(worker: Hand, place: Place, rng: Random, row: Row) -> None:
    """Something that no trigger would write."""
    named = {"pk_data": row["pk_data"], "row_data": row["row_data"], "old_data": row["old_data"]}
    texts = {name: text for name, text in named.items() if text}
    chosen = rng.choice(["type", "prerouted", "history", "no key", "torn", "null", "short", "nodes"])
    changes: Row = {
        "type": {"event_type": rng.choice("RSBCX")},
        "prerouted": {"is_prerouted": 1},
        "history": {"trigger_hist_id": MISSING_HISTORY},
        "no key": {"pk_data": None},
        "torn": {name: text[:-1] if text.endswith('"') else f'{text}"' for name, text in texts.items()},
        "null": {name: write([None for _ in parse(text)]) for name, text in texts.items()},
        "short": dict.fromkeys(texts),
        "nodes": {"node_list": "n1,n2", "external_data": "e'x", "source_node_id": "s"},
    }[chosen]
    sets = ", ".join(f"{name} = {literal(value, place.dialect)}" for name, value in changes.items())
    worker.run(f"update {place.name('data')} set {sets} where data_id = {row['data_id']}")


def _spoil_history(worker: Hand, ground: Ground, rng: Random) -> None:
    place, hist_id = ground.place, rng.choice(sorted(ground.histories))
    history, at = place.name("trigger_hist"), f"where trigger_hist_id = {hist_id}"
    if rng.random() < 0.3:
        worker.run(f"delete from {history} {at}")
        return
    column, value = rng.choice(
        [
            ("source_table_name", ""),
            ("source_table_name", "nowhere"),
            ("pk_column_names", ""),
            ("pk_column_names", "no such"),
            ("source_catalog_name", "elsewhere"),
        ]
    )
    if any(capture.hist_id == hist_id for capture in ground.captures):  # of what it captures now too: of all
        trigger_id = ground.histories[hist_id].trigger_id
        at = f"where trigger_id = {literal(trigger_id, place.dialect)}"
    worker.run(f"update {history} set {column} = {literal(value, place.dialect)} {at}")
