"""Changes of a replica, the history of a key, and changes that lost: what the API answers, safely shown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.console.browsing import Tab, signed_in
from tests.console.fleet import LONG, SCRIPT
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.supplying import make_pair
from tests.http.writers import WrittenStore, change, make_written

MakeToken = Callable[..., str]
PAGES = ("changes", "history", "overwritten")


@pytest.fixture(scope="module")
def written(http: httpx.Client, roots: Path) -> WrittenStore:
    """A replica with two pages of changes; the last are hostile."""
    store = make_written(http, folder=roots)
    many = [change(f"k{number:03}".encode(), f"v{number}".encode()) for number in range(70)]
    store.post({"changes": many}).raise_for_status()
    hostile = [
        change(SCRIPT.encode(), (SCRIPT + LONG).encode(), database=SCRIPT[:200].encode()),
        change(b"\x00\xff\x80", b"\xff" * 900_000),
        change("\u202egnp.exe".encode(), b""),
        change(b"k000", None),
    ]
    store.post({"changes": hostile}).raise_for_status()
    return store


def next_of(page: str) -> str:
    found = re.search(r'id="next" href="([^"]+)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def cursor_of(page: str) -> str:
    found = re.search(r'<pre id="cursor-behind">([^<]+)</pre>', page)
    assert found is not None, page
    return found[1]


def csns_of(page: str) -> list[str]:
    return re.findall(r'<td class="id">([0-9a-f]{20})</td>', page)


def faults(page: str) -> set[str]:
    return set(re.findall(r'class="fault" id="([\w-]+)-fault"', page))


def test_changes_are_those_of_the_feed_page_by_page_with_its_cursor(
    operator: httpx.Client, http: httpx.Client, written: WrittenStore
) -> None:
    told: list[str] = []
    begin = {"starting": "earliest"}
    answer, cursor = operator.get(f"/console/stores/{written.id}/changes", params=begin), ""
    while True:
        assert answer.status_code == 200, answer.text
        params = {"page_size": 50} | ({"cursor": cursor} if cursor else {})
        feed = http.get(f"{written.url}/feed", params=params).json()
        assert csns_of(answer.text) == [each["csn"] for each in feed["items"]]
        assert cursor_of(answer.text) == feed["cursor"]
        told += csns_of(answer.text)
        cursor = feed["cursor"]
        if not feed["more"]:
            break
        assert ">Next page<" in answer.text
        answer = operator.get(next_of(answer.text))
    assert len(told) == len(set(told)) == 74
    assert "That is all until now." in answer.text
    later = operator.get(next_of(answer.text))
    assert "Nothing has come since." in later.text
    # What is written after it, and nothing else, follows the cursor; the same in another's hands.
    written.put(b"new", b"later").raise_for_status()
    page = operator.get(next_of(later.text)).text
    assert len(csns_of(page)) == 1
    assert ">later<" in page
    assert len(http.get(f"{written.url}/feed", params={"cursor": cursor}).json()["items"]) == 1


def test_newest_changes_come_first_of_all(
    operator: httpx.Client, http: httpx.Client, written: WrittenStore
) -> None:
    every = http.get(f"{written.url}/feed").json()["items"]
    page = operator.get(f"/console/stores/{written.id}/changes").text
    assert csns_of(page) == [each["csn"] for each in every[-50:]]
    assert "That is all until now." in page
    assert cursor_of(page) == http.get(f"{written.url}/feed", params={"starting": "latest"}).json()["cursor"]
    assert operator.get(f"/console/stores/{written.id}/changes", params={"starting": "x"}).status_code == 422


def test_changes_are_narrowed_by_text_and_by_bytes(operator: httpx.Client, written: WrittenStore) -> None:
    url = f"/console/stores/{written.id}/changes"
    page = operator.get(url, params={"database": "orders", "prefix": "k00"}).text
    assert len(csns_of(page)) == 11  # ten, and one of them again, deleted
    page = operator.get(url, params={"database": "base64:b3JkZXJz", "prefix": "base64:AP8"}).text
    assert len(csns_of(page)) == 1
    page = operator.get(url, params={"starting": "latest"}).text
    assert (csns_of(page), "Nothing has come since." in page) == ([], True)


def test_bytes_of_others_are_inert_and_bounded(operator: httpx.Client, written: WrittenStore) -> None:
    page = operator.get(f"/console/stores/{written.id}/changes").text
    assert "<script>document" not in page
    assert "<img" not in page
    assert "&lt;script&gt;document" in page
    assert "\u202e" not in page
    assert "the beginning of 900 kB" in page
    assert "W" * 300 not in page
    assert len(page) < 80_000
    # The links of keys lead to their histories, whatever bytes they are of.
    links = [html.unescape(each) for each in re.findall(r'href="([^"]+/history\?[^"]+)"', page)]
    assert len(links) >= 24
    for link in links[-5:]:
        found = operator.get(link)
        assert found.status_code == 200, (link, found.text)
        assert csns_of(found.text), link
        assert "<script>document" not in found.text


@pytest.mark.parametrize(
    ("page", "params", "field"),
    [
        ("changes", {"cursor": "nonsense"}, "cursor"),
        ("changes", {"cursor": "ab§"}, "cursor"),
        ("changes", {"prefix": "k"}, "prefix"),
        ("changes", {"database": "d" * 300}, "database"),
        ("changes", {"database": "base64:§"}, "database"),
        ("history", {"database": "orders", "key": "base64:!"}, "key"),
        ("overwritten", {"since": "yesterday"}, "since"),
    ],
)
def test_bad_field_has_its_problem_beside_it(
    operator: httpx.Client, written: WrittenStore, page: str, params: dict[str, str], field: str
) -> None:
    answer = operator.get(f"/console/stores/{written.id}/{page}", params=params)
    assert answer.status_code == 422, answer.text
    assert "Not shown" in answer.text
    assert faults(answer.text) == {field}
    for value in params.values():
        assert f'value="{value}"' in answer.text


def test_cursor_of_another_topology_is_refused_with_what_to_do(
    operator: httpx.Client, http: httpx.Client, written: WrittenStore, roots: Path
) -> None:
    other = make_written(http, folder=roots)
    cursor = http.get(f"{written.url}/feed").json()["cursor"]
    answer = operator.get(f"/console/stores/{other.id}/changes", params={"cursor": cursor})
    assert answer.status_code == 409
    assert "CURSOR_AHEAD" in answer.text
    assert "What to do: " in answer.text
    assert "From the beginning of the changelog" in answer.text


def test_history_of_a_key_is_that_of_the_api(
    operator: httpx.Client, http: httpx.Client, written: WrittenStore
) -> None:
    told = http.get(f"/v1/stores/{written.id}/entries/b3JkZXJz/azAwMA/history").json()
    url = f"/console/stores/{written.id}/history"
    page = operator.get(url, params={"database": "orders", "key": "k000"}).text
    assert csns_of(page) == [each["csn"] for each in told["items"]]
    assert [each["outcome"] for each in told["items"]] == ["WON", "OVERWRITTEN"]
    assert '">won</span>' in page
    assert '">overwritten</span>' in page
    assert told["items"][0]["csn"] in page
    none = operator.get(url, params={"database": "orders", "key": "never"}).text
    assert "The changelog holds no change of this key." in none
    assert operator.get(url).status_code == 200


def test_change_that_lost_to_another_replica_is_shown_and_leads_to_its_key(
    operator: httpx.Client, http: httpx.Client, service: ServiceProcess, roots: Path
) -> None:
    pair = make_pair(http, service, roots)
    for store, value in ((pair.supplier, b"older"), (pair.consumer, b"newer")):
        body = {"changes": [change(b"both", value)]}
        http.post(f"/v1/stores/{store.id}/changes", json=body).raise_for_status()
    assert pair.run()["state"] == "SUCCEEDED"
    told = http.get(f"/v1/stores/{pair.consumer.id}/changes/overwritten").json()["items"]
    assert len(told) == 1
    url = f"/console/stores/{pair.consumer.id}/overwritten"
    page = operator.get(url).text
    assert csns_of(page) == [told[0]["csn"], told[0]["overwritten_by"]]
    assert f'">{told[0]["verdict"].lower()}</span>' in page
    [link] = re.findall(r'href="([^"]+/history\?[^"]+)"', page)
    history = operator.get(html.unescape(link)).text
    assert ">older<" in history
    assert ">newer<" in history
    assert "No change lost" in operator.get(url, params={"verdict": "SEEN"}).text
    assert "No change lost" in operator.get(url, params={"database": "else"}).text
    assert operator.get(url, params={"verdict": "WRONG"}).status_code == 422


def test_pages_are_of_who_may_read_data_and_of_replicas(
    service: ServiceProcess,
    operator: httpx.Client,
    viewer: httpx.Client,
    make_token: MakeToken,
    written: WrittenStore,
    shop: Shop,
) -> None:
    link = f'id="changes" href="/console/stores/{written.id}/changes"'
    assert link in operator.get(f"/console/stores/{written.id}").text
    assert link not in viewer.get(f"/console/stores/{written.id}").text
    assert 'id="changes"' not in operator.get(f"/console/stores/{shop.id}").text
    key = urlencode({"database": "orders", "key": "k000"})
    for page in ("changes", f"history?{key}", "overwritten"):
        answer = viewer.get(f"/console/stores/{written.id}/{page}")
        assert (answer.status_code, "SCOPE_MISSING" in answer.text) == (403, True), page
        assert operator.get(f"/console/stores/nowhere/{page}").status_code == 404, page
        assert operator.get(f"/console/stores/{shop.id}/{page}").status_code == 409, page
    with signed_in(service, make_token("operator", stores=[shop.id])) as client:
        for page in ("changes", "history", f"history?{key}", "overwritten"):
            answer = client.get(f"/console/stores/{written.id}/{page}")
            assert (answer.status_code, "k000" in answer.text) == (403, False), page


def test_pages_of_a_replica_are_good_at_all_widths(tab: Tab, written: WrittenStore) -> None:
    key: dict[str, Any] = {"database": "orders", "key": "k000"}
    for path in ("changes", "changes?cursor=x", "history?" + urlencode(key), "overwritten"):
        tab.page.goto(f"{tab.service.url}/console/stores/{written.id}/{path}")
        tab.complaints = [each for each in tab.complaints if "status of 422" not in each]
        tab.assert_good()
    tab.open(f"/console/stores/{written.id}/changes")
    tab.page.click("text=From the beginning of the changelog")
    tab.assert_good()
    tab.page.click("#next")
    tab.sees("That is all until now.")
    tab.assert_good()
    assert tab.page.title() != "taken"
    assert tab.page.query_selector("main script, main img") is None
