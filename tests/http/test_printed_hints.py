"""Each command that a command prints for people to run next is run here, as it was printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import httpx
import pytest
from lethe_client.jobs import Jobs

from app.cli.main import main
from spark.targets.connection import Target, connect
from tests.http.changelogs import MakeChangelog, changelog_maker, old
from tests.http.environments import make_environment_store
from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop
from tests.http.slony_nodes import recorded_nodes
from tests.http.supplying import GENERATION, entries, registered, token_file, write
from tests.http.test_rows_purges import fill
from tests.http.writers import make_written
from tests.je_data import unpack
from tests.receivers import receiving
from tests.spark.events.catalogs import Catalogs
from tests.style.source_files import source_files
from tests.style.test_examples import understood
from tests.style.test_plain_words import messages

HINT: Final = re.compile(r": (lethe [a-z].*)$", re.MULTILINE)
Hinted = Callable[..., list[str]]
BODY: Final = '{"kind": "OUTGOING"}'


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the command sees the API alone."""
    return sqlite_service


@pytest.fixture
def hinted(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Hinted:
    """Run a command line that ends as expected; the commands that it printed."""
    monkeypatch.setenv("LETHE_URL", service.url)
    monkeypatch.setenv("LETHE_TOKEN", service.token)

    def run(*arguments: str, ends: int = 0) -> list[str]:
        code = main(arguments)
        found = capsys.readouterr()
        assert code == ends, found.err
        lines = HINT.findall(found.err + found.out)
        hints = [hint for line in lines for hint in line.split(", or: ") if "lethe explain" not in hint]
        for hint in hints:
            understood(shlex.split(hint)[1:])
        return hints

    return run


def follow(hinted: Hinted, *arguments: str) -> list[str]:
    """Run a command and then the one command that it printed."""
    [hint] = hinted(*arguments)
    return hinted(*shlex.split(hint)[1:])


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--retention-minutes 7200",
        "--retention-minutes 1 --force",
        "--cutoff 2026-01-01T00:00:00Z",
        "--stranded skip",
        "--stranded mark",
        "--strict",
        "--max-rows-in-tx 50",
        "--kind incoming --retention-minutes 60",
        "--kind data_gap",
        "--reason 'quarterly; asked for by the shop'",
    ],
)
def test_a_planned_purge_is_run_by_what_the_plan_prints(hinted: Hinted, shop: Shop, options: str) -> None:
    """After --retention-minutes and --stranded skip it was PLAN_DIFFERS."""
    follow(hinted, "purge", "plan", shop.id, *shlex.split(options))


def test_a_planned_trimming_is_run(http: httpx.Client, roots: Path, hinted: Hinted) -> None:
    """After --kind changelog it was STORE_KIND_WRONG."""

    class Request:
        param = "sqlite"

    make: MakeChangelog = changelog_maker(Request(), http, roots)  # type: ignore[arg-type]
    replica = make()
    replica.log(old(2, 6))
    options = ("--kind", "changelog", "--retention-minutes", "60", "--max-entries", "3")
    follow(hinted, "purge", "plan", replica.id, *options)


@pytest.mark.parametrize("options", ["", "--archive --max-rows-in-tx 20", "--where \"status = 'done'\""])
def test_planned_rows_are_removed(http: httpx.Client, roots: Path, hinted: Hinted, options: str) -> None:
    path = roots / f"hinted-{abs(hash(options))}.db"
    path.touch()
    connection = connect(Target(f"sqlite:///{path}", table_prefix=""), application_name="hints")
    fill(connection)
    connection.close()
    store = path.stem
    hinted("store", "add", store, f"sqlite:///{path}", "--kind", "SQL")
    age = ("--table", "ticket", "--time-column", "closed at", "--older-than", "P90D", "--child", "note")
    follow(hinted, "purge", "rows", store, *age, *shlex.split(options), "--plan")


