"""An archive is brought back from the page of its store: what the API takes, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.console.browsing import csrf_of, signed_in
from tests.console.conftest import MakeShop
from tests.http.environments import write_small
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for

MakeToken = Callable[..., str]


def archived(make_shop: MakeShop, http: httpx.Client) -> tuple[Shop, str]:
    """A shop, and the job that has archived what it removed."""
    shop = make_shop()
    job = accepted(shop.purge(archive={"format": "PARQUET"}))
    wait_for(http, job, "SUCCEEDED")
    return shop, job


def restore(client: httpx.Client, job: str, shop: str, **fields: str) -> httpx.Response:
    data = {"csrf": csrf_of(client), "confirm": shop, "reason": "why"} | fields
    return client.post(f"/console/archives/{job}/restore", data=data)


def jobs_of(http: httpx.Client, shop: str) -> list[dict[str, Any]]:
    found = http.get("/v1/jobs", params={"store": shop, "kind": "ARCHIVE_RESTORE"}).json()["items"]
    return [each["params"]["into"] for each in found]


def faults(page: str) -> dict[str, str]:
    """What stands next to fields, by their ids."""
    return dict(re.findall(r'<p class="fault" id="([\w-]+)-fault">([^<]*)</p>', page))


def test_archive_is_restored_into_a_file_from_the_page_of_its_store(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client, roots: Path
) -> None:
    shop, job = archived(make_shop, http)
    listed = operator.get(f"/console/stores/{shop.id}/parts/archives").text
    link = f"/console/archives/{job}"
    assert f'href="{link}#restore"' in listed
    page = operator.get(link).text
    told = http.get(f"/v1/archives/{job}").json()
    for file in told["file_list"]:
        assert file["path"] in page
    assert 'name="into.file"' in page
    assert 'name="into.live"' in page
    assert 'name="into.schema"' not in page  # SQLite has none

    path = roots / f"restored-{shop.id}.sqlite"
    before = shop.digest
    answer = restore(operator, job, shop.id, **{"into.file": str(path)})
    assert answer.status_code == 303, answer.text
    found = wait_for(http, answer.headers["location"].rpartition("/")[2], "SUCCEEDED")
    assert found["params"] == {"archive": job, "into": {"file": str(path), "schema": None, "live": False}}
    assert found["reason"] == "why"
    with closing(sqlite3.connect(path)) as conn:
        tables = [name for (name,) in conn.execute("select name from sqlite_master where type = 'table'")]
        rows = sum(conn.execute(f'select count(*) from "{name}"').fetchone()[0] for name in tables)
    assert rows == told["rows"] == found["result"]["rows"]
    text = operator.get(answer.headers["location"]).text
    shown = f"{rows:,}".replace(",", "\u202f")
    assert f"Brought back: {shown} rows in" in text
    assert shop.digest == before
    audit = http.get("/v1/audit-events", params={"action": "archive.restore", "store": shop.id}).json()
    assert [each["detail"]["via"] for each in audit["items"]] == ["console"]


def test_unit_whose_keys_are_taken_is_refused_and_the_page_says_what_to_do(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client, roots: Path
) -> None:
    shop = make_shop()
    before = shutil.copy(shop.path, roots / f"before-{shop.id}.sqlite")
    job = accepted(shop.purge(archive={"format": "PARQUET"}))
    wait_for(http, job, "SUCCEEDED")
    with closing(sqlite3.connect(shop.path)) as conn:
        conn.execute("attach ? as former", (str(before),))
        with conn:
            gone = "select * from former.sym_data where data_id not in (select data_id from sym_data) limit 1"
            assert conn.execute("insert into sym_data " + gone).rowcount == 1
            conn.execute("update sym_data set row_data = 'mine' where data_id = last_insert_rowid()")
    answer = restore(operator, job, shop.id, **{"into.live": "yes"})
    assert answer.status_code == 303, answer.text
    found = wait_for(http, answer.headers["location"].rpartition("/")[2], "FAILED")
    assert found["error"]["code"] == "RESTORE_REFUSED"
    page = operator.get(answer.headers["location"]).text
    [refused] = found["result"]["refused"]
    assert f"Unit {refused['unit_id']} of sym_data was refused, conflict: " in page
    assert "What to do: " in page
    with closing(sqlite3.connect(shop.path)) as conn:
        assert conn.execute("select count(*) from sym_data where row_data = 'mine'").fetchone() == (1,)


def test_file_that_exists_is_refused_by_the_job_with_what_to_do(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client, roots: Path
) -> None:
    shop, job = archived(make_shop, http)
    path = roots / f"there-{shop.id}.sqlite"
    path.write_bytes(b"mine")
    answer = restore(operator, job, shop.id, **{"into.file": str(path)})
    assert wait_for(http, answer.headers["location"].rpartition("/")[2])["state"] == "FAILED"
    page = operator.get(answer.headers["location"]).text
    assert "RESTORE_CONFLICT" in page
    assert "What to do: " in page
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"into.file": "not/absolute"}, "field-into-file"),
        ({}, "into"),
        ({"into.file": "/x", "into.live": "yes"}, "into"),
        ({"into.file": "/x", "confirm": "another"}, "confirm"),
        ({"into.file": "/x" * 600}, "field-into-file"),
    ],
)
def test_bad_field_has_its_problem_beside_it_and_nothing_is_done(
    operator: httpx.Client, shop: Shop, http: httpx.Client, fields: dict[str, str], field: str
) -> None:
    archives = http.get("/v1/archives", params={"store": shop.id}).json()["items"]
    job = archives[0]["job_id"] if archives else accepted(shop.purge(archive={"format": "PARQUET"}))
    wait_for(http, job)
    before = jobs_of(http, shop.id)
    answer = restore(operator, job, fields.pop("confirm", shop.id), **fields)
    assert answer.status_code == 422, answer.text
    assert "Not done" in answer.text
    assert field in faults(answer.text), faults(answer.text)
    for name, value in fields.items():
        assert f'name="{name}"' in answer.text
        assert value in answer.text
    assert jobs_of(http, shop.id) == before


def test_places_are_those_of_the_tokens_scopes(
    service: ServiceProcess,
    make_shop: MakeShop,
    make_token: MakeToken,
    viewer: httpx.Client,
    http: httpx.Client,
) -> None:
    shop, job = archived(make_shop, http)
    # An operator's token has neither stores:write nor admin: a schema is left, which SQLite lacks.
    with signed_in(service, make_token("operator")) as client:
        page = client.get(f"/console/archives/{job}").text
        assert "There is no place that your token may restore to" in page
        assert 'name="into.' not in page
        for fields in ({"into.file": "/x.sqlite"}, {"into.live": "yes"}):
            answer = restore(client, job, shop.id, **fields)
            assert (answer.status_code, "SCOPE_MISSING" in answer.text) == (403, True), fields
    page = viewer.get(f"/console/archives/{job}").text.partition("<main")[2]
    assert "<form" not in page
    assert "Restore" not in page
    assert restore(viewer, job, shop.id, **{"into.file": "/x"}).status_code == 403
    other = make_shop()
    with signed_in(service, make_token("operator", stores=[other.id])) as client:
        for answer in (client.get(f"/console/archives/{job}"), restore(client, job, shop.id)):
            assert answer.status_code == 403
            assert "STORE_FORBIDDEN" in answer.text
    assert jobs_of(http, shop.id) == []


def test_archive_of_a_store_that_is_gone_goes_into_a_file_alone(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client
) -> None:
    shop, job = archived(make_shop, http)
    http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": "*"}).raise_for_status()
    page = operator.get(f"/console/archives/{job}").text
    assert "no longer registered" in page
    assert 'name="into.file"' in page
    assert 'name="into.live"' not in page
    answer = restore(operator, job, shop.id, **{"into.live": "yes"})
    assert (answer.status_code, "STORE_REMOVED" in answer.text) == (409, True)
    assert "What to do: Register a store of the same id" in answer.text


def test_archive_that_is_none_is_not_found(operator: httpx.Client) -> None:
    assert operator.get(f"/console/archives/job_{'0' * 26}").status_code == 404
    assert operator.get("/console/archives/none").status_code == 404


def test_what_is_posted_by_others_is_shown_inert(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client
) -> None:
    shop, job = archived(make_shop, http)
    hostile = "<script>document.title='taken'</script>\"'>"
    answer = restore(operator, job, shop.id, **{"into.file": hostile, "reason": hostile})
    assert answer.status_code == 422
    assert "<script>document" not in answer.text
    assert "&lt;script&gt;document" in answer.text
    assert json.dumps(hostile) not in answer.text


def test_archive_of_a_store_whose_name_another_kind_bears_by_now_has_a_page(
    operator: httpx.Client, make_shop: MakeShop, http: httpx.Client, roots: Path
) -> None:
    # An environment has no address: the page was 500.
    shop, job = archived(make_shop, http)
    assert http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": shop.etag()}).status_code == 204
    directory = write_small(roots / f"environment-{shop.id}")
    body = {"id": shop.id, "kind": "JE", "path": str(directory)}
    assert http.post("/v1/stores", json=body).status_code == 201
    page = operator.get(f"/console/archives/{job}")
    assert page.status_code == 200, page.text
    assert 'name="into.file"' in page.text
    assert 'name="into.schema"' not in page.text
