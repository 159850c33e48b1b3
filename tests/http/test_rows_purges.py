"""Purges ROWS over HTTP on three databases: plans, children, limits, archives, and what is refused."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.targets.archive.archive import read_manifest_json, read_rows
from spark.targets.connection import Connection, Target, connect
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for

ROWS = 300
OLD = 200
OLD_UNHELD = 100
"""Old tickets that have no note: those can go."""
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


@dataclass(frozen=True)
class Desk:
    """A store of tickets, the first two hundred old; each second has a note, each tenth an invoice."""

    http: httpx.Client
    id: str
    conn: Connection
    url: str

    def body(self, **fields: Any) -> dict[str, Any]:
        age = {} if {"cutoff", "plan_id"} & set(fields) else {"older_than": "P90D"}
        timed = {} if "plan_id" in fields else {"time_column": "closed at"}
        return {"kind": "ROWS", "table": "ticket"} | age | timed | fields

    def purge(self, **fields: Any) -> httpx.Response:
        return self.http.post(f"/v1/stores/{self.id}/purges", json=self.body(**fields))

    def plan(self, **fields: Any) -> dict[str, Any]:
        answer = self.http.post(
            f"/v1/stores/{self.id}/purges",
            params={"validate_only": "true"},
            json=self.body(**fields),
            headers={"Prefer": "wait=20"},
        )
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def done(self, **fields: Any) -> dict[str, Any]:
        job = wait_for(self.http, accepted(self.purge(**fields)))
        assert job["state"] == "SUCCEEDED", job
        found: dict[str, Any] = job["result"]
        return found

    def failed(self, **fields: Any) -> dict[str, Any]:
        job = wait_for(self.http, accepted(self.purge(**fields)))
        assert job["state"] == "FAILED", job
        found: dict[str, Any] = job["error"]
        return found

    def ids(self, table: str = "ticket") -> list[int]:
        return [int(row[0]) for row in self.conn.execute(f"select id from {table} order by id")]

    def limit(self, **limits: Any) -> None:
        etag = self.http.get(f"/v1/stores/{self.id}").headers["etag"]
        answer = self.http.patch(f"/v1/stores/{self.id}", json={"limits": limits}, headers={"If-Match": etag})
        assert answer.status_code == 200, answer.text


def fill(conn: Connection, *, cascade: bool = False) -> None:
    quote = conn.dialect.quote
    old, young = ("2020-01-01 10:00:00", "2037-01-01 10:00:00")
    suffix = " engine=innodb" if conn.dialect.name == "mysql" else ""
    rule = " on delete cascade" if cascade else ""
    conn.execute(
        f"create table ticket (id integer primary key, {quote('closed at')} timestamp null,"
        f" status varchar(20)){suffix}"
    )
    conn.execute(
        "create table note (id integer primary key, ticket integer,"
        f" foreign key (ticket) references ticket (id){rule}){suffix}"
    )
    conn.execute(
        "create table invoice (id integer primary key, ticket integer,"
        f" foreign key (ticket) references ticket (id)){suffix}"
    )
    for first in range(0, ROWS, 100):
        rows = ", ".join(
            f"({n}, '{old if n < OLD else young}', '{'open' if n % 5 == 0 else 'done'}')"
            for n in range(first, first + 100)
        )
        conn.execute(f"insert into ticket values {rows}")
    conn.execute("insert into note values " + ", ".join(f"({n}, {n})" for n in range(0, ROWS, 2)))
    conn.execute("insert into invoice values " + ", ".join(f"({n}, {n})" for n in range(0, ROWS, 10)))


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def place(request: pytest.FixtureRequest, roots: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        path = roots / f"tickets-{uuid.uuid4().hex[:8]}.db"
        path.touch()
        return f"sqlite:///{path}"
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def desk(place: str, http: httpx.Client) -> Iterator[Desk]:
    """The store, registered."""
    with closing(connect(Target(place, table_prefix=""), application_name="desk")) as conn:
        fill(conn)
        yield register(http, conn, place)


def register(http: httpx.Client, conn: Connection, place: str) -> Desk:
    name = f"desk-{next(_numbers)}"
    answer = http.post("/v1/stores", json={"id": name, "kind": "SQL", "url": place})
    assert answer.status_code == 201, answer.text
    assert answer.json()["table_prefix"] is None
    return Desk(http, name, conn, place)


def test_old_rows_go_and_what_a_foreign_key_needs_is_kept_and_named(desk: Desk) -> None:
    check = desk.http.post(f"/v1/stores/{desk.id}:check").json()
    assert check["ok"], check
    assert "PURGE_ROWS" in check["can"]
    before = desk.ids()
    plan = desk.plan()
    kept = [item for item in plan["warnings"] if item["code"] == "HELD_BY_FOREIGN_KEY"]
    assert {item["detail"].split(",")[1].split(".")[0].removeprefix(" but ") for item in kept} == {
        "note",
        "invoice",
    }
    assert [item["count"] for item in kept if " note." in item["detail"]] == [100]
    assert (plan["rows"], plan["rows_to_remove"]) == (ROWS, 100)
    assert desk.ids() == before
    result = desk.done(archive={"format": "PARQUET"})
    assert (result["removed"], result["counts"]) == ({"ticket": 100}, "EXACT")
    assert result["archive"]["rows"] == 100
    assert desk.ids() == [n for n in range(ROWS) if n >= OLD or n % 2 == 0]
    assert {item["count"] for item in result["kept"]} == {100, 20}
    assert desk.done()["removed"] == {"ticket": 0}


def test_children_go_first_and_what_others_hold_stays_with_its_children(desk: Desk) -> None:
    result = desk.done(children=["note"], where="status = 'done'", archive={"format": "PARQUET"})
    gone = [n for n in range(OLD) if n % 5 and n % 10]
    assert result["removed"] == {"note": len([n for n in gone if n % 2 == 0]), "ticket": len(gone)}
    assert desk.ids() == [n for n in range(ROWS) if n not in gone]
    assert desk.ids("note") == [n for n in range(0, ROWS, 2) if n not in gone]
    entries = read_manifest_json(Path(result["archive"]["directory"]))
    archived = {
        name: sorted(
            int(row[0]) for each in entries if each.table_name == name for row in read_rows(each.path)
        )
        for name in ("ticket", "note")
    }
    assert archived == {"ticket": gone, "note": [n for n in gone if n % 2 == 0]}


def test_a_plan_is_executed_and_nothing_beyond_it_goes(desk: Desk) -> None:
    plan = desk.plan(children=["note", "invoice"])
    assert plan["rows_to_remove"] == OLD + OLD // 2 + OLD // 10
    quote = desk.conn.dialect.quote
    desk.conn.execute(
        f"insert into ticket (id, {quote('closed at')}, status) values (5000, '2020-01-01 10:00:00', 'done')"
    )
    desk.conn.execute("insert into note values (5001, 3)")
    desk.conn.execute("update ticket set status = 'done'")
    desk.conn.execute(f"update ticket set {quote('closed at')} = '2037-01-01 10:00:00' where id = 7")
    problem(desk.purge(plan_id=plan["plan_id"], table="note"), 422, "PLAN_DIFFERS")
    assert desk.failed(plan_id=plan["plan_id"], max_drift=0)["code"] == "PLAN_NO_LONGER_HOLDS"
    result = desk.done(plan_id=plan["plan_id"])
    left = desk.ids()
    # 3 has a note that nobody reviewed, 7 is young now, 5000 was not there.
    assert left == [3, 7, *range(OLD, ROWS), 5000]
    assert sum(result["planned"].values()) == plan["rows_to_remove"]
    assert result["fewer_than_planned"] == 2


def test_limits_bind_before_the_first_delete(desk: Desk) -> None:
    desk.limit(max_rows=99)
    assert desk.failed()["code"] == "LIMIT_EXCEEDED"
    desk.limit(max_fraction=0.1)
    assert desk.failed()["code"] == "LIMIT_EXCEEDED"
    assert len(desk.ids()) == ROWS
    desk.limit(max_rows=100)
    assert desk.done()["removed"] == {"ticket": 100}


def test_the_speed_is_bounded_and_shown(desk: Desk) -> None:
    job_id = accepted(desk.purge(max_rows_in_tx=10, max_rows_per_s=40))
    job = wait_for(desk.http, job_id, "RUNNING")
    while not (job["progress"] and job["throttle"]["effective"]):
        job = desk.http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=1"}).json()
    assert job["throttle"]["effective"]["rows_per_s"] == 40
    assert desk.http.post(f"/v1/jobs/{job_id}:abort").status_code in (200, 202)
    job = wait_for(desk.http, job_id)
    assert job["state"] == "ABORTED"
    gone = ROWS - len(desk.ids())
    assert job["result"]["removed"] == {"ticket": gone}
    again = desk.http.post(f"/v1/jobs/{job_id}:retry")
    done = wait_for(desk.http, accepted(again))
    assert done["state"] == "SUCCEEDED"
    assert gone + done["result"]["removed"]["ticket"] == 100


def test_progress_counts_over_all_attempts_and_ends_as_the_result_says(desk: Desk) -> None:
    slow = {"max_rows_in_tx": 5, "max_rows_per_s": 12}
    job_id = accepted(desk.purge(**slow))
    first = _moved(desk, job_id, beyond=20)
    shown, total = first["progress"], first["progress"]["total"] or 0
    assert total or desk.conn.dialect.name != "sqlite", "a server may have no statistics yet"
    for _ in range(2):
        desk.http.post(f"/v1/jobs/{job_id}:pause")
        paused = wait_for(desk.http, job_id, "PAUSED")
        assert paused["progress"]["removed"] == OLD_UNHELD - _left(desk)
        assert paused["progress"]["removed"] == paused["result"]["removed"]["ticket"]
        assert paused["progress"]["done"] >= shown["done"]
        desk.http.post(f"/v1/jobs/{job_id}:resume")
        shown = _moved(desk, job_id, beyond=paused["progress"]["done"])["progress"]
        assert (shown["total"] or 0) >= total, "what is gone counts still"
        assert shown["removed"] >= paused["progress"]["removed"]
    desk.http.post(f"/v1/jobs/{job_id}:pause")
    paused = wait_for(desk.http, job_id, "PAUSED")
    desk.http.post(f"/v1/jobs/{job_id}:resume")
    desk.http.post(f"/v1/jobs/{job_id}:abort")
    job = wait_for(desk.http, job_id)
    assert job["state"] == "ABORTED"
    ended = job["progress"]
    assert ended["removed"] == job["result"]["removed"]["ticket"] == OLD_UNHELD - _left(desk)
    assert ended["done"] >= paused["progress"]["done"]
    assert (ended["total"] or 0) >= total


def _left(desk: Desk) -> int:
    return len(desk.ids()) - (ROWS - OLD_UNHELD)


def _moved(desk: Desk, job_id: str, *, beyond: int) -> dict[str, Any]:
    """The job once it has shown that it looked at more rows than so many."""
    job = wait_for(desk.http, job_id, "RUNNING")
    while not job["progress"] or job["progress"]["done"] <= beyond:
        assert job["state"] in ("RUNNING", "QUEUED"), job
        job = desk.http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=1"}).json()
    return job


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"table": None}, "/table"),
        ({"older_than": None, "time_column": None}, "/older_than"),
        ({"cutoff": "2020-01-01T00:00:00Z"}, "/cutoff"),
        ({"time_column": None}, "/time_column"),
        ({"children": ["ticket"]}, "/children"),
        ({"retention_minutes": 10}, "/retention_minutes"),
        ({"max_rows_per_s": 5, "throttle": {"rows_per_s": 1}}, "/max_rows_per_s"),
        ({"replicas": ["desk-0"]}, "/max_replica_lag"),
    ],
)
@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_request_that_says_nothing_or_two_things_is_refused(
    desk: Desk, fields: dict[str, Any], where: str
) -> None:
    body = {
        name: value
        for name, value in (desk.body() | {"older_than": "P90D"} | fields).items()
        if value is not None
    }
    answer = desk.http.post(f"/v1/stores/{desk.id}/purges", json=body)
    assert where in pointers(problem(answer, 422, "INVALID_REQUEST"))


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"table": "tickets"}, 409, "TARGET_TABLES_MISSING"),
        ({"table": 'ticket"; drop table note; --'}, 409, "TARGET_TABLES_MISSING"),
        ({"table": "ticket` where 1=1 -- "}, 409, "TARGET_TABLES_MISSING"),
        ({"children": ["note; drop table note"]}, 409, "TARGET_TABLES_MISSING"),
        ({"time_column": "id or 1=1"}, 422, "EXPRESSION_INVALID"),
        ({"time_column": "status"}, 422, "EXPRESSION_INVALID"),
        ({"where": "1=1"}, 422, "EXPRESSION_INVALID"),
        ({"where": "status = 'x' or 1=1"}, 422, "EXPRESSION_INVALID"),
        ({"where": "status = 'x'; drop table note"}, 422, "EXPRESSION_INVALID"),
        ({"where": "id in (select id from note)"}, 422, "EXPRESSION_INVALID"),
        ({"where": "nothing = 'x'"}, 422, "EXPRESSION_INVALID"),
        ({"where": "status = lower('x')"}, 422, "EXPRESSION_INVALID"),
        ({"where": "(" * 60 + "id = 1" + ")" * 60}, 422, "EXPRESSION_INVALID"),
        ({"cutoff": "2098-01-01T00:00:00Z"}, 422, "FUTURE_CUTOFF"),
    ],
)
@pytest.mark.parametrize("place", ["postgresql"], indirect=True)
def test_hostile_names_and_expressions_are_refused_and_change_nothing(
    desk: Desk, fields: dict[str, Any], status: int, code: str
) -> None:
    problem(desk.purge(**fields), status, code)
    assert (len(desk.ids()), len(desk.ids("note"))) == (ROWS, ROWS // 2)


OWN_TABLES = {"unit_ledger": "rows_affected > 0", "fence": "token >= 0", "archive_manifest": "bytes > 0"}


def test_tables_of_lethe_itself_are_refused(desk: Desk, http: httpx.Client) -> None:
    """Whoever might purge rows could remove the ledger that counts them, and the fence of other jobs."""
    desk.done(archive={"format": "PARQUET"})
    own, prefix = desk.id, "lethe_"
    if desk.conn.dialect.name == "postgresql":
        own, prefix = f"{desk.id}-own", ""
        answer = http.post("/v1/stores", json={"id": own, "kind": "SQL", "url": desk.url, "schema": "lethe"})
        assert answer.status_code == 201, answer.text
    for table, where in OWN_TABLES.items():
        rows = f"select * from {desk.conn.dialect.lethe_table(table)}"
        before, name = desk.conn.execute(rows), prefix + table
        for named in (name, name.upper()):
            body = {"kind": "ROWS", "table": named, "where": where}
            answer = http.post(f"/v1/stores/{own}/purges", json=body)
            assert answer.status_code in (409, 422), answer.text
        assert desk.conn.execute(rows) == before


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_token_names_only_replicas_that_it_may_touch(
    desk: Desk, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    token = make_token(scopes=["purges:write", "jobs:read"], stores=[desk.id])
    body = desk.body(max_replica_lag="PT5S", replicas=["not-mine"])
    with service.http(token) as http:
        problem(http.post(f"/v1/stores/{desk.id}/purges", json=body), 403, "STORE_FORBIDDEN")
    problem(desk.purge(max_replica_lag="PT5S", replicas=["not-there"]), 404, "STORE_NOT_FOUND")
    job_id = accepted(desk.purge(max_replica_lag="PT5S", replicas=[desk.id]))  # it follows nobody
    # Until a runner takes it, it waits for one.
    while "REPLICA_LAG" not in str((job := desk.http.get(f"/v1/jobs/{job_id}").json())["waiting_on"]):
        assert job["state"] in ("QUEUED", "RUNNING"), job
    assert desk.http.post(f"/v1/jobs/{job_id}:abort").status_code in (200, 202)
    assert wait_for(desk.http, job_id)["state"] == "ABORTED"
    assert len(desk.ids()) == ROWS


def test_a_cascade_is_refused_until_the_children_are_named(place: str, http: httpx.Client) -> None:
    with closing(connect(Target(place, table_prefix=""), application_name="desk")) as conn:
        fill(conn, cascade=True)
        desk = register(http, conn, place)
        found = problem(desk.purge(), 409, "CASCADES")
        assert "name note in `children`" in found["detail"]
        assert desk.done(children=["note"])["removed"] == {"note": 80, "ticket": 180}
