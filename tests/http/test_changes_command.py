"""`lethe changes` and `lethe entries`, and the library below them, on the real service."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lethe_client import Change, Conflict, Lethe, NotFound, RequestInvalid

from app.cli.shell.exits import ExitCode
from tests.http.commands import Command
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, make_written, text64


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    return sqlite_service


@pytest.fixture
def store(http: httpx.Client, roots: Path) -> WrittenStore:
    return make_written(http, folder=roots)


@pytest.fixture
def library(service: ServiceProcess) -> Iterator[Lethe]:
    with service.library() as client:
        yield client


def test_text_is_put_shown_and_deleted(command: Command, store: WrittenStore) -> None:
    assert command("changes", "put", store.id, "orders", "schlüssel", "wert")[0] == 0
    code, out, _ = command("entries", "get", store.id, "orders", "schlüssel")
    assert code == 0
    assert "wert" in out
    assert command("entries", "get", store.id, "orders", "schlüssel", "--raw")[1] == "wert"
    assert command("changes", "put", store.id, "orders", "schlüssel", "--delete")[0] == 0
    code, _, err = command("entries", "get", store.id, "orders", "schlüssel")
    assert (code, "ENTRY_NOT_FOUND" in err) == (ExitCode.FAILED, True)
    assert "(deleted)" in command("entries", "get", store.id, "orders", "schlüssel", "--tombstones")[1]
    code, out, _ = command("changes", "list", store.id, "--json")
    assert [item["payload"] for item in json.loads(out)] == [text64(b"wert"), None]


def test_bytes_that_are_no_text_go_as_base64(command: Command, store: WrittenStore) -> None:
    key = text64(b"\x00\xff")
    assert command("changes", "put", store.id, "ZA==", key, "/w==", "--base64")[0] == 0
    assert command("entries", "get", store.id, "ZA==", key, "--base64")[1].split()[1] == "/w=="
    assert f"base64:{key}" in command("entries", "list", store.id)[1]
    code, _, err = command("changes", "put", store.id, "ZA==", "!", "/w==", "--base64")
    assert (code, "no base64" in err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("more", [(), ("value", "--delete")])
def test_put_wants_a_value_or_delete(command: Command, store: WrittenStore, more: tuple[str, ...]) -> None:
    assert command("changes", "put", store.id, "d", "k", *more)[0] == ExitCode.USAGE
    assert store.records() == []


def ndjson(count: int, **fields: Any) -> str:
    rows = ({"database": "d", "key": f"k{number:05}", "value": "v"} | fields for number in range(count))
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_an_import_writes_in_blocks_and_goes_on_where_it_was(
    command: Command, store: WrittenStore, tmp_path: Path
) -> None:
    file = tmp_path / "changes.ndjson"
    file.write_text(ndjson(2_500) + "no change\n")
    arguments = ("changes", "import", store.id, str(file), "--block", "1000", "--label", "first")
    code, _, err = command(*arguments)
    assert code == ExitCode.USAGE
    assert "line 2501" in err
    assert "--label first" in err
    assert len(store.records(page_size=500)) == 2_000  # the block of the bad line is not written
    file.write_text(ndjson(2_500))
    code, out, _ = command(*arguments, "--json")
    found = json.loads(out)
    assert (code, found["changes"], found["blocks"], found["written before"]) == (0, 2_500, 3, 2_000)
    assert len(store.records(page_size=500)) == 2_500
    assert json.loads(command(*arguments, "--json")[1])["written before"] == 2_500
    file.write_text(ndjson(2_500, value="other"))
    code, _, err = command(*arguments)
    assert (code, "IDEMPOTENCY_KEY_REUSED" in err) == (ExitCode.USAGE, True)
    assert len(store.records(page_size=500)) == 2_500


def test_an_import_reads_standard_input(
    command: Command, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b'{"key": "a", "value": "1"}\n\n{"key": "b", "value": null, "database": "other"}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert command("changes", "import", store.id, "-", "--database", "orders")[0] == 0
    assert [(item["database"], item["key"]) for item in store.records()] == [
        (text64(b"orders"), text64(b"a")),
        (text64(b"other"), text64(b"b")),
    ]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"key": "a", "value": "1"}', "database"),
        ('{"database": "d", "key": "a"}', "value"),
        ('{"database": "d", "key": 7, "value": null}', "key"),
        ('{"database": "d", "key": "a", "value": null, "csn": "x"}', "not an object"),
        ("[]", "not an object"),
        ('{"database": "d", "key": "a", "value": "\\ud800"}', "line 1"),
    ],
)
def test_a_line_that_is_no_change_is_named(
    command: Command, store: WrittenStore, tmp_path: Path, line: str, fault: str
) -> None:
    file = tmp_path / "bad.ndjson"
    file.write_text(line)
    code, _, err = command("changes", "import", store.id, str(file))
    assert code == ExitCode.USAGE
    assert "line 1" in err
    assert fault in err
    assert store.records() == []


def test_a_store_is_added_with_its_rid(command: Command, roots: Path) -> None:
    url = f"sqlite:///{roots / 'by-command.db'}"
    code, out, _ = command("store", "add", "by-command", url, "--kind", "REPLICA", "--rid", "9", "--json")
    assert (code, json.loads(out)["rid"]) == (0, 9)
    assert command("changes", "put", "by-command", "d", "k", "v")[0] == 0


def test_the_library_writes_lists_and_names_its_errors(library: Lethe, store: WrittenStore) -> None:
    written = library.changes.put(store.id, b"d", b"k", b"\x00", idempotency_key="one")
    again = library.changes.put(store.id, b"d", b"k", b"\x00", idempotency_key="one")
    assert (written.replayed, again.replayed) == (False, True)
    assert again.first_csn == written.first_csn
    many = library.changes.write(store.id, [Change(b"d", b"a", b"1"), Change(b"d", b"k", None)])
    assert (many.changes, many.rid) == (2, 1)
    records = list(library.changes.list(store.id, after=written.last_csn))
    assert [(record.key, record.payload) for record in records] == [(b"a", b"1"), (b"k", None)]
    assert library.entries.get(store.id, b"d", b"a").value == b"1"
    assert [entry.key for entry in library.entries.list(store.id, database=b"d", tombstones=True)] == [
        b"a",
        b"k",
    ]
    with pytest.raises(NotFound, match="no such entry"):
        library.entries.get(store.id, b"d", b"k")
    with pytest.raises(RequestInvalid):
        library.changes.put(store.id, b"", b"k", b"v")
    with pytest.raises(Conflict):
        library.changes.put(_other_kind(library, store), b"d", b"k", b"v")


def _other_kind(library: Lethe, store: WrittenStore) -> str:
    name = f"{store.id}-sym"
    library.stores.create(name, f"sqlite:///{store.path}.sym")
    return name


def test_blocks_are_bounded_and_an_import_of_nothing_writes_nothing(
    library: Lethe, store: WrittenStore
) -> None:
    changes = [Change(b"d", b"k%d" % number, b"v" * 1000) for number in range(25)]
    blocks = list(library.changes.import_blocks(store.id, changes, block_changes=10))
    assert [(block.number, block.written.changes) for block in blocks] == [(1, 10), (2, 10), (3, 5)]
    assert list(library.changes.import_blocks(store.id, [])) == []
    assert len(store.entries()) == 25
