"""`lethe extinction`, and the library below it, on the real service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from lethe_client import Conflict, ExtinctionBundle, ExtinctionRequest, Lethe, NotFound, RequestInvalid

from app.cli.shell.exits import ExitCode
from spark.formats.csn import Csn
from tests.http.commands import Command
from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.supplying import GENERATION
from tests.http.writers import WrittenStore, make_written, text64

RANGE = ("--database", "orders", "--start-key", "a", "--end-key", "b", "--label", "old")
CONFIRMED = "--confirm-keys-never-reused"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    return sqlite_service


@pytest.fixture
def store(http: httpx.Client, roots: Path) -> WrittenStore:
    made = make_written(http, folder=roots)
    assert made.put_bulk({b"a1": b"one", b"a2": b"two", b"b1": b"three"}).status_code == 200
    return made


@pytest.fixture
def library(service: ServiceProcess) -> Iterator[Lethe]:
    with service.library() as client:
        yield client


def test_range_is_planned_discarded_and_told(command: Command, store: WrittenStore, tmp_path: Path) -> None:
    code, out, err = command("extinction", "discard", store.id, *RANGE, "--plan", CONFIRMED, "--json")
    assert (code, json.loads(out)["records"]) == (ExitCode.OK, 2), err
    code, _, err = command("extinction", "discard", store.id, *RANGE)
    assert (code, "CONFIRMATION_MISSING" in err) == (ExitCode.USAGE, True)
    code, _, err = command("extinction", "discard", store.id, *RANGE, CONFIRMED)
    assert code == ExitCode.OK, err
    code, out, _ = command("extinction", "status", store.id, "orders", "a1", "b1", "--json")
    assert json.loads(out)["statuses"] == ["EXTINCT", "NOT_EXTINCT"]
    [listed] = json.loads(command("extinction", "list", store.id, "--json")[1])
    assert (listed["state"], listed["records"], listed["label"]) == ("DONE", 2, "old")
    assert "DONE" in command("extinction", "show", store.id, listed["id"])[1]
    assert command("extinction", "availability", store.id)[0] == ExitCode.OK
    kept = tmp_path / "filter.json"
    assert command("extinction", "filter", store.id, "--into", str(kept))[0] == ExitCode.OK
    bundle = ExtinctionBundle.parse(kept.read_bytes())
    assert bundle.status_many("orders", [b"a1", b"b1"]) == ["EXTINCT", "NOT_EXTINCT"]
    assert store.entries() == {b"b1": b"three"}


def test_filter_is_read_from_the_line_or_a_file(
    command: Command, store: WrittenStore, tmp_path: Path
) -> None:
    line = ("extinction", "discard", store.id, *RANGE, CONFIRMED, "--plan", "--json", "--filter")
    prefix = json.dumps({"prefix": text64(b"a2")})
    file = tmp_path / "filter"
    file.write_text(prefix)
    for given in (prefix, f"@{file}"):
        code, out, err = command(*line, given)
        assert (code, json.loads(out)["records"]) == (ExitCode.OK, 1), err
    for wrong in ("{", "[]", f"@{tmp_path / 'none'}"):
        assert command(*line, wrong)[0] == ExitCode.USAGE


def test_library_raises_what_the_service_refuses(library: Lethe, store: WrittenStore, shop: Shop) -> None:
    request = ExtinctionRequest(databases=[text64(b"nowhere")], label="l", confirm_keys_never_reused=True)
    with pytest.raises(RequestInvalid) as refused:
        library.extinctions.discard(store.id, request)
    assert refused.value.code == "UNKNOWN_DATABASE"
    with pytest.raises(Conflict):
        library.extinctions.availability(shop.id)
    with pytest.raises(NotFound):
        library.extinctions.get(store.id, f"ext_{'0' * 26}")
    assert library.extinctions.status(store.id, text64(b"orders"), [b"a1"]).statuses == ("NOT_EXTINCT",)
    assert library.extinctions.filter(store.id).status(b"orders", b"a1") == "NOT_EXTINCT"


def test_supplier_that_is_gone_is_forgotten_by_its_name(
    command: Command, http: httpx.Client, roots: Path
) -> None:
    store = make_replica(http, rid=1, folder=roots, generation=GENERATION)
    told = store.acquire(
        session_id="rps_old", generation=GENERATION, csn_now=Csn.of(int(time.time()), 0, 7), rid=7
    )
    assert store.release("rps_old", epoch=told.json()["epoch"]).status_code == 200
    code, out, _ = command("extinction", "availability", store.id)
    assert (code, "supplier-7/7" in out) == (ExitCode.FAILED, True)
    line = ("extinction", "forget-supplier", store.id)
    assert command(*line, "supplier-7/7")[0] == ExitCode.USAGE
    code, _, err = command(*line, "supplier-8/8", "--reason", "sold")
    assert (code, "SUPPLIER_NOT_FOUND" in err) == (ExitCode.FAILED, True)
    code, out, err = command(*line, "supplier-7/7", "--reason", "sold", "--json")
    assert (code, json.loads(out)) == (ExitCode.OK, {"available": True, "lacking": []}), err
    assert command("extinction", "availability", store.id)[0] == ExitCode.OK
