"""Parts of a store as a person reads them: verdicts, faults, lags, and links to where one acts."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from app.console.calls import Api
from app.console.rendering import Rights, environment
from app.console.store_parts import PARTS, parts_of
from app.events.health.models import SlonyHealthRead
from app.replication.ds389.models import Ds389HealthRead, Ds389TopologyRead
from app.replication.topology.models import TopologyRead
from app.stores.models import StoreKind

NOW = "2026-11-27T13:40:00Z"
LAG = {
    "rid": 1,
    "supplier_csn": "6b0987ff000000010000",
    "consumer_csn": None,
    "at_least": "PT2M",
    "at_most": None,
}
SERVER = {
    "store": "ldap1",
    "rid": 1,
    "role": "SUPPLIER",
    "status": "CRITICAL",
    "as_of": NOW,
    "clock_difference": "PT1S",
    "generation": "6b0987e1000000010000",
    "version": "389-Directory/2.3.1",
    "changes": 16,
    "ruv": [{"rid": 1, "url": "ldap://a", "min_csn": None, "max_csn": "6b0987ff000000010000"}],
    "lags": [LAG],
}
FINDING = {
    "code": "AGREEMENT_FAILED",
    "severity": "CRITICAL",
    "servers": ["ldap1", "ldap3"],
    "rid": 1,
    "agreement": "s1-to-s3",
    "detail": "agreement s1-to-s3 has failed",
    "advice": "Look at the consumer: `dsconf x`.",
    "measured": None,
    "limit": None,
}
AGREEMENT = {
    "supplier": "ldap1",
    "name": "s1-to-s3",
    "consumer": None,
    "host": "far.example",
    "port": 636,
    "enabled": True,
    "updating": False,
    "initialising": False,
    "state": "red",
    "status": "Error (-1) Problem connecting to replica",
    "init_status": "",
    "started_at": NOW,
    "ended_at": NOW,
    "sent": 12,
    "skipped": 3,
    "lags": [LAG],
}
NODE = {
    "store": "lab-1",
    "node": 1,
    "status": "WARNING",
    "as_of": NOW,
    "lag": "PT3S",
    "sync_age": "PT1S",
    "transaction_age": "PT2M",
    "table_rows": {"sl_log_1": 62},
}
FAULT = {
    "code": "COMPONENT_SILENT",
    "severity": "WARNING",
    "node": 1,
    "seen_by": ["lab-1"],
    "detail": "threads of slon have said nothing",
    "advice": "Look at the log.",
    "measured": 25,
    "limit": 5,
    "unit": "SECONDS",
}


def dumped(model: Any, **fields: Any) -> Any:
    return TypeAdapter(model).validate_python(fields).model_dump(mode="json")


class Asked(Api):
    """The API: answers what it was given, and notes what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers, self.asked = answers, []

    async def get(self, *path: str, **query: Any) -> Any:
        self.asked.append(("/".join(path), query))
        return self.answers["store" if len(path) == 2 and path[0] == "stores" else "answer"]


class SignedIn:
    def __init__(self, *scopes: str) -> None:
        self.caller = type("Caller", (), {"scopes": frozenset(scopes)})()


def shown(
    name: str, answer: Any, *scopes: str, store: str = "a", fields: Any = None
) -> tuple[str, list[Any]]:
    """The page of a part, and what was asked for it."""
    api, part = Asked(answer=answer, store=fields or {}), PARTS[name]
    found = asyncio.run(part.read(api, store))
    rights: Any = Rights(SignedIn(*scopes), is_changing=True)  # type: ignore[arg-type]
    values = {"part": part, "shown": found, "store_id": store, "now": datetime.fromisoformat(NOW)}
    return environment().get_template("part_live.html").render(values, rights=rights), api.asked


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_servers_of_389_are_shown_with_a_verdict_and_what_to_do() -> None:
    # It was a list of names in capitals, with columns that were cut.
    answer = dumped(Ds389HealthRead, suffix="dc=x", status="CRITICAL", servers=[SERVER], findings=[FINDING])
    page, _ = shown("health", answer)
    text = text_of(page)
    assert "critical dc=x: 1 asked, 1 finding." in text
    assert "Look at the consumer: dsconf x ." in text
    assert 'href="/console/help#agreement_failed"' in page
    assert page.count('href="/console/stores/ldap3"') == 1
    assert "1: at least 2 min" in text
    assert "CRITICAL" not in page


def test_topology_of_389_is_asked_for_the_suffix_of_the_store() -> None:
    agreements = [AGREEMENT, AGREEMENT | {"name": "s1-to-s2", "consumer": "ldap2", "enabled": False}]
    answer = dumped(Ds389TopologyRead, suffix="dc=x", servers=[SERVER], agreements=agreements)
    page, asked = shown("servers", answer, store="ldap1", fields={"suffix": "dc=x"})
    assert asked[-1] == ("ds389/topology", {"suffix": "dc=x"})
    text = text_of(page)
    assert "s1-to-s3 ldap1 far.example:636, which is no store red 1: at least 2 min 12, 3 skipped" in text
    assert "suspended not enabled" in text
    assert 'href="/console/stores/ldap2"' in page


