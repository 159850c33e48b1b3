"""Was anything lost: recorded files of real servers in the form, and the answer that the API gives."""

from __future__ import annotations

import gzip
import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.browsing import Tab, csrf_of, signed_in
from tests.console.fleet import SCRIPT
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

DATA = Path(__file__).parents[1] / "data"
SESSIONS = DATA / "replication" / "sessions.jsonl.gz"
MakeToken = Callable[..., str]


def text_of(path: Path) -> str:
    with gzip.open(path, "rt") as lines:
        return lines.read()


@pytest.fixture(scope="module")
def store(http: httpx.Client) -> Iterator[str]:
    """A server of 389 that is away: nobody asks it."""
    body = {"id": "lost-389", "kind": "DS389", "url": "ldap://127.0.0.1:9?tls=none", "suffix": "dc=lost"}
    http.post("/v1/stores", json=body | {"bind_dn": "cn=x,cn=config"}).raise_for_status()
    yield "lost-389"
    http.delete("/v1/stores/lost-389", headers={"If-Match": "*"}).raise_for_status()


def find(client: httpx.Client, store: str, fields: dict[str, str], servers: int = 2) -> httpx.Response:
    data = {"csrf": csrf_of(client)} | fields
    return client.post(f"/console/stores/{store}/lost?servers={servers}", data=data)


def shown(page: str) -> str:
    found = page.partition("<main")[2]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", found).split()))


def faults(page: str) -> dict[str, str]:
    return dict(re.findall(r'<p class="fault" id="([\w-]+)-fault">([^<]*)</p>', page))


def csns_of(page: str) -> list[str]:
    return re.findall(r'<td class="id">([0-9a-f]{20})</td>', page)


def test_recorded_losses_are_those_of_the_api(operator: httpx.Client, http: httpx.Client, store: str) -> None:
    lines = text_of(SESSIONS).splitlines()
    told = http.post("/v1/ds389:find-lost", json={"sessions": [json.loads(line) for line in lines]}).json()
    answer = find(operator, store, {"errors.1": "\n".join(lines)})
    assert answer.status_code == 200, answer.text
    assert csns_of(answer.text) == [each["csn"] for each in told["lost"]]
    text = shown(answer.text)
    assert "2 118 changes and 131 sessions are known." in text
    assert "Lost: 15 changes. Server 2 lacks 13, server 4 lacks 2." in text
    assert "6affffba001800020000 to 6b0002da000000020000" in text
    assert text.count("s1-to-s2,") == 13
    judged = re.findall(r'<td class="wrap">([^<]*)</td>', answer.text.partition("<details>")[2])
    assert judged == [each["agreement"] for each in told["sessions"]]


def test_files_of_two_servers_of_which_nothing_was_lost(operator: httpx.Client, store: str) -> None:
    fields = {
        "errors.1": text_of(DATA / "ds389" / "s1-errors.gz"),
        "rid.2": "2",
        "access.2": text_of(DATA / "ds389" / "s2-access.gz"),
    }
    page = find(operator, store, fields)
    assert page.status_code == 200, page.text
    assert "Nothing was lost, as far as these files tell: " in shown(page.text)
    assert csns_of(page.text) == []
    assert "Sessions beside the lossless rule" in page.text
    assert re.search(r"tell: 9 changes and 4 sessions are known", shown(page.text))


def test_hole_is_a_suspicion_and_a_refusal_a_loss(operator: httpx.Client, store: str) -> None:
    csns = [f"6b0002e700{number:02}00010000" for number in range(4)]
    whole = "\n".join(f"csn: {csn}" for csn in csns)
    holed = "\n".join(f"csn: {csn}" for csn in csns if csn != csns[1])
    fields = {"rid.1": "1", "changelog.1": whole, "rid.2": "2", "changelog.2": holed}
    page = find(operator, store, fields)
    text = shown(page.text)
    assert csns_of(page.text) == [csns[1]]
    assert "No loss is proved. Suspected: 1 change. Server 2 lacks 1." in text
    refused = f"[x] conn=1 op=2 RESULT err=65 tag=103 nentries=0 csn={csns[1]}"
    page = find(operator, store, fields | {"access.2": refused})
    assert "Lost: 1 change." in shown(page.text)
    assert "(LDAP result 65)" in page.text