@pytest.mark.parametrize(
    "options",
    ["--min-file-age PT0S --duration PT0S", "--min-file-age PT0S --duration PT0S --kind DELETED_DATABASES"],
)
def test_a_planned_cycle_is_begun_and_watched(
    http: httpx.Client, roots: Path, tmp_path: Path, hinted: Hinted, options: str
) -> None:
    store = make_environment_store(http, roots, unpack("closed", tmp_path / "closed"))
    [next_one] = hinted("store", "check", store.id)
    assert next_one.startswith(f"lethe erasure plan {store.id} ")
    [watch] = follow(hinted, "erasure", "plan", store.id, *shlex.split(options))
    hinted(*shlex.split(watch)[1:])
    file = tmp_path / "certificate.json"
    [verify] = hinted("certificate", "get", store.id, "-o", str(file))
    hinted(*shlex.split(verify)[1:])


def test_a_planned_extinction_is_run(http: httpx.Client, roots: Path, hinted: Hinted) -> None:
    store = make_written(http, folder=roots)
    assert store.put_bulk({b"a 1": b"one", b"a 2": b"two", b"b1": b"three"}).status_code == 200
    named = ("--database", "orders", "--start-key", "a", "--end-key", "b", "--label", "what is old")
    follow(hinted, "extinction", "discard", store.id, *named, "--confirm-keys-never-reused", "--plan")
    assert store.entries() == {b"b1": b"three"}


@pytest.mark.parametrize("options", ["", "--rule MANUAL", "--via builtin", "--archive"])
def test_a_planned_cleanup_is_run(
    http: httpx.Client, catalogs: Catalogs, hinted: Hinted, options: str
) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    named = ("--confirmed-before", "2026-11-20T08:10:00Z", "--log-switch", "none")
    follow(hinted, "slony", "cleanup", node.id, *named, *shlex.split(options), "--plan")


def test_what_a_new_store_a_job_and_the_keys_print_is_run(shop: Shop, hinted: Hinted, roots: Path) -> None:
    [check] = hinted("store", "add", f"{shop.id}-again", f"sqlite:///{shop.path}")
    hinted(*shlex.split(check)[1:])
    hinted("store", "remove", f"{shop.id}-again")
    [watch] = hinted("purge", "run", shop.id, "--no-wait")
    hinted(*shlex.split(watch)[1:])
    [keys] = hinted("signing-key", "rotate")
    hinted(*shlex.split(keys)[1:])
    [check] = hinted("audit", "export", str(roots / f"{shop.id}-audit.jsonl"))
    hinted(*shlex.split(check)[1:])


def test_a_store_is_changed_and_what_was_not_named_stays(shop: Shop, hinted: Hinted) -> None:
    hinted("store", "update", shop.id, "--max-rows", "1000", "--label", "region=eu")
    hinted("store", "update", shop.id, "--max-fraction", "0.5")
    found = shop.http.get(f"/v1/stores/{shop.id}").json()
    assert found["labels"] == {"region": "eu"}
    assert (found["limits"]["max_rows"], found["limits"]["max_fraction"]) == (1000, 0.5)


def test_an_instance_is_listed(hinted: Hinted, capsys: pytest.CaptureFixture[str]) -> None:
    hinted("instance", "list")
    assert main(["instance", "list", "--json"]) == 0
    assert [each["alive"] for each in json.loads(capsys.readouterr().out)["items"]].count(True) >= 1


def test_what_a_failed_job_prints_is_run(shop: Shop, hinted: Hinted) -> None:
    hinted("store", "update", shop.id, "--max-rows", "1")
    [retry] = hinted("purge", "run", shop.id, "--retention-minutes", "1", "--force", ends=1)
    assert retry.startswith("lethe job retry job_")
    hinted("store", "update", shop.id, "--clear", "max-rows")
    [watch] = hinted(*shlex.split(retry)[1:])
    hinted(*shlex.split(watch)[1:], ends=1)  # limits are those of the submission


