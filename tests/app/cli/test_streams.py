"""Readers that go, disks that are full, streams that are closed: the exit code is that of the command.

Each command runs as a process of its own against a service that answers from a table.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.je_data import unpack

STORE = {"id": "shop", "kind": "SYMMETRICDS", "url": "sqlite:////srv/shöp.db", "labels": {}}
JOB = {"id": "job_1", "kind": "PURGE", "store": "shop"}
FAULT = {"code": "LIMIT_EXCEEDED", "title": "t", "detail": "396 rows would go", "retryable": False}
FAILED = JOB | {"state": "FAILED", "error": FAULT}
RUN = ["purge", "run", "shop", "--cutoff", "2026-11-01T03:00:00Z"]
OVERVIEW = {
    "at": "2026-11-20T11:30:00Z",
    "counters": {"stores": 0, "jobs": {}, "backups": 0, "ended_last_day": {}},
    "attention": [],
    "attention_total": 0,
    "stores": [],
    "batches": [],
    "next_page_token": "",
}


@pytest.fixture
def shop(service) -> Any:
    service.on("GET /v1/stores/shop", (200, STORE, {"ETag": '"7"'}))
    service.on("GET /v1/stores", (200, {"items": [STORE], "next_page_token": None}))
    service.on("POST /v1/stores/shop/purges", (202, JOB | {"state": "QUEUED"}))
    service.on("GET /v1/jobs/job_1", (200, FAILED))
    return service


def _run(shop: Any, *words: Any, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"LETHE_URL": shop.url, "LETHE_TOKEN": "t"} | streams.pop("more", {})
    command = [sys.executable, "-m", "app.cli.main", *words]
    return subprocess.run(command, env=environment, timeout=60, check=False, **streams)


def _without_a_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize(
    ("words", "code"), [(RUN, 1), (["store", "show", "shop"], 0), (["store", "list"], 0)]
)
def test_a_reader_of_results_that_has_gone_changes_no_exit_code(shop, words, code, as_json) -> None:
    """`lethe whoami | true` ended with 1, which means that the service has refused."""
    writer = _without_a_reader()
    run = _run(shop, *words, *as_json, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert run.returncode == code
    assert b"Traceback" not in run.stderr
    assert b"BUG" not in run.stderr


@pytest.mark.parametrize("stderr", ["full", "gone", "closed"])
def test_what_is_said_beside_a_result_may_be_lost(shop, stderr) -> None:
    given = {"full": lambda: os.open("/dev/full", os.O_WRONLY), "gone": _without_a_reader}
    shop.on("GET /v1/jobs/job_1", (200, JOB | {"state": "SUCCEEDED"}))
    if stderr == "closed":
        run = _run(shop, *RUN, "--json", stdout=subprocess.PIPE, preexec_fn=lambda: os.close(2))
    else:
        descriptor = given[stderr]()
        run = _run(shop, *RUN, "--json", stdout=subprocess.PIPE, stderr=descriptor)
        os.close(descriptor)
    assert (run.returncode, json.loads(run.stdout)["state"]) == (0, "SUCCEEDED")


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_result_that_a_full_disk_does_not_take_is_an_error_with_its_cause(shop, as_json) -> None:
    """It was called a bug; with --json there was a traceback besides."""
    with open("/dev/full", "wb") as full:
        run = _run(shop, "store", "show", "shop", *as_json, stdout=full, stderr=subprocess.PIPE)
    assert run.returncode == 1
    assert run.stderr.decode().splitlines() == [
        "lethe: FILE_UNWRITABLE: standard output: No space left on device",
        "  What it means: lethe explain FILE_UNWRITABLE",
    ]


NEW_TOKEN = {"id": "tok_1", "name": "x", "scopes": ["jobs:read"], "token": "lethe_S"}
NEW_HOOK = {"id": "whk_1", "url": "https://h.example/", "events": [], "signing_secret": "whsec_S"}


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("stdout", ["gone", "full"])
@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (
            ["token", "create", "x", "--role", "viewer"],
            "make another, and end this one: lethe token revoke tok_1",
        ),
        (["webhook", "add", "https://h.example/"], "for another: lethe webhook rotate whk_1"),
        (["webhook", "rotate", "whk_1"], "for another: lethe webhook rotate whk_1"),
    ],
)
def test_a_secret_that_nobody_got_is_an_error_and_says_how_to_have_another(
    shop, words, advice, stdout, as_json
) -> None:
    """`lethe token create x | true` ended with 0: a token that is in force, and whose secret nobody has."""
    shop.on("POST /v1/tokens", (201, NEW_TOKEN))
    shop.on("POST /v1/webhooks", (201, NEW_HOOK))
    shop.on("GET /v1/webhooks/whk_1", (200, NEW_HOOK, {"ETag": '"7"'}))
    shop.on("POST /v1/webhooks/whk_1:rotate", (200, NEW_HOOK))
    writer = _without_a_reader() if stdout == "gone" else os.open("/dev/full", os.O_WRONLY)
    run = _run(shop, *words, *as_json, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    said = run.stderr.decode()
    assert (run.returncode, "lethe: FILE_UNWRITABLE: standard output: " in said) == (1, True), said
    assert "  Nobody has the secret; " in said
    assert f"{advice}\n" in said


def test_a_stream_without_an_end_ends_when_its_reader_has_gone(shop, tmp_path) -> None:
    shop.on("GET /v1/overview", (200, OVERVIEW))
    environment = unpack("closed", tmp_path / "je")
    for words in (["status", "--watch", "--interval", "1"], ["je", "dump", str(environment)]):
        for as_json in ([], ["--json"]):
            writer = _without_a_reader()
            run = _run(shop, *words, *as_json, stdout=writer, stderr=subprocess.PIPE)
            os.close(writer)
            assert (run.returncode, run.stderr) == (0, b"")


def test_each_look_of_a_watch_is_in_a_pipe_at_once(shop) -> None:
    """Without a terminal nothing was shown before the end, and it has none."""
    shop.on("GET /v1/overview", (200, OVERVIEW))
    words = ["status", "--watch", "--interval", "1", "--url", shop.url]
    command = [sys.executable, "-m", "app.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        shown = [line for line, _ in zip(watch.stdout, range(8), strict=False) if "needs anybody" in line]
        watch.kill()
    assert len(shown) > 1


def test_a_closed_stdout_is_as_one_that_nobody_reads(shop) -> None:
    run = _run(shop, "store", "show", "shop", stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    assert (run.returncode, run.stderr) == (0, b"")


@pytest.mark.parametrize("words", [["changes", "import", "shop", "-"], ["replication", "decide", "-"]])
def test_a_closed_stdin_is_an_empty_one(shop, words) -> None:
    shop.on("POST /v1/stores/shop/changes", (200, {"rid": 1, "changes": 0}))
    run = _run(shop, *words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: os.close(0))
    assert run.returncode in (0, 64)
    assert b"BUG" not in run.stderr


def test_login_without_a_terminal_says_how_to_give_the_token(shop) -> None:
    """It ended with 130, as after Ctrl-C, and without a word."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    run = _run(shop, "login", shop.url, "--json", start_new_session=True, **streams)
    assert (run.returncode, json.loads(run.stdout)["code"]) == (78, "CONFIGURATION_INVALID")
    assert b"give --token-file FILE" in run.stderr
    assert b"Token:" not in run.stderr


def test_a_terminal_that_knows_no_unicode_gets_escapes_and_whole_json(shop) -> None:
    more = {"PYTHONIOENCODING": "ascii"}
    run = _run(shop, "store", "show", "shop", "--json", more=more, stdout=subprocess.PIPE)
    assert json.loads(run.stdout)["url"] == STORE["url"]
    run = _run(shop, "store", "show", "shop", more=more, stdout=subprocess.PIPE)
    assert (run.returncode, b"sh\\xf6p.db" in run.stdout) == (0, True)


@pytest.mark.parametrize("words", [["job", "abort", ""], ["store", "remove", ""], ["store", "show", b"\xff"]])
def test_an_argument_that_can_name_nothing_is_a_fault_of_usage(shop, words) -> None:
    """`lethe job abort "$JOB"` without a JOB was called a bug of ours."""
    run = _run(shop, *words, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (run.returncode, json.loads(run.stdout)["code"]) == (64, "USAGE")
    assert shop.asked == []


def test_words_of_a_command_that_is_run_may_be_empty(shop) -> None:
    run = _run(shop, "backup", "run", "--store", "shop", "--", "echo", "", stderr=subprocess.PIPE)
    assert b"NOT_SCRIPTED" in run.stderr
