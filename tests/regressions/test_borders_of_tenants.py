"""An admin limited to one store rotated the signing keys of all (200); a limited `stores:write` pointed its
own store at another tenant's database, which a second name of its host hid (201, and a plan of the other
tenant's rows); a viewer submitted 31 jobs that wait for 30 days and read the data of replicas; `jobs:control`
resumed a purge that `:retry` refused; Lethe's own metadata was taken as a store by another name of its host
or file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import make_url

from app.db import Database
from app.settings import Settings
from app.stores.targets import file_identity
from tests.app.auth.requests import Http, build, make_token, open_gate
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench
from tests.conftest import SharedServer
from tests.http.targets import copy_reference
from tests.je_data import unpack
from tests.oracles.symmetricds import Place
from tests.regressions.purges import Purges

BORDER = "TARGET_OF_OTHER_STORES"
VIEWER = {"scopes": [], "role": "viewer"}


@pytest.fixture
def http(sqlite_database: Database, settings: Settings, clock: FakeClock) -> Http:
    admin = make_token(sqlite_database, clock)
    return Http(build(settings, sqlite_database, clock, open_gate()), admin)


def _token(http: Http, *scopes: str, **fields: Any) -> str:
    answer = http("POST", "/v1/tokens", json={"name": "t", "scopes": list(scopes)} | fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def _register(http: Http, name: str, url: str, *, token: str | None = None, **fields: Any) -> httpx.Response:
    return http(
        "POST", "/v1/stores", token=token, json={"id": name, "kind": "SYMMETRICDS", "url": url} | fields
    )


def _refused(answer: httpx.Response, code: str, *, status: int = 403) -> None:
    assert (answer.status_code, answer.json().get("code")) == (status, code), answer.text


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/signing-keys:rotate", None),
        ("POST", "/v1/spark-pool:recycle", {}),
        ("POST", "/v1/spark-pool:drain", {}),
        ("POST", "/v1/spark-pool:resume", {}),
        ("GET", "/v1/spark-pool", None),
        ("GET", "/v1/instances", None),
        ("PUT", "/v1/parameters/purge.retention.minutes", {"value": 60}),
        ("DELETE", "/v1/parameters/purge.retention.minutes", None),
    ],
)
def test_limited_admin_does_nothing_that_is_for_all(
    http: Http, method: str, path: str, body: dict[str, Any] | None
) -> None:
    limited = _token(http, "admin", stores=["mine"])
    answer = http(method, path, token=limited, json=body, headers={"If-Match": '"0"'})
    _refused(answer, "TOKEN_LIMITED_TO_STORES")


def test_limited_admin_sees_no_tokens_of_others(http: Http) -> None:
    _token(http, "admin", stores=["theirs"], name="theirs-only")
    _token(http, "admin", stores=["mine", "theirs"], name="both")
    _token(http, "jobs:read", name="all")
    limited = _token(http, "admin", stores=["mine"], name="limited")
    _token(http, "jobs:read", stores=["mine"], name="another of mine")
    shown = http("GET", "/v1/tokens", token=limited).json()["items"]
    assert {each["name"] for each in shown} == {"limited", "another of mine"}


def test_limited_token_sees_figures_of_its_own_stores_only(
    http: Http, bench: Workbench, tmp_path: Path
) -> None:
    for name in ("mine", "theirs"):
        assert _register(http, name, f"sqlite:///{tmp_path}/{name}.db").status_code == 201
    for kind, store in (("PURGE", "mine"), ("PLAN", "theirs")):
        bench.set(
            bench.submit(kind, store=store), state="SUCCEEDED", result={"removed": {f"table_of_{store}": 7}}
        )
    text = http("GET", "/metrics", token=_token(http, "jobs:read", stores=["mine"])).text
    assert 'lethe_jobs{kind="PURGE",state="SUCCEEDED"} 1.0' in text
    assert 'lethe_stores{kind="SYMMETRICDS"} 1.0' in text
    assert [word for word in ("theirs", "lethe_instances_alive") if word in text] == []
    told = [line for line in text.splitlines() if '"PLAN"' in line]
    assert [line for line in told if not line.endswith(" 0.0")] == []  # each kind that there is begins at 0
    assert 'lethe_stores{kind="SYMMETRICDS"} 2.0' in http("GET", "/metrics").text


def test_limited_token_points_no_store_at_the_file_of_another_tenant(http: Http, tmp_path: Path) -> None:
    path = copy_reference(tmp_path / "theirs.sqlite", "3.x")
    assert _register(http, "theirs", f"sqlite:///{path}").status_code == 201
    link, hard = tmp_path / "link.sqlite", tmp_path / "hard.sqlite"
    link.symlink_to(path)
    os.link(path, hard)
    limited = _token(http, "stores:write", "stores:read", stores=["mine"])
    for name in (path, link, hard):
        answer = _register(http, "mine", f"sqlite:///{name}", token=limited)
        _refused(answer, "TARGET_OF_OTHER_STORES")
        assert "theirs" not in answer.text.replace(str(path), "")
    empty = tmp_path / "empty.sqlite"
    assert _register(http, "mine", f"sqlite:///{empty}", token=limited).status_code == 201
    headers = {"If-Match": "*"}
    moved = http(
        "PATCH", "/v1/stores/mine", token=limited, headers=headers, json={"url": f"sqlite:///{hard}"}
    )
    _refused(moved, "TARGET_OF_OTHER_STORES")


def test_link_that_comes_later_leads_a_limited_store_nowhere(
    http: Http, bench: Workbench, tmp_path: Path
) -> None:
    """Its path named nothing when it was registered, and the other tenant's file when it was used."""
    path = copy_reference(tmp_path / "theirs.sqlite", "3.x")
    assert _register(http, "theirs", f"sqlite:///{path}").status_code == 201
    limited = _token(http, "admin", stores=["mine"])
    late = tmp_path / "late.sqlite"
    assert _register(http, "mine", f"sqlite:///{late}", token=limited).status_code == 201
    late.symlink_to(path)
    _refused(http("POST", "/v1/stores/mine:check", token=limited), "TARGET_OF_OTHER_STORES")
    for query in ("", "?validate_only=true"):
        answer = http("POST", f"/v1/stores/mine/purges{query}", token=limited, json={"kind": "OUTGOING"})
        _refused(answer, "TARGET_OF_OTHER_STORES")
    stats = http("GET", "/v1/stores/mine/purge-stats", token=limited)
    _refused(stats, "TARGET_IS_ANOTHER", status=409)