def test_what_is_printed_after_an_interruption_is_run(
    shop: Shop, hinted: Hinted, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = shop.slow_purge()

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Jobs, "follow", interrupted)
        watch, pause, abort = hinted("job", "watch", job_id, ends=130)
    hinted(*shlex.split(pause)[1:], "--wait")
    hinted(*shlex.split(abort)[1:], "--wait")
    hinted(*shlex.split(watch)[1:], ends=1)


def test_what_a_webhook_and_a_schedule_print_is_run(shop: Shop, hinted: Hinted) -> None:
    with receiving() as receiver:
        [test] = hinted("webhook", "add", receiver.url, "--clear-text-on-loopback", "--store", shop.id)
        hinted(*shlex.split(test)[1:])
        hinted("webhook", "remove", shlex.split(test)[-1])
    hinted("schedule", "add", "PURGE", "--store", shop.id, "--cron", "0 3 1 1 *", "--body", BODY)
    [schedule] = shop.http.get("/v1/schedules", params={"store": shop.id}).json()["items"]
    [resume] = hinted("schedule", "pause", schedule["id"])
    hinted(*shlex.split(resume)[1:])
    hinted("schedule", "remove", schedule["id"])


def test_what_an_agreement_prints_is_run(
    http: httpx.Client, service: ServiceProcess, roots: Path, hinted: Hinted
) -> None:
    supplier, consumer = (make_replica(http, rid=rid, folder=roots, generation=GENERATION) for rid in (1, 2))
    token = registered(http, f"file:{token_file(service, roots)}", store=supplier.id)
    named = (supplier.id, service.url, consumer.id, "--token", token)
    [bring] = hinted("replication", "agreement", "create", *named)
    write(supplier, 3)
    hinted(*shlex.split(bring)[1:])
    assert len(entries(consumer)) == 3


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["token", "create", "lost", "--role", "viewer"], "lethe token revoke tok_"),
        (["webhook", "add", "http://127.0.0.1:9/", "--clear-text-on-loopback"], "lethe webhook rotate whk_"),
    ],
)
def test_what_a_lost_secret_prints_is_run(service: ServiceProcess, words: list[str], printed: str) -> None:
    environment = os.environ | {"LETHE_URL": service.url, "LETHE_TOKEN": service.token}
    command = [sys.executable, "-m", "app.cli.main"]
    with open("/dev/full", "wb") as full:
        lost = subprocess.run(
            [*command, *words], env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    [hint] = [each for each in HINT.findall(lost.stderr) if each.startswith(printed)]
    again = [*command, *shlex.split(hint)[1:]]
    assert (lost.returncode, subprocess.run(again, env=environment, check=False).returncode) == (1, 0)


PRINTED: Final = re.compile(r"[:.;] (lethe [a-z][a-z-]*(?: [a-z][a-z-]*)*)")
RUN_HERE: Final = {
    "lethe certificate verify",
    "lethe erasure plan",
    "lethe job abort",
    "lethe job pause",
    "lethe job retry",
    "lethe job watch",
    "lethe replication session start",
    "lethe schedule resume",
    "lethe signing-key list",
    "lethe audit verify",
    "lethe store check",
    "lethe token revoke",
    "lethe webhook rotate",
    "lethe webhook test",
}
"""Commands that a test of this file runs as they were printed; plans print theirs by `of_plan`."""
ELSEWHERE: Final = {
    "lethe explain": "tests/app/cli/test_codes_on_the_screen.py",
    "lethe job show": "a look, after a refusal",
    "lethe login": "tests/app/cli/test_profiles.py",
    "lethe profile list": "tests/app/cli/test_profiles.py",
    "lethe token list": "a look, after a refusal",
}


def test_every_command_that_the_code_prints_is_run_by_a_test() -> None:
    printed = {
        match
        for file in source_files("app/cli")
        for _, text in messages(file)
        if not file.name.startswith("app/cli/demo")
        for match in PRINTED.findall(text)
    }
    assert printed == RUN_HERE | set(ELSEWHERE)
