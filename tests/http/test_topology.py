"""Every replica and agreement in one answer; a naive model counts what each consumer lacks."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.replica_stores import ConsumerStore, make_replica
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import accepted, wait_for
from tests.http.supplying import GENERATION, agree, token_file, write


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """The topology of replicas in files."""
    return sqlite_service


def _topology(http: httpx.Client) -> dict[str, Any]:
    answer = http.get("/v1/replication/topology")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def _changelog(store: ConsumerStore) -> list[tuple[int, str]]:
    """(RID, CSN) of each record, by the list of changes."""
    found, token = [], ""
    while True:
        page = store.http.get(
            f"/v1/stores/{store.id}/changes", params={"page_size": 500, "page_token": token}
        ).json()
        found += [(each["rid"], each["csn"]) for each in page["items"]]
        token = page["next_page_token"]
        if not token:
            return found


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.long)])
def test_lags_are_what_the_changelogs_and_the_consumers_say(
    http: httpx.Client, service: ServiceProcess, roots: Path, rounds: int
) -> None:
    """Random writes and sessions in a ring of three, each looked at against both sides' own lists."""
    dice = random.Random(3)
    stores = [make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in (1, 2, 3)]
    token = f"file:{token_file(service, roots)}"
    ids = []
    for number, store in enumerate(stores):
        made = agree(http, store.id, stores[(number + 1) % 3].id, url=service.url, token=token)
        assert made.status_code == 201, made.text
        ids.append(made.json()["id"])
    for _ in range(rounds):
        write(dice.choice(stores), dice.randrange(1, 6), prefix=f"p{dice.randrange(9)}")
        number = dice.randrange(3)
        path = f"/v1/stores/{stores[number].id}/replication-sessions"
        wait_for(http, accepted(http.post(path, json={"agreement_id": ids[number]})), "SUCCEEDED")
        seen = {each["id"]: each for each in _topology(http)["agreements"]}
        for at, store in enumerate(stores):
            consumer = stores[(at + 1) % 3].ruv()["ruv"] or {}
            lags = {row["rid"]: row for row in seen[ids[at]]["rids"]}
            # What the supplier was told of its consumer is never ahead of what that has.
            for row in lags.values():
                assert (row["acknowledged"] or "") <= consumer.get(str(row["rid"]), "")
            for rid, row in lags.items():
                lacks = [c for r, c in _changelog(store) if r == rid and c > (row["acknowledged"] or "")]
                assert row["changes"] == len(lacks), (rid, row)
            assert seen[ids[at]]["lag_changes"] == sum(row["changes"] for row in lags.values())
        # Of the session that has just ended nothing is left.
        level = seen[ids[number]]
        assert (level["lag_changes"], level["lag"], level["needs_total"]) == (0, "PT0S", False)
        assert (level["color"], level["last_session"]["outcome"]) == ("green", "UP_TO_DATE")
    nodes = {each["store"]: each for each in _topology(http)["nodes"] if each["url"] is None}
    for rid, store in enumerate(stores, start=1):
        assert (nodes[store.id]["rid"], nodes[store.id]["status"]) == (rid, "ONLINE")
        assert nodes[store.id]["ruv"] == store.ruv()["ruv"]


def test_a_supplier_that_cannot_be_read_says_why_and_hides_no_other(
    http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    away, there = (make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in (1, 2))
    token = f"file:{token_file(service, roots)}"
    made = agree(http, away.id, "elsewhere", url=service.url, token=token)
    assert made.status_code == 201, made.text
    write(there, 1)
    assert away.path is not None
    for name in ("-wal", "-shm"):  # out of these it could still be read, while a tick has it open
        away.path.with_name(away.path.name + name).unlink(missing_ok=True)
    broken = away.path.with_name("broken")
    broken.write_bytes(b"no database" * 100)
    broken.replace(away.path)
    found = _topology(http)
    nodes = {(each["store"], each["url"]): each for each in found["nodes"]}
    assert nodes[away.id, None]["target_code"] is not None
    assert nodes[there.id, None]["status"] == "ONLINE"
    assert nodes["elsewhere", service.url]["status"] is None
    [agreement] = [each for each in found["agreements"] if each["id"] == made.json()["id"]]
    assert (agreement["rids"], agreement["lag"], agreement["needs_total"]) == (None, None, None)
    assert agreement["target_code"] == nodes[away.id, None]["target_code"]


def test_a_token_sees_the_replicas_of_its_stores_only(http: httpx.Client, roots: Path) -> None:
    one, other = (make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in (1, 2))
    body = {"name": f"sees-{one.id}", "scopes": ["stores:read"], "stores": [one.id]}
    made = http.post("/v1/tokens", json=body)
    assert made.status_code == 201, made.text
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    answer = http.get("/v1/replication/topology", headers=headers)
    assert [each["store"] for each in answer.json()["nodes"]] == [one.id]
    assert other.id in {each["store"] for each in _topology(http)["nodes"]}


def test_the_command_shows_it(http: httpx.Client, service: ServiceProcess, roots: Path) -> None:
    store = make_replica(http, rid=1, folder=roots, generation=GENERATION)
    access = ["--url", service.url, "--data-dir", str(service.data_dir)]
    done = run_to_end(["replication", "topology", *access, "--json"])
    assert done.returncode == 0, done.stderr
    assert store.id in {each["store"] for each in json.loads(done.stdout)["nodes"]}
    shown = run_to_end(["replication", "topology", *access])
    assert (shown.returncode, store.id in shown.stdout) == (0, True), shown.stderr