def test_job_of_a_limited_store_is_judged_when_it_starts(purges: Purges, tmp_path: Path) -> None:
    """What came between its submission and its start: a link, another address of a name, another store."""
    place = purges.fill(Place(f"sqlite:///{tmp_path}/theirs.sqlite"))
    path = tmp_path / "mine.sqlite"
    purges.store(place, target_proof=file_identity("sqlite", tmp_path / "theirs.sqlite"), name="theirs")
    purges.store(Place(f"sqlite:///{path}"), name="mine", target_limit=["mine"])
    path.symlink_to(tmp_path / "theirs.sqlite")
    job = purges.run(purges.submit("mine"))
    assert job.state == "FAILED"
    assert job.error is not None
    assert job.error["code"] == "TARGET_OF_OTHER_STORES"
    assert "theirs" not in str(job.error)


def test_cycle_in_the_environment_of_another_tenant_is_refused(http: Http, tmp_path: Path) -> None:
    directory = unpack("closed", tmp_path / "theirs-je")
    theirs = {"id": "theirs", "kind": "JE", "path": str(directory)}
    assert http("POST", "/v1/stores", json=theirs).status_code == 201
    limited = _token(http, "admin", stores=["mine"])
    mine = {"id": "mine", "kind": "JE", "path": str(tmp_path / "link")}
    assert http("POST", "/v1/stores", token=limited, json=mine).status_code == 201
    (tmp_path / "link").symlink_to(directory)
    _refused(http("POST", "/v1/stores", token=limited, json=mine | {"path": str(directory)}), BORDER)
    _refused(http("POST", "/v1/stores/mine:check", token=limited), BORDER)
    cycle = http("POST", "/v1/stores/mine/erasure-cycles", token=limited, json={"period": "P1D"})
    _refused(cycle, "TARGET_IS_ANOTHER", status=422)
    entry = http("GET", "/v1/stores/mine/log-entries/00000000.jdb/0", token=limited)
    _refused(entry, "TARGET_IS_ANOTHER", status=422)


