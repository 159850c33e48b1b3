"""A small SymmetricDS database for trying each kind of purge: the recorded one, and old rows of every kind.

    python3 lethe_samples/symmetricds.py /tmp/sym.sqlite

It needs nothing but Python. What is added to `tests/data/symmetricds/small_3x.sqlite` is older than each
default retention by the clock of this machine, and beside it stands what a purge has to keep.
"""

import shutil
import sqlite3
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

RECORDED: Final = Path(__file__).parents[1] / "tests" / "data" / "symmetricds" / "small_3x.sqlite"
OLD: Final = timedelta(days=60)
VERY_OLD: Final = timedelta(days=500)
NODE: Final = "00001"
GONE_CHANNEL: Final = "returns"
STATISTICS: Final = ("sym_node_host_channel_stats", "sym_node_host_stats", "sym_node_host_job_stats")
# SymmetricDS's own triggers do the same, and more: the row as it is now is captured behind all others.
TRIGGER: Final = """
    create table item_0 (id integer primary key not null, name text);
    insert into item_0 values (1, 'lamp');
    create trigger sym_on_u_for_item_0 after update on item_0 begin
        insert into sym_data
            (table_name, event_type, row_data, pk_data, trigger_hist_id, channel_id, create_time)
        values ('item_0', 'U', '"' || new.id || '","' || new.name || '"', '"' || old.id || '"', 1, 'default',
            strftime('%Y-%m-%d %H:%M:%f', 'now'));
    end;
"""


def build(path: Path, *, now: datetime) -> None:
    """Write the database; a file that is there is written over.

    Args:
        now: naive UTC.
    """
    for rest in (
        "-wal",
        "-shm",
        "-journal",
    ):  # of the file that was there: SQLite would take it for the new one's
        Path(f"{path}{rest}").unlink(missing_ok=True)
    shutil.copyfile(RECORDED, path)
    with closing(sqlite3.connect(path)) as db, db:
        _add_upkeep(db, now)
        _add_histories(db, now)
        _add_stranded(db, now)
        _add_gone_channel(db, now)
        db.executescript(TRIGGER)


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.%f")


def _insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    values = [_text(each) if isinstance(each, datetime) else each for each in row.values()]
    db.execute(f"insert into {table} ({', '.join(row)}) values ({', '.join('?' * len(row))})", values)


def _add_upkeep(db: sqlite3.Connection, now: datetime) -> None:
    """Statistics, a load that is over, registrations and errors; a young one of each."""
    for number, age in enumerate((OLD, OLD, timedelta(hours=1))):
        at = now - age + timedelta(minutes=number)
        host = {
            "node_id": NODE,
            "host_name": "till-1",
            "start_time": at,
            "end_time": at + timedelta(minutes=1),
        }
        for table, more in zip(STATISTICS, ({"channel_id": "sale"}, {}, {"job_name": "Push"}), strict=True):
            _insert(db, table, host | more)
        _insert(
            db,
            "sym_registration_request",
            {"node_group_id": "store", "external_id": f"till-{number}", "status": "OK", "host_name": "till-1"}
            | {"ip_address": "10.0.0.7", "create_time": at, "last_update_time": at},
        )
        _insert(
            db,
            "sym_incoming_error",
            {"batch_id": 900_000 + number, "node_id": NODE, "failed_row_number": 1, "event_type": "I"}
            | {"target_table_name": "item_0", "column_names": "id,name", "pk_column_names": "id"}
            | {"last_update_time": at},
        )
        _add_load(db, 70 + number, at)


def _add_load(db: sqlite3.Connection, load_id: int, at: datetime) -> None:
    nodes = {"source_node_id": "00000", "target_node_id": NODE}
    made = {"load_id": load_id, "last_update_time": at}
    _insert(db, "sym_table_reload_status", nodes | made | {"completed": 1})
    wanted = {"trigger_id": "item_0", "router_id": "to_stores", "create_time": at}
    _insert(db, "sym_table_reload_request", nodes | made | wanted | {"processed": 1})
    batches = {"start_batch_id": load_id, "end_batch_id": load_id, "node_id": NODE, "status": "OK"}
    _insert(db, "sym_extract_request", made | wanted | batches | {"request_id": load_id})


def _add_histories(db: sqlite3.Connection, now: datetime) -> None:
    """The one in use, an old one that nothing names, and an old one that captured rows still name."""
    for number, table, inactive in ((1, "item_0", None), (2, "item_1", VERY_OLD), (91, "item_0", VERY_OLD)):
        _insert(
            db,
            "sym_trigger_hist",
            {"trigger_hist_id": number, "trigger_id": table, "source_table_name": table}
            | {"column_names": "id,name", "pk_column_names": "id", "last_trigger_build_reason": "N"}
            | {"create_time": now - 2 * VERY_OLD}
            | {"inactive_time": None if inactive is None else now - inactive},
        )


def _add_stranded(db: sqlite3.Connection, now: datetime) -> None:
    """Captured rows below every event: of a row that is there, and of one that is not."""
    for data_id, kind, key in ((2, "U", 1), (3, "I", 2)):
        _insert(
            db,
            "sym_data",
            {"data_id": data_id, "table_name": "item_0", "event_type": kind, "row_data": f'"{key}","lamp"'}
            | {"pk_data": f'"{key}"' if kind == "U" else None, "trigger_hist_id": 1, "channel_id": "default"}
            | {"create_time": now - OLD},
        )


def _add_gone_channel(db: sqlite3.Connection, now: datetime) -> None:
    """An undelivered batch of a channel that sym_channel has no row of, and its three captured rows."""
    [(greatest, batch)] = db.execute(
        "select (select max(data_id) from sym_data), (select max(batch_id) from sym_outgoing_batch) + 1"
    )
    old = {"channel_id": GONE_CHANNEL, "create_time": now - OLD}
    _insert(db, "sym_outgoing_batch", old | {"batch_id": batch, "node_id": NODE, "status": "NE"})
    for data_id in range(greatest + 1, greatest + 4):
        row = {"table_name": "item_0", "event_type": "I", "row_data": '"7","cup"', "trigger_hist_id": 1}
        _insert(db, "sym_data", old | row | {"data_id": data_id})
        event = {"data_id": data_id, "batch_id": batch, "create_time": now - OLD}
        _insert(db, "sym_data_event", event)
    db.execute("update sym_data_gap set start_id = ? where start_id = ?", (greatest + 4, greatest + 1))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Name the file to write: python3 lethe_samples/symmetricds.py /tmp/sym.sqlite")
    build(Path(sys.argv[1]), now=datetime.now(UTC).replace(tzinfo=None))