def test_nodes_of_slony_are_shown_with_a_verdict_alone_and_as_a_cluster() -> None:
    answer = dumped(SlonyHealthRead, cluster="Shop", status="WARNING", nodes=[NODE], findings=[FAULT])
    page, asked = shown("node-health", answer, store="lab-1")
    assert asked == [("stores/lab-1/slony-health", {})]
    text = text_of(page)
    assert "warning Cluster Shop: 1 asked, 1 finding." in text
    assert "lab-1 1 warning 3 s 1 s old 2 min 62 in sl_log_1" in text
    _, asked = shown("cluster-health", answer, store="lab-1", fields={"cluster": "Shop"})
    assert asked[-1] == ("slony-health", {"cluster": "Shop"})


KEYS = [{"database": "ZGI=", "prefix": "azAw"}]


def supplied(supplier: str, consumer: str, **fields: Any) -> dict[str, Any]:
    usual = {
        "id": "agr_1",
        "supplier": supplier,
        "consumer": {"url": "https://far.example", "store": consumer, "rid": 2},
        "state": "REGISTERED",
        "is_active": True,
        "interval": None,
        "keys": None,
        "color": "green",
        "message": "Error (0) Total update succeeded",
        "lag": "PT1M",
        "lag_changes": 7,
        "needs_total": False,
        "rids": [],
        "last_session": None,
        "target_code": None,
    }
    return usual | fields


def replica(name: str, **fields: Any) -> dict[str, Any]:
    usual = {"store": name, "url": None, "rid": 1, "generation": None, "ruv": {"1": "6b0987ff000000010000"}}
    return usual | {"status": "ONLINE", "part": None, "target_code": None} | fields


def test_topology_of_a_replica_is_its_own_agreements_and_their_ends() -> None:
    answer = dumped(
        TopologyRead,
        at=NOW,
        nodes=[replica("a"), replica("b", part=KEYS, status="PARTIAL"), replica("other")],
        agreements=[supplied("a", "b", keys=KEYS), supplied("other", "elsewhere")],
        truncated=False,
    )
    page, asked = shown("topology", answer)
    assert asked == [("replication/topology", {})]
    text = text_of(page)
    assert (
        "a b green Error (0) Total update succeeded 1 min, 7 changes keys of db that begin with k00 none yet"
        in text
    )
    assert "other" not in text


def test_agreement_says_what_the_consumer_holds_and_leads_to_a_session() -> None:
    row = {"id": "agr_1", "state": "REGISTERED", "interval": None, "keys": KEYS}
    answer = {"items": [row | {"consumer": {"store": "b", "url": "u", "rid": 2}}], "next_page_token": ""}
    page, _ = shown("agreements", answer, "replication:write")
    assert "b at u, replica id 2 keys of db that begin with k00 when asked New session , audit" in text_of(
        page
    )
    assert (
        "/console/stores/a/acts/replication-session?given=%7B%22agreement_id%22%3A%20%22agr_1%22%7D" in page
    )
    assert "New session" not in shown("agreements", answer)[0]


def test_archives_of_a_store_lead_to_their_jobs_and_to_a_verification() -> None:
    row = {"job_id": "job_1", "created_at": NOW, "resource": "sym_data", "rows": 7, "bytes": 2000, "files": 1}
    page, asked = shown("archives", {"items": [row | {"expires_at": NOW}]}, "evidence:verify")
    assert asked == [("archives", {"store": "a", "page_size": 25})]
    assert "sym_data 7 2.0 kB in 1 file" in text_of(page)
    assert 'href="/console/do/archive-verify/job_1?store=a"' in page
    assert "Verify" not in shown("archives", {"items": [row | {"expires_at": NOW}]})[0]


def test_bytes_of_others_are_shown_as_text_and_what_is_off_says_so() -> None:
    row = {"label": "x", "state": "DONE", "databases": ["ZGI=", "/w=="], "reason": "SYM_DATA"}
    fields = dict.fromkeys(("created_at", "records", "bytes", "job_id"))
    page, _ = shown("extinctions", {"items": [row | fields]})
    assert "db, ff" in page
    assert "Off: a parameter" in shown("recurring-cleanup", None)[0]


def test_every_kind_of_store_that_has_a_health_or_a_topology_shows_it() -> None:
    having = {kind: {part.name for part in parts_of(kind)} for kind in StoreKind}
    assert {"health", "servers"} <= having[StoreKind.DS389]
    assert {"node-health", "cluster-health", "node", "recurring-cleanup"} <= having[StoreKind.SLONY]
    assert {"topology", "sessions", "replication", "recurring"} <= having[StoreKind.REPLICA]
    assert "backlog" in having[StoreKind.SYMMETRICDS]
