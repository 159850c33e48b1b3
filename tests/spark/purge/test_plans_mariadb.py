"""No statement of a unit walks through a table on MariaDB: it would wait for the rows of others there."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from spark.purge.statements import PurgeSpec, Statements
from spark.targets.connection import Connection, connect
from tests.oracles.symmetricds import CUTOFF, VERSIONS, Place, Version, create, session
from tests.spark.purge.outgoing_run import target_of

ROWS = 4_000
# By key or by a range of keys; of nodes there are few.
BY_KEY = {"range", "ref", "eq_ref", "const", "unique_subquery", "index_subquery", None}


@pytest.fixture
def place(request: pytest.FixtureRequest, mariadb_url: str) -> Place:
    """Four thousand delivered rows in batches of ten."""
    version: Version = request.param
    found = Place(mariadb_url, version=version)
    create(found)
    with session(found) as target:
        target.run(
            "insert into sym_data (data_id, table_name, event_type, trigger_hist_id, create_time)"
            f" select seq, 'x', 'I', 1, '2020-01-01' from seq_1_to_{ROWS}"
        )
        more = ", router_id" if version == "2.x" else ""
        value = ", 'r'" if version == "2.x" else ""
        target.run(
            f"insert into sym_data_event (data_id, batch_id{more})"
            f" select seq, seq div 10{value} from seq_1_to_{ROWS}"
        )
        target.run(
            "insert into sym_outgoing_batch (batch_id, node_id, status, create_time)"
            f" select seq, 'n', 'OK', '2020-01-01' from seq_1_to_{ROWS // 10}"
        )
        for table in ("data", "data_event", "outgoing_batch"):
            target.run(f"analyze table sym_{table}")
    return found


def _explained(conn: Connection, sql: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    return conn.execute(f"explain {sql}", parameters)


@pytest.mark.parametrize("place", VERSIONS, indirect=True)
@pytest.mark.parametrize("whole", [False, True])  # the last unit of a small table is all of it
def test_every_statement_of_a_unit_goes_by_key(place: Place, whole: bool) -> None:
    with closing(connect(target_of(place), application_name="explain")) as conn:
        statements = Statements.of(conn, PurgeSpec(CUTOFF, stranded_nodes=("n",)))
        lo, hi = (1, ROWS) if whole else (10, 60)
        bound = {"lo": lo, "hi": hi, "cutoff": CUTOFF, "greatest": ROWS, "nodes": ["n"]}
        share = conn.dialect.share_lock("b")
        texts = [statements.delete(step) for step in ("DATA", "EVENTS", "BATCHES")]
        texts += [statements.reached(), statements.mark()]
        texts += [str(statements.lock_listed(step, share)) for step in ("DATA", "EVENTS", "STRANDED")]
        for text in texts:
            for row in _explained(conn, text, {**bound, "listed": list(range(1, 900))}):
                table, kind = row[2], row[3]
                if table == "n" or (whole and text == statements.reached()):
                    continue  # few rows, or a read without locks
                assert kind in BY_KEY, (text, row)
