"""Two stores of one kind on one target: a registration and each check say so; both were silent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.cli.main import main
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop

MakeShop = Callable[..., Shop]


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the rows are the same."""
    return sqlite_service


def add(http: httpx.Client, name: str, url: str, **fields: Any) -> list[dict[str, Any]]:
    """Register a store; what it was warned of."""
    answer = http.post("/v1/stores", json={"id": name, "kind": "SYMMETRICDS", "url": url} | fields)
    assert answer.status_code == 201, answer.text
    assert answer.headers["etag"]
    return list(answer.json()["warnings"])


def found(http: httpx.Client, store: str) -> list[str]:
    """What a check says of the same target."""
    answer = http.post(f"/v1/stores/{store}:check")
    assert answer.status_code == 200, answer.text
    return [each["detail"] for each in answer.json()["findings"] if each["code"] == "SAME_TARGET"]


def test_a_second_store_on_a_database_is_said(http: httpx.Client, shop: Shop, roots: Path) -> None:
    link = roots / f"{shop.id}-link.sqlite"
    link.symlink_to(shop.path)
    [warning] = add(http, f"{shop.id}-b", f"sqlite:///{link}")
    assert (warning["code"], warning["severity"]) == ("SAME_TARGET", "WARNING")
    assert warning["detail"].startswith(f"store {shop.id}: the same kind")
    for one, other in ((shop.id, f"{shop.id}-b"), (f"{shop.id}-b", shop.id)):
        [detail] = found(http, one)
        assert f"store {other}:" in detail
        assert "CONFLICTING_JOB" in detail
    assert http.get(f"/v1/stores/{shop.id}").json().keys().isdisjoint({"warnings"})


def test_other_kinds_and_other_tables_of_a_database_are_usual(http: httpx.Client, shop: Shop) -> None:
    url = f"sqlite:///{shop.path}"
    assert add(http, f"{shop.id}-sql", url, kind="SQL") == []
    assert add(http, f"{shop.id}-other", url, table_prefix="other_") == []
    assert found(http, shop.id) == []
    [warning] = add(http, f"{shop.id}-sql2", url, kind="SQL")
    assert f"store {shop.id}-sql:" in warning["detail"]


def test_a_target_that_is_away_is_known_by_its_address(http: httpx.Client) -> None:
    def url(host: str, name: str = "away", user: str = "lethe") -> str:
        return f"postgresql+psycopg://{user}@{host}/{name}"

    assert add(http, "away-a", url("127.0.0.1:9")) == []
    assert len(add(http, "away-b", url("127.0.0.1:9", user="other"))) == 1
    assert add(http, "away-c", url("127.0.0.1:9"), schema="other") == []
    assert add(http, "away-d", url("127.0.0.1:9", "gone")) == []
    assert add(http, "away-e", url("127.0.0.1:10")) == []


def test_a_store_that_is_moved_to_anothers_target_is_warned_of(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    one, two = make_shop(), make_shop()

    def patch(body: dict[str, Any]) -> list[dict[str, Any]]:
        answer = http.patch(f"/v1/stores/{two.id}", json=body, headers={"If-Match": two.etag()})
        assert answer.status_code == 200, answer.text
        return list(answer.json()["warnings"])

    [warning] = patch({"url": f"sqlite:///{one.path}"})
    assert f"store {one.id}:" in warning["detail"]
    assert patch({"labels": {"a": "b"}}) == []


def test_a_limited_token_learns_no_name(
    http: httpx.Client, service: ServiceProcess, shop: Shop, make_token: Callable[..., str]
) -> None:
    second = f"{shop.id}-2"
    add(http, second, f"sqlite:///{shop.path}")
    found(http, second)
    with service.http(make_token("stores:read", "jobs:read", stores=[second])) as limited:
        [detail] = found(limited, second)
        overview = limited.get("/v1/overview", params={"store": second}).text
    assert detail.startswith("1 store(s) that this token may not see: the same kind")
    # Kept for all readers: one who may see all stores reads of no token that may not.
    assert "1 other store(s), which `:check` names" in overview
    assert "this token may not see" not in overview
    for text in (detail, overview):
        assert f"{shop.id}:" not in text
    assert f"store {shop.id}:" in found(http, second)[0]


def test_the_command_warns_and_goes_on(
    service: ServiceProcess,
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)
    assert main(["store", "add", f"{shop.id}-again", f"sqlite:///{shop.path}"]) == 0
    err = capsys.readouterr().err
    assert f"warning: SAME_TARGET: store {shop.id}:" in err
    assert "lethe explain SAME_TARGET" in err


def test_a_sentence_of_a_check_is_printed_once(
    service: ServiceProcess,
    shop: Shop,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It stood among the conflicts and again among the findings (OWN_PURGE)."""
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)
    main(["store", "check", shop.id])
    assert capsys.readouterr().out.count("not set in sym_parameter") == 1


def test_two_copies_are_two_targets(http: httpx.Client, shop: Shop, roots: Path) -> None:
    copy = roots / f"{shop.id}-copy.sqlite"
    shutil.copyfile(shop.path, copy)
    assert add(http, f"{shop.id}-copy", f"sqlite:///{copy}") == []
