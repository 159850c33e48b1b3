"""The `lethe` command against a running service: every noun, exit codes, and --json as a program reads it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forge import run_lethe
from tests.journeys.crashes import build_large
from tests.journeys.ground import (
    Expected,
    add_store,
    assert_exact,
    assert_restored,
    connection_to,
    expect,
    instant,
)
from tests.journeys.service import LETHE, Service, environment
from tests.oracles.symmetricds import Place, snapshot
from tests.ports import free_port
from tests.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.journey

OK, FAILED, USAGE, TRY_AGAIN, NOT_ALLOWED, CONFIGURATION = 0, 1, 64, 75, 77, 78


@dataclass
class CommandLine:
    """The command as an operator on the service's machine calls it."""

    service: Service
    token: str | None = None

    def __call__(
        self, *words: str, code: int = OK, url: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it and hold its exit code against the expected one."""
        access = ["--url", url or self.service.url]
        settings = {"LETHE_TOKEN": self.token} if self.token else {}
        if self.token is None:
            access += ["--data-dir", str(self.service.data_dir)]
        done = run_lethe([LETHE, *words, *access], env=environment(settings))
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr + done.stdout
        return done

    def json(self, *words: str, code: int = OK) -> Any:
        """Run it with --json: standard output is one document and nothing else."""
        return json.loads(self(*words, "--json", code=code).stdout)


@pytest.fixture
def place(standing_postgresql: PostgresqlServer) -> Place:
    """A database of some hundred rows."""
    made = Place(standing_postgresql.create_database("command_line"))
    build_large(made, 20, rows=800)
    return made


def test_operator_goes_from_store_to_restored_archive_by_commands_alone(
    standing_service: Service, place: Place, tmp_path: Path
) -> None:
    """store add, check; purge plan, run; job watch, pause, resume, throttle; archive verify, restore."""
    lethe = CommandLine(standing_service)
    store = "by-hand"
    assert lethe.json("store", "add", store, place.url, "--label", "tier=gold")["id"] == store
    assert store in {each["id"] for each in lethe.json("store", "list")["items"]}
    can = lethe.json("store", "check", store)["can"]
    kinds = ("OUTGOING", "INCOMING", "DATA_GAP")
    assert can == [f"{verb}_{kind}" for kind in kinds for verb in ("PLAN", "PURGE")]
    expected, cutoff = expect(place, snapshot(place)), instant(place).isoformat()
    plan = lethe.json("purge", "plan", store, "--cutoff", cutoff, "--stranded", "mark")
    planned = {table["table"].removeprefix("sym_"): table["rows_to_remove"] for table in plan["tables"]}
    assert planned == expected.counts
    size = ("--max-rows-in-tx", "50", "--throttle", "80", "--archive")
    job = lethe.json("purge", "run", store, "--plan-id", plan["plan_id"], *size, "--no-wait")
    conflict = lethe.json("purge", "run", store, "--cutoff", cutoff, "--no-wait", code=FAILED)
    assert (conflict["code"], conflict["job_id"]) == ("CONFLICTING_JOB", job["id"])
    assert lethe.json("job", "pause", job["id"], "--wait")["state"] == "PAUSED"
    late = lethe.json("job", "watch", job["id"], "--timeout", "0.5", code=USAGE)
    assert late["code"] == "USAGE"
    assert "WAIT_TIMED_OUT" in lethe("job", "watch", job["id"], "--timeout", "0.5", code=TRY_AGAIN).stderr
    assert lethe.json("job", "resume", job["id"])["state"] in ("QUEUED", "RUNNING")
    lethe.json("job", "throttle", job["id"], "--off")
    _watch_to_the_end(lethe, job["id"])
    result = lethe.json("job", "show", job["id"])["result"]
    assert_exact(place, expected, result)
    _verify_and_restore(lethe, place, expected, job["id"], tmp_path)


def _watch_to_the_end(lethe: CommandLine, job_id: str) -> None:
    lines = [json.loads(line) for line in lethe("job", "watch", job_id, "--json").stdout.splitlines()]
    *events, last = lines
    assert last["type"] == "job"
    assert last["job"]["state"] == "SUCCEEDED"
    sequences = [event["seq"] for event in events]
    assert sequences == list(range(1, len(sequences) + 1))
    states = [event["data"]["state"] for event in events if event["type"] == "state"]
    assert states[0] == "QUEUED"
    assert {"PAUSING", "PAUSED", "RUNNING"} <= set(states) or {"PAUSED", "RUNNING"} <= set(states)
    assert states[-1] == "SUCCEEDED"


def _verify_and_restore(
    lethe: CommandLine, place: Place, expected: Expected, job_id: str, directory: Path
) -> None:
    total = sum(expected.counts.values())
    assert job_id in {each["job_id"] for each in lethe.json("archive", "list")["items"]}
    assert lethe.json("archive", "verify", job_id)["result"]["rows"] == total
    file = directory / "restored.sqlite"
    assert lethe.json("archive", "restore", job_id, "--into", str(file))["result"]["rows"] == total
    assert_restored(file, place, expected)
    again = lethe.json("archive", "restore", job_id, "--into", str(file), code=FAILED)
    assert again["error"]["code"] == "RESTORE_CONFLICT"
    assert lethe.json("archive", "restore", job_id, "--into", "beside")["result"]["rows"] == total
    with connection_to(place.url) as connection:
        rows = connection.execute("select count(*) from beside.sym_data").fetchone()
    assert rows == (expected.counts["data"],)
    assert lethe.json("archive", "restore", job_id, "--live")["result"]["rows"] == total
    restored = snapshot(place)
    for table, removed in expected.removed.items():
        assert len(restored[table]) == len(expected.after[table]) + len(removed)


def test_aborted_purge_ends_the_command_with_one(standing_service: Service, tmp_path: Path) -> None:
    """job abort --wait; the watch of an aborted job says so."""
    lethe = CommandLine(standing_service)
    place = Place(f"sqlite:///{tmp_path}/aborted.db")
    build_large(place, 21, rows=800)
    add_store(standing_service.client, "to-abort", place)
    cutoff = instant(place).isoformat()
    job = lethe.json("purge", "run", "to-abort", "--cutoff", cutoff, "--throttle", "20", "--no-wait")
    aborted = lethe.json("job", "abort", job["id"], "--reason", "enough", "--wait")
    assert (aborted["state"], aborted["reason"]) == ("ABORTED", "enough")
    lethe("job", "watch", job["id"], code=FAILED)
    lethe.json("job", "resume", job["id"], code=FAILED)
    listed = lethe.json("job", "list", "--store", "to-abort", "--state", "aborted")["items"]
    assert [each["id"] for each in listed] == [job["id"]]


def test_tokens_and_parameters_are_set_by_commands(standing_service: Service, tmp_path: Path) -> None:
    """A token does what its scopes say until it is revoked; a parameter decides the retention of a plan."""
    lethe = CommandLine(standing_service)
    place = Place(f"sqlite:///{tmp_path}/parameters.db")
    build_large(place, 22, rows=50)
    add_store(standing_service.client, "tuned", place)
    made = lethe.json("token", "create", "reader", "--scope", "jobs:read", "--scope", "stores:read")
    reader = CommandLine(standing_service, token=made["token"])
    assert isinstance(reader.json("job", "list")["items"], list)
    assert reader.json("purge", "run", "tuned", code=NOT_ALLOWED)["code"] == "SCOPE_MISSING"
    assert made["id"] in {each["id"] for each in lethe.json("token", "list")["items"]}
    lethe.json("token", "revoke", made["id"])
    reader("job", "list", code=NOT_ALLOWED)
    name = "purge.retention.minutes"
    changed = lethe.json("parameter", "set", name, "99", "--store", "tuned")
    assert (changed["value"], changed["source"]) == (99, "STORE")
    plan = lethe.json("purge", "plan", "tuned")
    assert (plan["retention_minutes"], plan["retention_source"]) == (99, "STORE")
    refused = lethe.json("parameter", "set", name, "often", "--store", "tuned", code=USAGE)
    assert refused["code"] == "PARAMETER_INVALID"
    assert lethe.json("parameter", "unset", name, "--store", "tuned")["source"] == "DEFAULT"


def test_exit_codes_tell_what_to_do_next(standing_service: Service) -> None:
    """64 usage, 75 try again, 77 not allowed, 78 configuration, 1 refused; each with one problem document."""
    lethe = CommandLine(standing_service)
    assert lethe.json("purge", "run", "nobody", code=FAILED)["code"] == "STORE_NOT_FOUND"
    assert lethe.json("purge", "run", code=USAGE)["code"] == "USAGE"
    assert lethe.json("store", "add", "UPPER", "sqlite:////tmp/x.db", code=USAGE)["code"] == "INVALID_REQUEST"
    nobody = CommandLine(standing_service, token="let_nobody")
    nobody("job", "list", code=NOT_ALLOWED)
    lethe("job", "list", "--token-file", "/nowhere/token", code=CONFIGURATION)
    lethe("job", "list", url=f"http://127.0.0.1:{free_port()}", code=TRY_AGAIN)
    serve = [LETHE, "serve", "--data-dir", standing_service.data_dir, "--port", str(free_port())]
    second = run_lethe(serve, env=environment({}))
    assert second.returncode == TRY_AGAIN, second.stderr
