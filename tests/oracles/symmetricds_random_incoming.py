"""Random incoming batches and data gaps with every awkward row, and awkward texts for any random database.

Times and ids are made as in symmetricds_random. Keys are unique in the eyes of the database's collation.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tests.oracles.symmetricds_database import Row, Rows
from tests.oracles.symmetricds_incoming import noted_purge
from tests.oracles.symmetricds_random import CUTOFF, random_database, random_ids, random_time
from tests.oracles.symmetricds_schema import Version, tables
from tests.oracles.symmetricds_text import Collation

# Names that one database or another takes for the same, or that break bad quoting.
FAMILIES = (
    ("00001", "00001 ", " 00001"),
    ("store-a", "Store-A", "STORE-A ", "störe-a"),
    ("Straße", "strase", "strasse"),
    ("node \U0001f600", "node \U0001f680"),
    ("o'neil", 'say "hi"', "back\\slash", "semi;colon -- drop", "per%cent_s", ":NODE_ID", "`tick`"),
    ("NULL", "", "-1", "漢字"),
)
ODD_NODES = tuple(name for family in FAMILIES for name in family)
INCOMING_STATUSES = ("OK", "OK", "OK", "OK", "OK", "OK", "ok", "Ok", "IG", "ER", "LD", "NE", "SK", "XX", None)
GAP_STATUSES = ("GP", "GP", "GP", "SK", "SK", "OK", "FL", "gp", "Gp", "ok", "ZZ", None)


def random_incoming(rng: Random, version: Version, collation: Collation) -> Rows:
    """All tables of a random database; what matters is sym_incoming_batch.

    Ids of a node rise with time, more or less, so that young OK rows, rows without a time and rows of other
    statuses lie inside a node's range; ranges of nodes overlap, and ids are shared between nodes.
    """
    made: list[Row] = []
    special = rng.choice(["", "", "", "", "", "empty", "at cutoff", "all null", "all young", "all old"])
    some = rng.sample(ODD_NODES, rng.choice([0, 1, 1, 2, 3, 5, 9]))
    for node in rng.choice([some, some, *FAMILIES]):
        ids = random_ids(rng, version, rng.randrange(1, 25))
        width = timedelta(hours=rng.choice([1, 10, 100]))
        for position, batch_id in enumerate(ids):
            about = CUTOFF + width * (position / len(ids) - rng.choice([0.2, 0.7, 0.7, 1.2]))
            row = {
                "batch_id": batch_id,
                "node_id": node,
                "channel_id": rng.choice(["default", None]),
                "status": rng.choice(INCOMING_STATUSES),
                "last_update_time": random_time(rng, about),
                "create_time": random_time(rng, about),
            }
            made.append({**row, **_special_batch(special)})
    rows = random_database(rng, version, rows=4)
    made = [] if special == "empty" else made
    return {**rows, "incoming_batch": _unique("incoming_batch", version, made, collation)}


def _special_batch(special: str) -> Row:
    one = timedelta(milliseconds=1)
    return {
        "at cutoff": {"status": "OK", "create_time": CUTOFF},
        "all null": {"status": None, "create_time": None},
        "all young": {"status": "OK", "create_time": CUTOFF + one},
        "all old": {"status": "OK", "create_time": CUTOFF - timedelta(seconds=1)},
    }.get(special, {})


def random_gaps(rng: Random, version: Version, *, loose: bool) -> Rows:
    """All tables of a random database; what matters is sym_data_gap.

    Gaps share their start (the key is both ends), the last may end at -1 as the schema's own text says, and
    the two times are drawn apart.

    Args:
        rng: the only source of chance.
        version: of the layout.
        loose: times and is_expired may be NULL, see symmetricds_database.create.
    """
    made: dict[tuple[int, int], Row] = {}
    for start in random_ids(rng, version, rng.choice([1, 3, 12, 60])):
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            end = start + rng.choice([0, 0, 1, 9, 50_000]) if rng.random() < 0.95 else -1
            made[start, end] = _gap(rng, version, start, end, loose=loose)
    rows = random_database(rng, version, rows=4)
    if version == "3.x":
        rows = {**rows, **_late_rows(rng, rows, list(made))}
        ends = [number for key in made for number in key if number > 0]
        rows["context"] = noted_purge(rng.choice([*ends, 1, 2**40, 2**40]))
    return {**rows, "data_gap": [] if rng.random() < 0.05 else list(made.values())}


def _late_rows(rng: Random, rows: Rows, gaps: list[tuple[int, int]]) -> Rows:
    """Rows that came into a gap after all; some of them were routed."""
    known = {row["data_id"]: row for row in rows["data"]}
    like = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": CUTOFF}
    events = list(rows["data_event"])
    for start, end in rng.sample(gaps, min(len(gaps), rng.choice([0, 1, 3]))):
        data_id = rng.choice([start, max(start, end)])
        if data_id not in known:
            known[data_id] = {"data_id": data_id, **like}
            if rng.random() < 0.4:
                events.append({"data_id": data_id, "batch_id": 1, "create_time": CUTOFF})
    return {"data": list(known.values()), "data_event": events}


def _gap(rng: Random, version: Version, start: int, end: int, *, loose: bool) -> Row:
    about = CUTOFF + timedelta(hours=rng.uniform(-3, 1))
    row: Row = {"start_id": start, "end_id": end, "create_time": random_time(rng, about)}
    if version == "2.x":
        row |= {"status": rng.choice(GAP_STATUSES), "last_update_time": random_time(rng, about)}
    else:
        row["is_expired"] = rng.choice([0, 0, 1, 1, 1, *([None] if loose else [])])
    if loose:
        return row
    return {name: CUTOFF if value is None and name != "status" else value for name, value in row.items()}


def with_odd_texts(rng: Random, version: Version, rows: Rows, collation: Collation) -> Rows:
    """The same database with awkward node ids and with statuses in small letters here and there."""
    names: dict[str, list[str]] = {}

    def renamed(row: Row) -> Row:
        if "node_id" not in row:
            return row
        # Most rows of a node keep one name; a few have another that may be the same to the database.
        chosen = names.setdefault(row["node_id"], rng.sample(ODD_NODES, 2))
        made = {**row, "node_id": chosen[rng.random() < 0.2]}
        if isinstance(row.get("status"), str) and rng.random() < 0.1:
            made["status"] = row["status"].lower()
        return made

    return {
        table: _unique(table, version, [renamed(row) for row in content], collation)
        for table, content in rows.items()
    }


def _unique(table: str, version: Version, content: list[Row], collation: Collation) -> list[Row]:
    """Without the rows whose primary key the database would take for that of an earlier one."""
    key = tables(version)[table].primary_key
    made: dict[tuple[object, ...], Row] = {}
    for row in content:
        values = (row.get(name) for name in key)
        same = tuple(collation(value) if isinstance(value, str) else value for value in values)
        made.setdefault(same, row)
    return list(made.values())
