"""What a cleanup or a switch of the log could have lost beside sessions that nobody saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.log_switch import read_log_status, start_switch, try_finish
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import Blocked, Finished, Hazard
from spark.events.records import Catalog
from spark.events.unit import UnitJob
from spark.targets.connection import Connection
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, catalogs, slony_templates  # noqa: F401
from tests.spark.events.cleaning import clean_up
from tests.spark.events.random_catalogs import CUTOFF, FIRST_SEQNO, contents, put, settled_catalog

JOB = UnitJob("job-1", 1, "cleanup", has_ledger=False)
STATUS = "select last_value from sl_log_status"
FORWARDED = (
    "insert into {table} (log_origin, log_txid, log_tableid, log_actionseq, log_cmdtype)"
    " values (2, 900, 1, 99, 'I')"
)


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:  # noqa: F811
    """Three nodes, status 0; everything in log_1 has been replicated."""
    loaded = catalogs.empty(cluster='Odd "name"')
    put(loaded, settled_catalog(0))
    loaded.execute("truncate sl_log_1")
    return loaded


@contextmanager
def _opened(node: LoadedCatalog) -> Iterator[tuple[Connection, Catalog]]:
    with node.connect() as conn:
        yield conn, read_catalog(conn, node.cluster)


def test_slon_that_waits_for_its_provider_with_the_status_read_keeps_the_switch_open(
    node: LoadedCatalog,
) -> None:
    """It copies rows of a SYNC to the log that it read of, minutes later maybe; till then it has no xid."""
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as slon:
        slon.execute(STATUS)
        start_switch(conn, catalog)
        blocked = try_finish(conn, catalog)
        slon.execute(FORWARDED.format(table="sl_log_1"))
        slon.commit()
        late = try_finish(conn, catalog)

        assert isinstance(blocked, Blocked)
        assert blocked.why == "OLD_TRANSACTION"
        assert [(item.pid, item.backend_xid, item.is_older) for item in blocked.sessions] == [
            (slon.info.backend_pid, None, True)
        ]
    assert isinstance(late, Blocked)
    assert late.why == "NOT_DRAINED"
    rows = contents(node)
    assert rows["sl_log_status"] == 3  # both logs are read
    assert len(rows["sl_log_1"]) == 1


def test_slon_that_read_the_status_after_the_start_holds_nothing(node: LoadedCatalog) -> None:
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as slon:
        start_switch(conn, catalog)
        slon.execute(STATUS)
        ended = try_finish(conn, catalog)
    assert isinstance(ended, Finished)


def test_transactions_that_may_not_be_seen_and_read_the_status_keep_the_switch_open(
    catalogs: Catalogs,  # noqa: F811
    node: LoadedCatalog,
) -> None:
    role = catalogs.role()
    node.execute(
        f'grant usage on schema "_Odd ""name""" to {role}',
        f'grant all on all tables in schema "_Odd ""name""" to {role}',
        f'grant all on all sequences in schema "_Odd ""name""" to {role}',
    )
    with _opened(node.as_role(role)) as (conn, catalog), node.raw(autocommit=False) as slon:
        slon.execute(STATUS)
        start_switch(conn, catalog)
        blocked = try_finish(conn, catalog)
        slon.rollback()
        ended = try_finish(conn, catalog)
    assert isinstance(blocked, Blocked)
    assert blocked.why == "OLD_TRANSACTION"
    assert isinstance(ended, Finished)


def test_writer_from_before_the_switch_is_seen_behind_many_older_readers(
    node: LoadedCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.events.cleaning.blockers.SESSIONS_MAX", 2)
    with ExitStack() as stack:
        conn, catalog = stack.enter_context(_opened(node))
        for _ in range(2):
            reader = stack.enter_context(node.raw(autocommit=False))
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select 1 from sl_node")
        writer = stack.enter_context(node.raw(autocommit=False))
        # Its first row was rolled back with its locks; the status that it read still holds for it.
        writer.execute("select txid_current()")
        start_switch(conn, catalog)
        blocked = try_finish(conn, catalog)
        seen = read_log_status(conn, catalog)
        pid = writer.info.backend_pid
    assert isinstance(blocked, Blocked)
    assert [(item.pid, item.is_older) for item in blocked.sessions] == [(pid, True)]
    assert [item.is_older for item in seen.sessions] == [True, False]


def test_plan_forbids_the_program_to_end_a_switch_that_somebody_may_still_write_to(
    node: LoadedCatalog,
) -> None:
    """Its own function looks at locks of the table alone, and a cleanup may come right after the start."""
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as slon:
        slon.execute(STATUS)
        start_switch(conn, catalog)
        held = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        slon.rollback()
        free = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        pid = slon.info.backend_pid
    words = f"sessions from before the switch may still write to sl_log_1, which would count as clean: {pid} "
    assert held.hazards == (Hazard("LOG_STILL_WRITTEN", None, None, None, f"{words}(unnamed)"),)
    assert (held.log_switch.step, free.log_switch.step, free.hazards) == ("BLOCKED", "FINISH", ())


@pytest.mark.parametrize("confirmed", ["all", "some"])
def test_ddl_and_sequences_that_a_receiver_may_still_ask_for_stay(
    node: LoadedCatalog, confirmed: str
) -> None:
    """They go with the SYNC after them, and the confirmations of node 3 were deleted by hand."""
    whose = "con_received = 3" if confirmed == "some" else "con_received > 0"
    node.execute(
        f"delete from sl_confirm where con_origin = 1 and {whose}",
        f"delete from sl_event where ev_origin = 1 and ev_seqno < {FIRST_SEQNO + 5}",
    )
    with _opened(node) as (conn, catalog):
        plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        # A plan from before the confirmations were deleted.
        origins = tuple(replace(item, log_script_rows=1, seqlog_rows=2) for item in plan.origins)
        clean_up(conn, replace(plan, origins=origins), catalog, JOB)
    first = 3 if confirmed == "some" else 2
    assert (plan.origins[0].seqlog_rows, plan.origins[0].log_script_rows) == (0, 0)
    assert plan.hazards == (
        Hazard(
            "FOLLOWING_NOT_CONFIRMED",
            1,
            first,
            3,
            f"node {first} has not confirmed the SYNC of origin 1 that follows its DDL or"
            " values of sequences",
        ),
    )
    assert [txid for _, txid, *_ in contents(node)["sl_log_script"]] == [650, 790]
    assert node.query("select count(*) from sl_seqlog where seql_origin = 1") == [(5,)]