def test_who_has_access_to_all_stores_of_a_target_may_add_one(http: Http, tmp_path: Path) -> None:
    path = copy_reference(tmp_path / "both.sqlite", "3.x")
    assert _register(http, "first", f"sqlite:///{path}").status_code == 201
    both = _token(http, "stores:write", "stores:read", stores=["first", "second"])
    assert _register(http, "second", f"sqlite:///{path}", token=both).status_code == 201
    assert _register(http, "third", f"sqlite:///{path}").status_code == 201
    _refused(http("POST", "/v1/stores/second:check", token=both), "TARGET_OF_OTHER_STORES")
    again = http("PATCH", "/v1/stores/second", headers={"If-Match": "*"}, json={"url": f"sqlite:///{path}"})
    assert again.status_code == 200, again.text
    assert http("POST", "/v1/stores/second:check", token=both).status_code == 200


@pytest.mark.postgresql
def test_other_name_of_a_host_hides_no_tenant(http: Http, postgresql_url: str) -> None:
    other = _other_name(postgresql_url)
    assert _register(http, "theirs", postgresql_url).status_code == 201
    limited = _token(http, "admin", stores=["mine"])
    _refused(_register(http, "mine", other, token=limited), "TARGET_OF_OTHER_STORES")
    beside = _register(http, "mine", other, token=limited, schema="another")
    assert beside.status_code == 201, beside.text


def _other_name(url: str) -> str:
    parsed = make_url(url)
    assert parsed.host in ("127.0.0.1", "localhost"), "the test server is this machine's"
    other = "localhost" if parsed.host == "127.0.0.1" else "127.0.0.1"
    return parsed.set(host=other).render_as_string(hide_password=False)


@pytest.mark.postgresql
def test_own_metadata_is_no_store_by_any_name(
    postgresql_database: Database, settings: Settings, clock: FakeClock, postgresql_server: SharedServer
) -> None:
    http = Http(
        build(settings, postgresql_database, clock, open_gate()), make_token(postgresql_database, clock)
    )
    url = postgresql_database.url.render_as_string(hide_password=False)
    for name in (url, _other_name(url)):
        _refused(_register(http, "own", name), "OWN_METADATA", status=422)
    postgresql_server.execute("drop role if exists lethe_borders")
    postgresql_server.execute("create role lethe_borders login")
    weak = make_url(_other_name(url)).set(username="lethe_borders").render_as_string(hide_password=False)
    _refused(_register(http, "own", weak), "OWN_METADATA", status=422)


def test_own_metadata_file_is_no_store_by_any_name(
    sqlite_database: Database, settings: Settings, clock: FakeClock, tmp_path: Path
) -> None:
    http = Http(build(settings, sqlite_database, clock, open_gate()), make_token(sqlite_database, clock))
    own = str(sqlite_database.url.database)
    hard = tmp_path / "another-name.db"
    os.link(own, hard)
    for name in (own, str(hard)):
        _refused(_register(http, "own", f"sqlite:///{name}"), "OWN_METADATA", status=422)


