"""What a wait may ask for, and which events it waits for."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.auth.service import Caller
from app.errors import ServiceError
from app.events.waits.models import WaitRequest
from app.stores.rows import Store
from tests.app.events.waits import ADMIN, Waits
from tests.app.jobs.workbench import Workbench
from tests.spark.events.catalogs import Catalogs, LoadedCatalog

pytestmark = pytest.mark.postgresql
AWAY = "postgresql+psycopg://nobody@127.0.0.1:1/nowhere"


@pytest.fixture
def waits(sqlite_bench: Workbench) -> Waits:
    return Waits(sqlite_bench)


def make_node(catalogs: Catalogs, node: int, newest: dict[int, int]) -> LoadedCatalog:
    """A node of a cluster of three that knows these events and no confirmation."""
    loaded = catalogs.empty(node=node)
    events = [
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values ({origin}, {seqno}, now(), '10:10:', 'SYNC')"
        for origin, seqno in newest.items()
    ]
    loaded.execute(
        "insert into sl_node (no_id, no_active, no_failed)"
        " select n, true, false from generate_series(1, 3) n",
        "insert into sl_path (pa_server, pa_client, pa_conninfo, pa_connretry)"
        " select s, c, 'dbname=node' || s, 10"
        " from generate_series(1, 3) s, generate_series(1, 3) c where s <> c",
        *events,
    )
    return loaded


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    return make_node(catalogs, 1, {1: 100, 2: 200, 3: 300})


@pytest.fixture
def store(waits: Waits, node: LoadedCatalog) -> Store:
    return waits.register("node-1", node)


def awaited(waits: Waits, store: Store, **request: Any) -> list[tuple[int, int, int]]:
    """(origin, seqno, known by) of a wait that may be submitted."""
    found = waits.prepare(store, **request).params.awaited
    return [(each.origin, each.seqno, each.known_by) for each in found]


def refused(waits: Waits, store: Store, **request: Any) -> tuple[int, str, list[str]]:
    """Status, code and pointers of one that may not."""
    with pytest.raises(ServiceError) as caught:
        waits.prepare(store, **request)
    error = caught.value
    return error.status, error.code, [fault["pointer"] for fault in error.errors]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"origin": 1}, [(1, 100, 1)]),
        ({"origin": 1, "seqno": 99}, [(1, 99, 1)]),
        ({"origin": 1, "seqno": 100}, [(1, 100, 1)]),
        ({"origin": 2, "confirmed": 1}, [(2, 200, 1)]),
        ({"origin": "ALL"}, [(1, 100, 1), (2, 200, 1), (3, 300, 1)]),
        ({"origin": "ALL", "confirmed": 2}, [(1, 100, 1), (3, 300, 1)]),
        ({"origin": "ALL", "confirmed": "ALL", "wait_on": 1}, [(1, 100, 1), (2, 200, 1), (3, 300, 1)]),
    ],
)
def test_alone_a_node_tells_what_it_knows(
    waits: Waits, store: Store, request_: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    assert awaited(waits, store, **request_) == expected


def test_origin_that_is_registered_tells_of_events_that_have_not_arrived(
    waits: Waits, store: Store, catalogs: Catalogs
) -> None:
    waits.register("node-2", make_node(catalogs, 2, {1: 90, 2: 250, 3: 290}))
    assert awaited(waits, store, origin="ALL") == [(1, 100, 1), (2, 250, 2), (3, 300, 1)]
    assert awaited(waits, store, origin=2, seqno=250) == [(2, 250, 2)]
    assert refused(waits, store, origin=2, seqno=251) == (422, "SEQNO_OF_THE_FUTURE", ["/seqno"])


def test_origin_that_is_behind_its_own_word_elsewhere_does_not_weaken_the_wait(
    waits: Waits, store: Store, catalogs: Catalogs
) -> None:
    waits.register("node-2", make_node(catalogs, 2, {2: 150}))
    assert awaited(waits, store, origin=2) == [(2, 200, 1)]


def test_wait_on_another_registered_node_looks_there(waits: Waits, store: Store, catalogs: Catalogs) -> None:
    waits.register("node-2", make_node(catalogs, 2, {1: 90, 2: 250, 3: 290}), runs_on=["berlin"])
    waits.bench.settings.labels = ["berlin"]
    prepared = waits.prepare(store, origin=3, wait_on=2)
    assert (prepared.params.wait_on, prepared.params.wait_on_store, prepared.runs_on) == (
        2,
        "node-2",
        ["berlin"],
    )
    assert [(each.seqno, each.known_by) for each in prepared.params.awaited] == [(290, 2)]


def test_namesake_of_another_cluster_is_not_asked(waits: Waits, store: Store, catalogs: Catalogs) -> None:
    stranger = make_node(catalogs, 2, {2: 999})
    stranger.execute("update sl_path set pa_conninfo = 'dbname=elsewhere' || pa_server")
    waits.register("stranger", stranger)
    assert awaited(waits, store, origin=2) == [(2, 200, 1)]
    assert refused(waits, store, wait_on=2) == (409, "NODE_NOT_REGISTERED", ["/wait_on"])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"origin": 9}, (422, "UNKNOWN_NODE", ["/origin"])),
        ({"confirmed": 9}, (422, "UNKNOWN_NODE", ["/confirmed"])),
        ({"wait_on": 9}, (422, "UNKNOWN_NODE", ["/wait_on"])),
        ({"wait_on": 2}, (409, "NODE_NOT_REGISTERED", ["/wait_on"])),
        ({"origin": 1, "confirmed": 1}, (422, "RECEIVER_IS_ORIGIN", ["/confirmed"])),
        ({"origin": "ALL", "seqno": 5}, (422, "INVALID_REQUEST", ["/seqno"])),
        ({"seqno": 101}, (422, "SEQNO_OF_THE_FUTURE", ["/seqno"])),
        ({"timeout": "PT0S", "wait_s": 1}, (422, "TIMEOUT_ZERO_NEEDS_A_JOB", ["/timeout"])),
    ],
)
def test_what_cannot_be_waited_for_is_refused(
    waits: Waits, store: Store, request_: dict[str, Any], expected: tuple[int, str, list[str]]
) -> None:
    assert refused(waits, store, **request_) == expected


def test_zero_timeout_is_a_jobs(waits: Waits, store: Store) -> None:
    assert waits.prepare(store, timeout="PT0S").params.timeout.total_seconds() == 0


@pytest.mark.parametrize("timeout", ["-PT1S", "P366D", "soon", None, [], "PT"])
def test_timeout_is_a_duration_of_a_year_at_most(timeout: object) -> None:
    with pytest.raises(ValidationError):
        WaitRequest.model_validate({"origin": 1, "confirmed": "ALL", "timeout": timeout})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"origin": 1},
        {"confirmed": "ALL"},
        {"origin": "all", "confirmed": "ALL"},
        {"origin": 0, "confirmed": "ALL"},
        {"origin": 1.5, "confirmed": "ALL"},
        {"origin": "1", "confirmed": "ALL"},
        {"origin": 1, "confirmed": "ALL", "wait_on": "ALL"},
        {"origin": 1, "confirmed": "ALL", "seqno": 0},
        {"origin": 1, "confirmed": "ALL", "timeuot": "PT1S"},
        {"origin": 2**31, "confirmed": "ALL"},
    ],
)
def test_malformed_request_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        WaitRequest.model_validate(fields)


def test_default_is_ten_minutes_on_the_stores_own_node(waits: Waits, store: Store) -> None:
    params = waits.prepare(store).params
    assert (params.wait_on, params.wait_on_store, params.timeout.total_seconds()) == (1, "node-1", 600)


def test_registered_node_that_does_not_answer_cannot_be_waited_on(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    waits.register("node-2", node, url=AWAY, target_parameters={"local_node": 2})
    assert refused(waits, store, wait_on=2) == (503, "NODE_UNREACHABLE", [])
    assert refused(waits, store, wait_on=3) == (409, "NODE_NOT_REGISTERED", ["/wait_on"])
    assert awaited(waits, store, origin=2) == [(2, 200, 1)]


def test_own_node_that_does_not_answer_is_told(waits: Waits, node: LoadedCatalog) -> None:
    store = waits.register("node-1", node, url=AWAY)
    assert refused(waits, store) == (503, "TARGET_UNREACHABLE", [])


def test_nobody_to_confirm_is_refused(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    node.execute(
        "update sl_node set no_active = false where no_id = 2",
        "update sl_node set no_failed = true where no_id = 3",
    )
    assert refused(waits, store) == (409, "NO_RECEIVERS", [])
    assert refused(waits, store, origin="ALL") == (409, "NO_RECEIVERS", [])
    assert awaited(waits, store, origin=3) == [(3, 300, 1)]


def test_inactive_nodes_are_no_origins_of_all(waits: Waits, store: Store, node: LoadedCatalog) -> None:
    node.execute("update sl_node set no_active = false where no_id = 2")
    assert awaited(waits, store, origin="ALL") == [(1, 100, 1), (3, 300, 1)]


def test_origin_without_events_is_refused_and_left_out_of_all(
    waits: Waits, store: Store, node: LoadedCatalog
) -> None:
    node.execute("delete from sl_event where ev_origin = 2")
    assert refused(waits, store, origin=2) == (409, "NO_EVENTS", [])
    assert refused(waits, store, origin=2, seqno=1) == (422, "SEQNO_OF_THE_FUTURE", ["/seqno"])
    assert awaited(waits, store, origin="ALL") == [(1, 100, 1), (3, 300, 1)]
    node.execute("delete from sl_event")
    assert refused(waits, store, origin="ALL") == (409, "NO_EVENTS", [])


def test_stores_that_the_caller_may_not_see_tell_nothing(
    waits: Waits, store: Store, catalogs: Catalogs
) -> None:
    waits.register("node-2", make_node(catalogs, 2, {2: 250}))
    narrow = Caller(token_id="tok_b", name="bob", scopes=ADMIN.scopes, stores=frozenset({"node-1"}))
    assert awaited(waits, store, origin=2, caller=narrow) == [(2, 200, 1)]
    assert refused(waits, store, wait_on=2, caller=narrow) == (403, "STORE_FORBIDDEN", [])