@pytest.mark.parametrize(
    ("fields", "where", "says"),
    [
        ({}, "changelog-1", "give at least one file"),
        ({"changelog.2": "csn: 6b0002e7000000010000"}, "rid-2", "the RID of the server"),
        ({"rid.1": "x", "access.1": "x"}, "rid-1", "the RID of the server"),
        ({"rid.1": "0", "changelog.1": "csn: 6b0002e7000000010000"}, "rid-1", "greater than or equal to 1"),
        ({"rid.1": "1", "rid.2": "1", "changelog.1": "x", "changelog.2": "x"}, "rid-2", "given twice"),
        ({"rid.2": "2", "changelog.2": "nothing of it"}, "changelog-2", "not the export of a changelog"),
        ({"rid.1": "1", "access.1": "nothing of it"}, "access-1", "not an access log"),
        ({"errors.2": "nothing of it"}, "errors-2", "nsslapd-errorlog-level 8192"),
        ({"errors.2": '{"x": 1}'}, "errors-2", "Field required"),
        ({"errors.1": '{"x'}, "errors-1", "no JSON"),
    ],
)
def test_bad_file_has_its_problem_beside_it(
    operator: httpx.Client, store: str, fields: dict[str, str], where: str, says: str
) -> None:
    answer = find(operator, store, fields)
    assert answer.status_code == 422, answer.text
    found = faults(answer.text)
    assert set(found) == {where}
    assert says in found[where]
    for value in fields.values():
        assert html.escape(value, quote=False).replace('"', "&#34;") in answer.text


def test_changelog_that_was_cut_off_is_refused_at_its_field(operator: httpx.Client, store: str) -> None:
    lines = (DATA / "replication" / "s1-changelog-trimmed.ldif").read_text()
    answer = find(operator, store, {"rid.2": "1", "changelog.2": lines[: len(lines) // 2]})
    assert answer.status_code == 422
    assert "it is cut off" in faults(answer.text)["changelog-2"]


def test_texts_that_are_too_large_are_refused_by_a_page_that_says_so(
    operator: httpx.Client, store: str
) -> None:
    # It was a problem in JSON, which a browser shows as it is.
    answer = find(operator, store, {"rid.1": "1", "changelog.1": "csn: 6b0002e7000000010000\n" * 60_000})
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "BODY_TOO_LARGE" in answer.text
    assert "What to do" in answer.text


def test_form_is_of_who_may_act_and_of_servers_of_389(
    service: ServiceProcess,
    operator: httpx.Client,
    viewer: httpx.Client,
    make_token: MakeToken,
    store: str,
    shop: Shop,
) -> None:
    url = f"/console/stores/{store}/lost"
    assert f'id="lost" href="{url}"' in operator.get(f"/console/stores/{store}").text
    assert f'href="{url}"' not in viewer.get(f"/console/stores/{store}").text
    page = viewer.get(url).text.partition("<main")[2]
    assert "<form" not in page
    assert "jobs:control" in page
    answer = find(viewer, store, {"errors.1": "x"})
    assert (answer.status_code, "SCOPE_MISSING" in answer.text) == (403, True)
    assert operator.get(f"/console/stores/{shop.id}/lost").status_code == 404
    assert find(operator, shop.id, {}).status_code == 404
    with signed_in(service, make_token("operator", stores=[shop.id])) as client:
        assert client.get(url).status_code == 403
        assert find(client, store, {"errors.1": "x"}).status_code == 403
    assert operator.get(f"{url}?servers=3").text.count("<legend>") == 3
    assert operator.get(f"{url}?servers=21").status_code == 422


def test_names_of_others_are_inert(operator: httpx.Client, store: str) -> None:
    session: dict[str, Any] = {
        "agreement": SCRIPT,
        "consumer_ruv": ["{replicageneration} 6afffdfc000000010000", "{replica 2 ldap://x}"],
        "supplier_ruv": [
            "{replicageneration} 6afffdfc000000010000",
            "{replica 1 ldap://x} 6b0002e7000000010000 6b0002e7000100010000",
        ],
        "sent": ["6b0002e7000100010000"],
    }
    page = find(operator, store, {"errors.1": json.dumps(session)})
    assert page.status_code == 200, page.text
    assert csns_of(page.text) == ["6b0002e7000000010000"]
    assert "<script>document" not in page.text
    assert "&lt;script&gt;document" in page.text


def test_page_of_lost_changes_is_good_at_all_widths(tab: Tab, store: str) -> None:
    tab.open(f"/console/stores/{store}")
    tab.page.click("#lost")
    tab.assert_good()
    tab.page.fill("#errors-1", text_of(SESSIONS))
    tab.page.click("text=Find what was lost")
    tab.sees("Lost: 15 changes.")
    tab.page.click("summary")
    tab.assert_good()
