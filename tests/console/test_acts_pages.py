"""Acts of a store by HTTP: form, plan, run; no script runs here, so that it works without one."""

from __future__ import annotations

import re
import time
from html import unescape
from pathlib import Path

import httpx
import pytest

from app.console.acts.choices import acts_of, collection_of, find_act
from app.console.acts.fields import body_of, fields_of, given_of
from app.db import Database
from app.main import create_app
from app.purge.models import PurgeKind, PurgeRequest
from app.settings import Settings
from app.stores.models import StoreKind
from app.verbs.table import VERBS
from tests.console.conftest import MakeShop
from tests.http.environments import make_environment_store
from tests.http.shop import Shop, wait_for
from tests.http.targets import CUTOFF
from tests.je_data import unpack

MARK = re.compile(r'name="csrf" value="([0-9a-f]+)"')
PLAN_MAX_S = 20.0


def mark_of(page: httpx.Response) -> str:
    found = MARK.search(page.text)
    assert found, page.text[:2000]
    return found[1]


def hidden(page: httpx.Response, name: str) -> str:
    found = re.search(f'name="{name}" value="([^"]*)"', page.text)
    assert found, name
    return unescape(found[1])


def planned(client: httpx.Client, url: str, **fields: str) -> httpx.Response:
    """The page of a plan that is made, as a browser comes to it by the header Refresh."""
    form = client.get(url)
    assert form.status_code == 200, form.text
    answer = client.post(f"{url}:plan", data={"csrf": mark_of(form)} | fields)
    assert answer.status_code == 303, answer.text
    until = time.monotonic() + PLAN_MAX_S
    while "refresh" in (page := client.get(answer.headers["location"])).headers:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert page.status_code == 200, page.text
    return page


def run(client: httpx.Client, page: httpx.Response, **fields: str) -> httpx.Response:
    """Send the form of a plan's page."""
    usual = {"csrf": mark_of(page), "given": hidden(page, "given"), "key": hidden(page, "key")}
    return client.post(page.url.path + ":run", data=usual | fields)


def test_plan_shows_what_would_be_lost_and_exactly_it_is_run(
    operator: httpx.Client, make_shop: MakeShop
) -> None:
    shop = make_shop()
    url = f"/console/stores/{shop.id}/acts/purge-outgoing"
    page = planned(operator, url, retention_minutes="1440", **{"throttle.rows_per_s": "5000"})
    assert "What would be lost" in page.text
    answer = run(operator, page, confirm=shop.id, reason="asked for by <b>finance</b>")
    assert answer.status_code == 303, answer.text
    job = shop.http.get("/v1/jobs/" + answer.headers["location"].rpartition("/")[2]).json()
    assert job["kind"] == "PURGE"
    assert job["params"]["plan_id"] == page.url.path.rpartition("/")[2]
    assert job["params"]["throttle"]["rows_per_s"] == 5000
    assert job["reason"] == "asked for by <b>finance</b>"


@pytest.mark.parametrize("act", ["purge-outgoing", "purge-incoming", "purge-data-gap"])
def test_wrong_value_stands_above_the_form_that_is_still_filled(
    operator: httpx.Client, shop: Shop, act: str
) -> None:
    url = f"/console/stores/{shop.id}/acts/{act}"
    fields = {"csrf": mark_of(operator.get(url)), "retention_minutes": "a while", "max_rows_in_tx": "7"}
    answer = operator.post(f"{url}:plan", data=fields)
    assert answer.status_code == 422
    assert "retention_minutes" in answer.text
    assert 'value="a while"' in answer.text
    assert 'value="7"' in answer.text


def test_plan_of_a_form_that_is_left_empty_is_run(
    operator: httpx.Client, http: httpx.Client, roots: Path
) -> None:
    # What the store's own parameters settle needs no field: such a plan was said to be of no known request.
    sample = unpack("closed", roots / "closed-of-empty-forms")
    store = make_environment_store(http, roots, sample, parameters={"je.erase.period": "P1D"})
    page = planned(operator, f"/console/stores/{store.id}/acts/erasure")
    assert "Plan again" in page.text
    answer = run(operator, page, confirm=store.id, reason="as the store has it")
    assert answer.status_code == 303, answer.text
    job = http.get("/v1/jobs/" + answer.headers["location"].rpartition("/")[2]).json()
    assert job["params"]["plan_id"] == page.url.path.rpartition("/")[2]
    http.post(f"/v1/jobs/{job['id']}:abort", json={}).raise_for_status()  # its cycle lasts a day
    wait_for(http, job["id"], "ABORTED")
    http.delete(store.url, headers={"If-Match": http.get(store.url).headers["etag"]})