def test_viewer_submits_no_job_and_reads_no_data(http: Http, tmp_path: Path) -> None:
    replica = {"id": "r", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{tmp_path}/r.db"}
    node = {"id": "n", "kind": "SLONY", "url": "postgresql+psycopg://x@127.0.0.1:1/x", "cluster": "c"}
    for body in (replica, node):
        assert http("POST", "/v1/stores", json=body).status_code == 201
    change = {"database": "ZA==", "key": "aw==", "value": "dg=="}
    assert http("POST", "/v1/stores/r/changes", json=change).status_code == 200
    viewer = _token(http, **VIEWER)
    submitted = [
        ("events:wait", "/v1/stores/n/events:wait", {"timeout": "P30D"}),
        ("evidence:verify", f"/v1/archives/job_{'0' * 26}:verify", None),
        ("evidence:verify", f"/v1/stores/n/erasure-cycles/cyc_{'0' * 26}:verify", None),
    ]
    for scope, path, json in submitted:
        answer = http("POST", path, token=viewer, json=json)
        _refused(answer, "SCOPE_MISSING")
        assert answer.json()["scope"] == scope
        assert http("POST", path, token=_token(http, scope), json=json).status_code != 403
    for path in ("entries", "entries/ZA/aw", "changes", "dead-letters"):
        answer = http("GET", f"/v1/stores/r/{path}", token=viewer)
        _refused(answer, "SCOPE_MISSING")
        assert answer.json()["scope"] == "data:read"
        assert http("GET", f"/v1/stores/r/{path}", token=_token(http, "data:read")).status_code == 200


def test_keys_in_the_result_of_an_audit_are_data(http: Http, bench: Workbench, tmp_path: Path) -> None:
    replica = {"id": "r", "kind": "REPLICA", "rid": 1, "url": f"sqlite:///{tmp_path}/r.db"}
    assert http("POST", "/v1/stores", json=replica).status_code == 201
    place = {"database": "ZA==", "key": "c2VjcmV0"}
    differing = {"kind": "VALUE", "after": None, "upto": place, "supplier": 1, "consumer": 1}
    entries = {"agrees": False, "differing": [differing]}
    job_id = bench.submit("AUDIT", store="r")
    bench.set(job_id, state="SUCCEEDED", result={"entries": entries, "truncated": False})
    paths = (f"/v1/jobs/{job_id}", "/v1/jobs", "/v1/stores/r/audits", f"/v1/jobs/{job_id}/events")
    reader = _token(http, "jobs:read", "data:read")
    for path in paths:
        shown = http("GET", path, token=_token(http, **VIEWER))
        assert shown.status_code == 200
        assert place["key"] not in shown.text
    for path in paths[:3]:
        assert place["key"] in http("GET", path, token=reader).text


@pytest.mark.parametrize("verb", ["retry", "resume"])
def test_resume_needs_what_retry_needs(http: Http, bench: Workbench, verb: str) -> None:
    job_id = bench.submit("PURGE", store="shop", params={"kind": "OUTGOING"})
    bench.set(job_id, state="FAILED" if verb == "retry" else "PAUSED")
    controller = _token(http, "jobs:control", "jobs:read")
    answer = http("POST", f"/v1/jobs/{job_id}:{verb}", token=controller)
    _refused(answer, "SCOPE_MISSING")
    assert answer.json()["scope"] == "purges:write"
    both = _token(http, "jobs:control", "purges:write")
    assert http("POST", f"/v1/jobs/{job_id}:{verb}", token=both).status_code in (200, 202)


@pytest.mark.parametrize(
    ("kind", "params"),
    [("TELEPORT", {}), ("BATCH", {"kind": "TELEPORT"}), ("PLAN", {"plan": "TELEPORT"})],
)
def test_kind_that_nobody_knows_is_not_started_again(
    http: Http, bench: Workbench, kind: str, params: dict[str, Any]
) -> None:
    for verb, state in (("retry", "FAILED"), ("resume", "PAUSED")):
        job_id = bench.submit(kind, store="shop", params=params)
        bench.set(job_id, state=state)
        _refused(http("POST", f"/v1/jobs/{job_id}:{verb}"), "JOB_KIND_UNKNOWN", status=409)
