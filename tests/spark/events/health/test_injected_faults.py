"""Each fault, put into a healthy catalog by SQL, is named; nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from spark.events.catalog import read_catalog
from spark.events.health.judge import judge_node
from spark.events.health.reading import read_health
from spark.events.health.records import HealthFinding, Severity, Thresholds
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, Templates
from tests.spark.events.health.catalogs_now import FRESH, freshen, look, slon_of

LIMITS = Thresholds()
AGO = "now() - interval '31 minutes'"
CRITICAL, WARNING, UNKNOWN = Severity.CRITICAL, Severity.WARNING, Severity.UNKNOWN


@dataclass(frozen=True)
class Fault:
    """What is done to node 1, and what must be said of which node."""

    name: str
    sql: tuple[str, ...]
    code: str
    severity: Severity
    node: int
    words: str
    limits: Thresholds = LIMITS


ASKED = (
    "insert into sl_event"
    " (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type, ev_data1, ev_data2, ev_data3)"
    " select 1, min(ev_seqno) - 1, now() - interval '{age}', '10:10:', 'SUBSCRIBE_SET', '1', '1', '3'"
    " from sl_event where ev_origin = 1"
)
INACTIVE = "update sl_subscribe set sub_active = false where sub_receiver = 3"
FAULTS = (
    Fault(
        "a subscription that was never enabled",
        (INACTIVE, ASKED.format(age="61 minutes")),
        "SUBSCRIPTION_INACTIVE",
        WARNING,
        3,
        "the subscription of node 3 to set 1 is not active for 61 min",
    ),
    Fault(
        "a subscription whose events are gone",
        (INACTIVE, "delete from sl_event where ev_type in ('SUBSCRIBE_SET', 'ENABLE_SUBSCRIPTION')"),
        "SUBSCRIPTION_INACTIVE",
        WARNING,
        3,
        "is not active for longer than events are kept",
    ),
    Fault(
        "a receiver that stands still",
        (
            "delete from sl_confirm where con_received = 3 and con_seqno >"
            " (select min(ev_seqno) from sl_event where ev_origin = con_origin)",
            "update sl_event set ev_timestamp = ev_timestamp - interval '31 minutes' where ev_seqno <"
            " (select max(e.ev_seqno) from sl_event e where e.ev_origin = sl_event.ev_origin)",
        ),
        "RECEIVER_LAGS",
        CRITICAL,
        3,
        "node 3 has not confirmed events of node 1",
    ),
    Fault(
        "a receiver that is late",
        (
            "delete from sl_confirm where con_origin = 1 and con_received = 3 and con_seqno >"
            " (select min(ev_seqno) from sl_event where ev_origin = 1)",
            "update sl_event set ev_timestamp = ev_timestamp - interval '11 minutes' where ev_origin = 1"
            " and ev_seqno < (select max(ev_seqno) from sl_event where ev_origin = 1)",
        ),
        "RECEIVER_LAGS",
        WARNING,
        3,
        "node 3 has not confirmed events of node 1",
    ),
    Fault(
        "a receiver that never confirmed",
        (
            "delete from sl_confirm where con_origin = 1 and con_received = 3",
            "update sl_event set ev_timestamp = ev_timestamp - interval '11 minutes' where ev_origin = 1"
            " and ev_seqno < (select max(ev_seqno) from sl_event where ev_origin = 1)",
        ),
        "NEVER_CONFIRMED",
        WARNING,
        3,
        "node 3 has never confirmed any event of node 1",
    ),
    Fault(
        "events that do not come",
        (f"update sl_event set ev_timestamp = {AGO} where ev_origin = 2",),
        "EVENTS_STALE",
        WARNING,
        2,
        "from node 2 the newest event is 31 min old at node 1",
    ),
    Fault(
        "confirmations that are old",
        (f"update sl_confirm set con_timestamp = {AGO} where con_origin = 1 and con_received = 2",),
        "CONFIRMATIONS_STALE",
        WARNING,
        2,
        "the newest confirmation of node 2 for node 1 is 31 min old",
    ),
    Fault(
        "a node that makes no SYNC",
        (
            "update sl_event set ev_timestamp = now() - interval '11 minutes'"
            " where ev_origin = 1 and ev_type = 'SYNC'",
            "insert into sl_confirm select 1, node, (select max(ev_seqno) from sl_event where ev_origin = 1),"
            " now() from (values (2), (3)) as nodes (node)",
        ),
        "SYNC_OVERDUE",
        CRITICAL,
        1,
        "node 1 has made no SYNC for 11 min",
    ),
    Fault(
        "a log table that is too large",
        ("analyze sl_log_1", "analyze sl_log_2"),
        "LOG_TABLE_LARGE",
        WARNING,
        1,
        "sl_log_2 has about ",
        replace(LIMITS, log_rows=10),
    ),
    Fault(
        "a listen path that misses",
        ("delete from sl_listen where li_origin = 3 and li_receiver = 2",),
        "LISTEN_MISSING",
        WARNING,
        2,
        "by sl_listen node 2 hears none of the events of node 3",
    ),
    Fault(
        "a subscriber that does not hear its provider",
        (
            "delete from sl_listen where (li_origin, li_provider, li_receiver) = (1, 1, 3)",
            "insert into sl_listen values (1, 2, 3)",
        ),
        "LISTEN_MISSING",
        CRITICAL,
        3,
        "by sl_listen node 3 hears not directly node 1, its provider",
    ),
    Fault(
        "a path that misses",
        ("update sl_path set pa_conninfo = '<event pending>' where pa_server = 1 and pa_client = 3",),
        "PATH_MISSING",
        CRITICAL,
        3,
        "node 3 is to listen at node 1, and sl_path does not say yet",
    ),
    Fault(
        "a thread that is silent",
        (
            "update sl_components set co_starttime = now() - interval '6 minutes'"
            " where co_actor in ('local_sync', 'local_monitor', 'local_cleanup')",
        ),
        "COMPONENT_SILENT",
        WARNING,
        1,
        "have said nothing since: local_sync (thread main loop, 6 min)",
    ),
    Fault(
        "a node that was dropped and is remembered",
        (
            f"insert into sl_confirm values (7, 1, 5000000001, {AGO}), (1, 7, 5000000001, {AGO})",
            "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_type)"
            f" values (7, 5000000001, {AGO}, 'SYNC')",
        ),
        "NODE_FORGOTTEN",
        WARNING,
        7,
        "sl_confirm, sl_event has rows of node 7",
    ),
    Fault(
        "a node that failed and was not dropped",
        ("insert into sl_node values (4, true, 'lost', true)",),
        "NODE_INACTIVE",
        WARNING,
        4,
        "node 4 has failed",
    ),
    Fault(
        "DDL that does not get through",
        (
            "update sl_event set ev_timestamp = now() - interval '6 minutes' where ev_origin = 1"
            " and ev_seqno = (select max(ev_seqno) from sl_event where ev_origin = 1)",
            "delete from sl_confirm where con_origin = 1 and con_received = 3 and con_seqno ="
            " (select max(ev_seqno) from sl_event where ev_origin = 1)",
            "insert into sl_confirm select 1, node, max(ev_seqno) + 2 - node, now()"
            " from sl_event, (values (2), (3)) as nodes (node) where ev_origin = 1 group by node",
            "insert into sl_log_script (log_origin, log_txid, log_actionseq, log_cmdtype, log_cmdargs)"
            " select 1, txid, 1, 'S', '{alter table x}' from (select max(txid_snapshot_xmax(ev_snapshot)) - 1"
            " as txid from sl_event where ev_origin = 1) as newest",
        ),
        "DDL_PENDING",
        WARNING,
        3,
        "1 statement(s) of EXECUTE SCRIPT wait for node 3 for 6 min",
    ),
    Fault(
        "a log switch that does not end",
        (
            "select setval('sl_log_status', 2)",
            "update sl_registry set reg_timestamp = now() - interval '61 minutes'"
            " where reg_key = 'logswitch.laststart'",
        ),
        "LOG_SWITCH_STUCK",
        WARNING,
        1,
        "sl_log_2 is to be emptied for 61 min; held back by ",
    ),
    Fault(
        "a log table that nobody reads",
        (
            "select setval('sl_log_status', 0)",
            "insert into sl_log_2 (log_origin, log_txid, log_actionseq) values (1, 1, 1)",
        ),
        "LOG_STATUS_WRONG",
        CRITICAL,
        1,
        "sl_log_status calls sl_log_2 clean",
    ),
    Fault(
        "a slon that has ended",
        ("delete from sl_nodelock where nl_conncnt = 0", "delete from sl_components"),
        "NO_OWN_SLON",
        CRITICAL,
        1,
        "the slon of node 1 is not connected",
    ),
)


@pytest.fixture(scope="module")
def healthy(slony_templates: Templates) -> Iterator[LoadedCatalog]:
    """Node 1 of a cluster in which all have caught up, its slon at work; no test leaves anything in it."""
    catalogs = Catalogs(slony_templates)
    loaded = catalogs.load("fxc", 1)
    try:
        with slon_of(loaded, 1):
            yield loaded
    finally:
        catalogs.drop()


def judged(loaded: LoadedCatalog, *faults: str, limits: Thresholds = LIMITS) -> list[HealthFinding]:
    """What is said of the catalog as it is this moment, with faults that are taken back afterwards."""
    with loaded.connect() as conn:
        conn.execute(f'set search_path = "{loaded.schema}", public')
        [(status,)] = conn.execute("select last_value from sl_log_status")
        try:
            with conn.transaction():
                for statement in (*FRESH, *faults):
                    conn.execute(statement)
                raise _Found(judge_node(read_health(conn, read_catalog(conn, loaded.cluster)), limits))
        except _Found as found:
            return found.findings
        finally:
            conn.execute(f"select setval('sl_log_status', {status})")  # no rollback takes it back


class _Found(Exception):
    def __init__(self, findings: list[HealthFinding]) -> None:
        self.findings = findings


def test_nothing_is_wrong_with_a_node_that_has_caught_up(healthy: LoadedCatalog) -> None:
    assert judged(healthy) == []


def test_a_subscription_that_is_under_way_is_none(healthy: LoadedCatalog) -> None:
    assert judged(healthy, INACTIVE, ASKED.format(age="59 minutes")) == []
    unlimited = replace(LIMITS, subscriptions=timedelta())
    assert judged(healthy, INACTIVE, limits=unlimited) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_and_nothing_else_is(healthy: LoadedCatalog, fault: Fault) -> None:
    found = judged(healthy, *fault.sql, limits=fault.limits)
    assert {(each.code, each.severity, each.node) for each in found} == {
        (fault.code, fault.severity, fault.node)
    }
    assert any(fault.words in each.detail for each in found), found
    assert all(each.advice for each in found)


def test_an_old_transaction_is_named_by_its_session(healthy: LoadedCatalog) -> None:
    with healthy.raw(autocommit=False, application_name="forgotten") as raw:
        raw.execute("insert into sl_registry (reg_key) values ('x')")
        pid = raw.info.backend_pid
        reading = look(healthy)
        raw.rollback()
    assert "TRANSACTION_OLD" not in {each.code for each in judge_node(reading, LIMITS)}
    [own] = [each for each in reading.transactions if each.pid == pid]
    since = reading.now - timedelta(minutes=91)
    old = replace(reading, transactions=(replace(own, since=since),))
    [found] = [each for each in judge_node(old, LIMITS) if each.code == "TRANSACTION_OLD"]
    assert (found.code, found.node, found.limit, found.unit) == ("TRANSACTION_OLD", 1, 5_400.0, "SECONDS")
    assert f"a transaction of pid {pid} (forgotten of " in found.detail
    assert found.measured == pytest.approx(5_460.0)
    unlimited = judge_node(old, replace(LIMITS, transactions=timedelta()))
    assert "TRANSACTION_OLD" not in {each.code for each in unlimited}


def test_a_role_that_may_not_read_all_is_told_unknown_not_fine(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxc", 1), catalogs.role()
    freshen(loaded)
    loaded.execute(
        f'grant usage on schema "{loaded.schema}" to {role}',
        "grant select on sl_node, sl_path, sl_event, sl_confirm, sl_registry, sl_log_1, sl_log_2,"
        f" sl_local_node_id, sl_log_status to {role}",
    )
    found = judge_node(look(loaded.as_role(role)), LIMITS)
    assert [(each.code, each.severity) for each in found] == [
        ("HEALTH_UNREAD", UNKNOWN),
        ("SESSIONS_HIDDEN", UNKNOWN),
    ]
    assert "sl_listen, sl_subscribe, sl_set, sl_log_script, sl_components, sl_nodelock" in found[0].detail
