"""Work that reaches further than one file, half done by a former version, and judged when this one goes on.

A session between two replicas, the scan of an extinction, a cleanup and a log switch of Slony-I. The replicas
are files beside the other targets; the nodes are copies of recorded catalogs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path

from lethe_client import CleanupRequest, Conflict, ExtinctionRequest, Lethe, SessionRequest

from app.auth.service import ensure_admin_token
from app.db import Database
from migrations.upgrade import upgrade
from spark.targets.connection import connect, identity
from tests.http.discarding import b64
from tests.http.slony_cleaning import AT, REMOVED, assert_recorded, count, log_status
from tests.journeys.replicas import GENERATION, Pair, Site, agree, register
from tests.journeys.service import Service, await_job, succeeded, until
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, recorded_rows

CLUSTERS = {"cleaned": "lab", "switched": "elsewhere"}
"""What is done to a node, and the name of its cluster: of one name they would be one node and its copy."""
REPLICAS = ("peers-supplier", "peers-consumer", "peers-extinct")
CHANGES, BATCH_ROWS = 600, 20
ENTRIES, KEPT, SCANNED_AT_ONCE = 400, 50, 20
BEGUN_ROWS = 40
SLOW = 2.0
"""Rows a second: what has begun is not done while the other stores are filled."""
PORT, TOKEN = "127.0.0.1:@port@", "service.token"
URL, IDENTITY = "@url-{name}@", "@identity-{name}@"
SWITCH_STARTED = 2
"""The log status while sl_log_2 is to be emptied."""

Nodes = Mapping[str, LoadedCatalog]


def fresh_nodes(catalogs: Catalogs) -> Nodes:
    """Node 1 of the recorded cluster, once for each name."""
    return {name: catalogs.load("fxa", 1, cluster=cluster) for name, cluster in CLUSTERS.items()}


def fill(service: Service, targets: Path, nodes: Nodes) -> None:
    """Begin all of it, slowly; it goes on until the service is killed."""
    client = service.client
    for name, node in nodes.items():
        client.stores.create(f"peers-{name}", node.url, kind="SLONY", cluster=node.cluster)
    _switch(client, nodes["switched"])
    up_to = datetime.fromisoformat(AT)
    request = CleanupRequest(confirmed_before=up_to, max_rows_in_tx=10, rows_per_s=SLOW)
    cleanup = client.slony.cleanup("peers-cleaned", request)
    session, extinction = _replicate(service, targets), _discard(service, targets)
    for job_id in (cleanup.id, session, extinction):
        until(lambda job_id=job_id: (client.jobs.get(job_id).progress.done or 0) >= BEGUN_ROWS, timeout_s=120)


def _switch(client: Lethe, node: LoadedCatalog) -> None:
    """Started by the job itself, and held up: not every receiver has confirmed what the old table holds."""
    request = CleanupRequest(confirmed_before=datetime.fromisoformat(AT))
    succeeded(client, client.slony.cleanup("peers-switched", request).id)
    job = client.slony.switch_log("peers-switched", timeout="P1D")
    until(lambda: "LOG_NOT_DRAINED" in str(client.jobs.get(job.id).raw["waiting_on"]))
    assert log_status(node) == SWITCH_STARTED


def _sites(service: Service, targets: Path) -> dict[str, Site]:
    return {name: Site(service, name, _url(name, targets)) for name in REPLICAS}


def _url(name: str, targets: Path) -> str:
    return f"sqlite:///{targets}/{name}.db"


def _replicate(service: Service, targets: Path) -> str:
    supplier, consumer = (
        register(service, name, _url(name, targets), rid, generation=GENERATION)
        for rid, name in enumerate(REPLICAS[:2], 1)
    )
    supplier.write(CHANGES)
    pair = agree(supplier, consumer, batch_rows=BATCH_ROWS)
    request = SessionRequest(rows_per_s=SLOW)
    return service.client.replication_sessions.create(supplier.store, pair.agreement_id, request).id


def _discard(service: Service, targets: Path) -> str:
    slow = {"je.cleaner.extinctScanBatchSize": SCANNED_AT_ONCE}
    name = REPLICAS[2]
    site = register(service, name, _url(name, targets), 3, generation=GENERATION, parameters=slow)
    site.write(ENTRIES, prefix="gone")
    site.write(KEPT, prefix="kept")
    request = ExtinctionRequest(
        databases=[b64(b"db")],
        label="a former version's",
        start_key=b"gone",
        end_key=b"gone~",
        confirm_keys_never_reused=True,
    )
    job = service.client.extinctions.discard(name, request)
    service.client.jobs.throttle(job.id, rows_per_s=SLOW)
    return job.id


# -- as text


def generic(text: str, port: int, nodes: Nodes) -> str:
    """Metadata without what is of one run: the port of its service, the databases of its nodes."""
    for found, stands in _particulars(port, nodes).items():
        text = text.replace(found, stands)
    return text


def particular(text: str, port: int, nodes: Nodes) -> str:
    """The other way round."""
    for found, stands in _particulars(port, nodes).items():
        text = text.replace(stands, found)
    return text


def _particulars(port: int, nodes: Nodes) -> dict[str, str]:
    found = {f"127.0.0.1:{port}": PORT}
    for name, node in nodes.items():
        with closing(connect(node.target, application_name="asks")) as conn:
            found |= {identity(conn): IDENTITY.format(name=name), node.url: URL.format(name=name)}
    return found


# -- judged


def begin(service: Service, targets: Path, database: Database, nodes: Nodes) -> None:
    """What must be there before the present version starts; what it is to go on with is half done.

    The consumer's token too, which the session shows at once: so the schema is brought to head here.
    """
    _assert_half_done(_sites(service, targets), nodes)
    upgrade(database)
    with database.transaction() as db:
        ensure_admin_token(db, service.data_dir, now=database.now(db))
    service.secrets.mkdir(mode=0o700, exist_ok=True)
    (service.secrets / TOKEN).write_text(service.token)
    _confirm_all(nodes["switched"])  # now: its time has passed, and it gives up where it has to wait again


def _confirm_all(node: LoadedCatalog) -> None:
    """A SYNC that covers every row of the log, which every receiver has confirmed."""
    node.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        " select 1, max(ev_seqno) + 1, now(), '900000:900000:', 'SYNC' from sl_event where ev_origin = 1",
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        " select 1, no_id, (select max(ev_seqno) from sl_event where ev_origin = 1), now()"
        " from sl_node where no_id <> 1",
    )


def _assert_half_done(sites: Mapping[str, Site], nodes: Nodes) -> None:
    assert 0 < sites[REPLICAS[1]].count("changelog") < CHANGES
    assert KEPT < sites[REPLICAS[2]].count("entries") < KEPT + ENTRIES
    [(state,)] = sites[REPLICAS[2]].rows("select state from replica_extinctions")
    assert state == "SCANNING"
    assert log_status(nodes["switched"]) == SWITCH_STARTED
    assert count(nodes["switched"], "sl_log_2") > 0
    fresh = len(recorded_rows("fxa", 1)["sl_confirm"])
    assert fresh - REMOVED["sl_confirm"] < count(nodes["cleaned"], "sl_confirm") < fresh


def judge(service: Service, targets: Path, nodes: Nodes) -> None:
    """Each goes on to the end that it would have had."""
    client = service.client
    [cleanup] = client.jobs.list(stores=["peers-cleaned"])
    _, switch = sorted(client.jobs.list(stores=["peers-switched"]), key=lambda job: job.created_at)
    [session] = [job for job in client.jobs.list(stores=[REPLICAS[0]]) if job.kind == "REPLICATION_SESSION"]
    [extinction] = client.jobs.list(stores=[REPLICAS[2]])
    for job in (cleanup, session, extinction):
        with contextlib.suppress(Conflict):  # it has ended by now
            client.jobs.throttle(job.id, lift=True)
    result = succeeded(client, cleanup.id)
    assert (result["counts"], result["removed"]) == ("EXACT", REMOVED)
    assert_recorded(nodes["cleaned"])
    _judge_switch(succeeded(client, switch.id), nodes["switched"])
    sites = _sites(service, targets)
    _judge_session(service, session.id, sites)
    gone = succeeded(client, extinction.id)
    assert (gone["records"], gone["tombstones"]) == (ENTRIES, 0)
    assert sites[REPLICAS[2]].count("entries") == KEPT
    assert [row.state for row in client.extinctions.list(REPLICAS[2])] == ["DONE"]
    for job in (cleanup, switch, session, extinction):
        assert client.jobs.get(job.id).raw["attempt"] > 1


def _judge_switch(result: Mapping[str, object], node: LoadedCatalog) -> None:
    wanted = {"outcome": "FINISHED", "emptied": "sl_log_2", "started": True, "status_before": 1, "status": 0}
    assert {name: result[name] for name in wanted} == wanted
    assert (log_status(node), count(node, "sl_log_2")) == (0, 0)


def _judge_session(service: Service, job_id: str, sites: Mapping[str, Site]) -> None:
    assert await_job(service.client, job_id).state == "SUCCEEDED"
    supplier, consumer = (sites[name] for name in REPLICAS[:2])
    Pair(supplier, consumer, "").assert_level()
    assert consumer.count("changelog") == CHANGES