def test_plan_whose_address_has_lost_its_request_is_not_run(operator: httpx.Client, shop: Shop) -> None:
    page = planned(operator, f"/console/stores/{shop.id}/acts/purge-incoming")
    bare = operator.get(page.url.path)
    assert "The request of this plan is not known to this page" in bare.text
    fields = {"csrf": mark_of(bare), "confirm": shop.id, "reason": "x"}
    answer = operator.post(page.url.path + ":run", data=fields)
    assert (answer.status_code, "CONSOLE_PLAN_FIRST" in answer.text) == (422, True)


@pytest.mark.parametrize(
    ("act", "fields"),
    [
        # Its form had no field to say REMOVE, without which the API takes no such purge.
        ("purge-stranded", {"stranded": "REMOVE"}),
        # A request that names a plan names no ages of channels: they are the plan's.
        ("purge-outgoing", {"channel_retention_minutes": '{"default": 60}'}),
    ],
)
def test_plan_is_run_whatever_its_form_needs(
    operator: httpx.Client, make_shop: MakeShop, act: str, fields: dict[str, str]
) -> None:
    shop = make_shop()
    page = planned(operator, f"/console/stores/{shop.id}/acts/{act}", retention_minutes="7200", **fields)
    answer = run(operator, page, confirm=shop.id, reason="x")
    assert answer.status_code == 303, answer.text
    assert wait_for(shop.http, answer.headers["location"].rpartition("/")[2])["state"] == "SUCCEEDED"


def test_field_is_shown_to_each_act_that_its_sentences_name() -> None:
    having = {act for act in PurgeKind if "stranded" in {each.name for each in fields_of(PurgeRequest, act)}}
    assert having == {PurgeKind.OUTGOING, PurgeKind.CHANNELS, PurgeKind.STRANDED}
    forced = {act for act in PurgeKind if "force" in {each.name for each in fields_of(PurgeRequest, act)}}
    assert forced == set(PurgeKind)


def test_plan_is_not_run_without_the_stores_name(operator: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop()
    page = planned(operator, f"/console/stores/{shop.id}/acts/purge-outgoing", retention_minutes="7200")
    before = shop.digest
    for name in ("", "another", shop.id.upper()):
        answer = run(operator, page, confirm=name, reason="x")
        assert answer.status_code == 422
        assert "CONSOLE_NAME_DIFFERS" in answer.text
    assert shop.digest == before


def test_plan_beyond_the_limits_says_so_and_has_no_button(
    operator: httpx.Client, make_shop: MakeShop
) -> None:
    shop = make_shop(limits={"max_rows": 1})
    page = planned(
        operator,
        f"/console/stores/{shop.id}/acts/purge-outgoing",
        cutoff=CUTOFF,
        stranded="MARK",
    )
    assert "limits do not allow this plan" in page.text
    assert "Run exactly this plan" not in page.text


def test_planned_act_is_not_run_past_its_plan(operator: httpx.Client, shop: Shop) -> None:
    url = f"/console/stores/{shop.id}/acts/purge-outgoing"
    fields = {"csrf": mark_of(operator.get(url)), "confirm": shop.id, "reason": "x"}
    answer = operator.post(f"{url}:run", data=fields)
    assert answer.status_code == 422
    assert "CONSOLE_PLAN_FIRST" in answer.text


def test_act_of_another_kind_of_store_is_not_found(operator: httpx.Client, shop: Shop) -> None:
    assert operator.get(f"/console/stores/{shop.id}/acts/erasure").status_code == 404
    assert (
        operator.get(f"/console/stores/{shop.id}/acts/purge-outgoing/plans/job_{'0' * 26}").status_code == 404
    )


def test_every_verb_of_a_store_has_a_form_and_an_operation() -> None:
    app = create_app(Settings(), Database("sqlite://"))
    found = set()
    for kind in StoreKind:
        for act in acts_of(kind):
            assert find_act(kind, act.key) == act
            assert f"/v1/stores/{{store_id}}/{collection_of(app, act)}" in app.openapi()["paths"]
            fields = fields_of(act.verb.request, act.act)
            assert {field.name for field in fields if field.is_required} <= {
                field.name for field in fields if field.is_first
            }
            assert body_of(fields, {}) == {}
            found.add((act.verb.kind, act.act))
    wanted = {(verb.kind, act) for verb in VERBS if verb.stores for act in (verb.acts or {None})}
    assert found == wanted
    assert [act.key for act in acts_of(StoreKind.JE)] == ["erasure", "extinction"]
    assert [act.key for act in acts_of(StoreKind.SQL)] == ["purge-rows"]


def test_request_fills_the_form_that_makes_it() -> None:
    fields = fields_of(PurgeRequest, "ROWS")
    body = {
        "table": "tickets",
        "where": "status = 'x' and 1 < 2",
        "children": ["a", "b"],
        "force": True,
        "throttle": {"rows_per_s": 12.5},
        "archive": {"format": "PARQUET"},
        "max_rows_in_tx": 10,
    }
    assert body_of(fields, given_of(fields, body)) == body
