"""Real backup tools around an environment that is being erased, and every way in which somebody dies."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from lethe_client import CycleRequest

from spark.targets.files import ofd_lock
from spark.targets.files.control_file import NAME, ControlFile
from tests.forge import run_lethe
from tests.journeys.service import LETHE, Service, await_job, environment, serving, until
from tests.journeys.standing_in import post, register, standing_in

ROUND_ROWS = 200
LEASE = "PT30S"
KILLS, KILLS_LONG = 1, 20
# Some longer than a client tries by itself.
AWAY_S = (0.5, 9.0)

pytestmark = pytest.mark.journey

COPYING = """
import hashlib, json, pathlib, subprocess, sys
listed, report, *command = sys.argv[1:]
paths = [pathlib.Path(line) for line in pathlib.Path(listed).read_text().splitlines()]
def digests():
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
before = digests()
with open(listed, "rb") as names:
    code = subprocess.run(command, stdin=names).returncode
after = digests()
pathlib.Path(report).write_text(json.dumps({"before": before, "after": after}))
sys.exit(code)
"""
"""What a backup tool reads, hashed by another program right before and right after it."""


@pytest.fixture(scope="module")
def service(standing_service: Service) -> Service:
    """The service that journeys share: nobody here kills it."""
    return standing_service


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that tests kill and start again."""
    directory = tmp_path_factory.mktemp("mortal")
    with serving(directory / "service", {"LETHE_SPARK__ENABLED": "false"}) as service:
        yield service


@pytest.fixture
def env(service: Service, tmp_path: Path) -> Path:
    """A fresh copy of an environment that JE wrote; its store bears the name of its directory."""
    return register(service, tmp_path)


def hooked(service: Service, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [LETHE, "backup", *map(str, words)]
    return run_lethe(command, env=command_environment(service, more), timeout=120)


def command_environment(service: Service, more: Mapping[str, str]) -> dict[str, str]:
    return environment({"LETHE_URL": service.url, "LETHE_TOKEN": service.token, **more})


def sessions_of(service: Service, env: Path) -> list[dict[str, Any]]:
    return [dict(each.raw) for each in service.client.backups.list(env.name)]


def peer(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed"
        if os.environ.get("LETHE_REQUIRE_PEERS") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def restore_restic(repository: Path, target: Path, keys: Mapping[str, str]) -> None:
    subprocess.run(
        ["restic", "-r", repository, "restore", "latest", "--target", target],
        env=environment(keys),
        check=True,
        capture_output=True,
    )


def restore_borg(repository: Path, target: Path, keys: Mapping[str, str]) -> None:
    target.mkdir()
    subprocess.run(
        ["borg", "extract", f"{repository}::one"],
        cwd=target,
        env=environment(keys),
        check=True,
        capture_output=True,
    )


TOOLS: dict[str, tuple[list[str], list[str], Callable[[Path, Path, Mapping[str, str]], None]]] = {
    "restic": (
        ["restic", "-r", "REPOSITORY", "init"],
        ["restic", "-r", "REPOSITORY", "backup", "--files-from-verbatim", "{files}"],
        restore_restic,
    ),
    "borg": (
        ["borg", "init", "--encryption=none", "REPOSITORY"],
        ["borg", "create", "--paths-from-stdin", "REPOSITORY::one"],
        restore_borg,
    ),
}


@pytest.mark.parametrize("tool", ["restic", pytest.param("borg", marks=pytest.mark.long)])
def test_tool_copies_what_was_promised_while_the_eraser_works(
    service: Service, env: Path, tmp_path: Path, tool: str
) -> None:
    peer(tool)
    init, copy, restore = TOOLS[tool]
    repository, report = tmp_path / "repository", tmp_path / "report.json"
    keys = {
        "RESTIC_PASSWORD": "x",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
        "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes",
    }
    named = [[word.replace("REPOSITORY", str(repository)) for word in words] for words in (init, copy)]
    subprocess.run(named[0], env=environment(keys), check=True, capture_output=True)
    untouched = {path.name: path.read_bytes() for path in env.glob("*.jdb")}
    with standing_in(env) as eraser:
        eraser.tell("LOOP", ROUND_ROWS)
        until(lambda: any(path.read_bytes() != untouched[path.name] for path in env.glob("*.jdb")))
        done = hooked(
            service,
            "run",
            "--store",
            env.name,
            "--json",
            "--",
            sys.executable,
            "-c",
            COPYING,
            "{files}",
            str(report),
            *named[1],
            **keys,
        )
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        time.sleep(0.1)
        rounds, refused = eraser.end_loop()
    assert (said["valid"], said["changed"]) == (True, [])
    assert rounds > 0
    assert refused > 0, "the eraser tried while the copy was made"
    found = json.loads(report.read_text())
    assert sorted(found["before"]) == sorted(untouched)
    assert found["before"] == found["after"]
    restore(repository, tmp_path / "restored", keys)
    restored = {path.name: path for path in (tmp_path / "restored").rglob("*.jdb")}
    digests = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in restored.items()}
    assert digests == found["before"]
    [session] = sessions_of(service, env)
    assert (session["state"], session["valid"], session["tool"]) == ("ENDED", True, Path(sys.executable).name)


def byte_is_held(env: Path, number: int) -> bool:
    fd = os.open(env / NAME, os.O_RDWR | os.O_CLOEXEC)
    try:
        return not ofd_lock.is_free(fd, number, exclusive=False)
    finally:
        os.close(fd)


def test_writer_frozen_in_its_round_makes_the_request_fail_and_nothing_is_promised(
    service: Service, env: Path
) -> None:
    with standing_in(env) as eraser:
        number = eraser.files[0]
        eraser.tell("FREEZE", number)
        assert eraser.read() == ["held"]
        until(lambda: byte_is_held(env, number))
        path = f"/v1/stores/{env.name}/backup-sessions"
        answer = post(service, path, {"erase_abort_timeout": "PT1S"})
        assert (answer.status_code, answer.json()["code"]) == (503, "ERASE_ABORT_TIMEOUT")
        with ControlFile.open(env, create=False) as control:
            assert control.read().ranges == ()
        [session] = sessions_of(service, env)
        assert (session["state"], session["valid"]) == ("FAILED", False)
        begun: list[httpx.Response] = []
        waiting = Thread(target=lambda: begun.append(post(service, path, {})))
        with ControlFile.open(env, create=False) as control:
            stop = control.stop_counter()
            waiting.start()
            until(lambda: control.stop_counter() != stop)
        before = {path.name: path.read_bytes() for path in env.glob("*.jdb")}
        os.kill(eraser.process.pid, signal.SIGCONT)
        code, _ = eraser.read()
        waiting.join(30)
    assert code == "STOPPED"
    assert (begun[0].status_code, begun[0].json()["erasure_aborted"]) == (201, True)
    changed = [name for name, data in before.items() if (env / name).read_bytes() != data]
    assert changed == [], "it woke, saw the stop, and wrote nothing"


def ask_until_it_waits(service: Service, path: str, body: Any, writer: ControlFile, key: str) -> Thread:
    """A request that waits for a round, in a thread; it will be cut off."""
    stop = writer.stop_counter()

    def ask() -> None:
        with pytest.raises(httpx.HTTPError):
            post(service, path, body, **{"Idempotency-Key": key})

    waiting = Thread(target=ask)
    waiting.start()
    until(lambda: writer.stop_counter() != stop)
    return waiting


def test_service_killed_between_protection_and_answer_gives_the_answer_to_the_same_key(
    mortal: Service, tmp_path: Path
) -> None:
    env = register(mortal, tmp_path)
    path, key = f"/v1/stores/{env.name}/backup-sessions", {"Idempotency-Key": "nightly-1"}
    with ControlFile.open(env, create=True) as writer:
        assert writer.try_lock_file(0, exclusive=True)
        waiting = ask_until_it_waits(mortal, path, {"erase_abort_timeout": "PT5M"}, writer, "nightly-1")
        mortal.crash()
        waiting.join(10)
        assert [held.covers(0) for held in writer.read().ranges] == [True], "protected all the time"
        writer.unlock_file(0)
    answer = post(mortal, path, {"erase_abort_timeout": "PT5M"}, **key)
    assert answer.status_code == 201, answer.text
    again = post(mortal, path, {"erase_abort_timeout": "PT5M"}, **key)
    assert again.json() == answer.json()
    assert again.headers["idempotency-replayed"] == "true"
    [session] = sessions_of(mortal, env)
    assert (session["id"], session["erasure_aborted"]) == (answer.json()["id"], False)


def test_crash_that_outlives_the_timeout_ends_as_failed_and_unprotected(
    mortal: Service, tmp_path: Path
) -> None:
    """And a session that was ACTIVE before the crash lives on."""
    env, other = register(mortal, tmp_path), register(mortal, tmp_path)
    path, body = f"/v1/stores/{env.name}/backup-sessions", {"erase_abort_timeout": "PT1S"}
    active = post(mortal, f"/v1/stores/{other.name}/backup-sessions", {}).json()
    with ControlFile.open(env, create=True) as writer:
        assert writer.try_lock_file(0, exclusive=True)
        waiting = ask_until_it_waits(mortal, path, body, writer, "nightly-2")
        mortal.kill9()
        waiting.join(10)
        (other / NAME).unlink()
        time.sleep(6.5)  # the timeout, and the grace of whoever waited
        mortal.start()
        until(lambda: writer.read().ranges == ())
    answer = post(mortal, path, body, **{"Idempotency-Key": "nightly-2"})
    assert (answer.status_code, answer.json()["code"]) == (503, "ERASE_ABORT_TIMEOUT")
    [session] = sessions_of(mortal, env)
    assert session["state"] == "FAILED"
    assert [each.state for each in mortal.client.protections.list(env.name)] == ["ENDED"]
    with ControlFile.open(other, create=False) as control:
        assert [held.id for held in control.read().ranges] == [active["protection_id"]]
    ended = post(mortal, f"/v1/stores/{other.name}/backup-sessions/{active['id']}:end")
    assert ended.json()["valid"] is True


def back_up_over_kills(mortal: Service, tmp_path: Path, count: int) -> None:
    """The service is killed while the command copies, and is away when the command ends."""
    chance = random.Random(count)
    env = register(mortal, tmp_path)
    given = ["--store", env.name, "--lease", "PT10M", "--json"]  # a loaded machine starts a service slowly
    command = [LETHE, "backup", "run", *given, "--", "sh", "-c"]
    for number in range(count):
        copied = tmp_path / f"copied-{number}"
        running = subprocess.Popen(
            [*command, f"sleep 1; xargs cat < {{files}} > {copied}"],
            env=command_environment(mortal, {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        until(lambda: "ACTIVE" in [each["state"] for each in sessions_of(mortal, env)])
        mortal.kill9()
        time.sleep(chance.uniform(*AWAY_S))
        mortal.start()
        out, _ = running.communicate(timeout=90)
        assert (running.returncode, json.loads(out)["valid"]) == (0, True), out
        whole = b"".join(path.read_bytes() for path in sorted(env.glob("*.jdb")))
        assert copied.read_bytes() == whole


def test_backup_over_restarts_of_the_service_is_valid(mortal: Service, tmp_path: Path) -> None:
    back_up_over_kills(mortal, tmp_path, KILLS)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_backups_over_twenty_restarts_of_the_service_are_valid(mortal: Service, tmp_path: Path) -> None:
    back_up_over_kills(mortal, tmp_path, KILLS_LONG)


def test_killed_command_leaves_a_lease_that_runs_out(service: Service, env: Path) -> None:
    command = [LETHE, "backup", "run", "--store", env.name, "--lease", LEASE, "--", "sleep", "60"]
    running = subprocess.Popen(command, env=command_environment(service, {}), start_new_session=True)
    try:
        until(lambda: [each["state"] for each in sessions_of(service, env)] == ["ACTIVE"])
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    [killed] = sessions_of(service, env)
    with closing(sqlite3.connect(service.data_dir / "lethe.db", timeout=10)) as metadata, metadata:
        for table, row in (("backup_sessions", killed["id"]), ("protections", killed["protection_id"])):
            metadata.execute(
                f"update {table} set lease_expires_at = '2026-01-01 00:00:00.000000' where id = ?", [row]
            )
    [expired] = sessions_of(service, env)
    assert (expired["state"], expired["valid"]) == ("EXPIRED", False)
    begun = post(service, f"/v1/stores/{env.name}/backup-sessions", {}).json()
    with ControlFile.open(env, create=False) as control:
        assert {held.id for held in control.read().ranges} == {begun["protection_id"]}


@pytest.mark.long
def test_hooks_around_a_copy(service: Service, env: Path, tmp_path: Path) -> None:
    session_file, listed = tmp_path / "session", tmp_path / "files0"
    name = ("--session-file", session_file)
    begun = hooked(service, "start", "--store", env.name, *name, "--files0-to", listed, "--json")
    assert begun.returncode == 0, begun.stderr
    first = json.loads(begun.stdout)
    paths = listed.read_bytes().split(b"\0")
    assert paths == [*(os.fsencode(path) for path in sorted(env.glob("*.jdb"))), b""]
    again = hooked(service, "start", "--store", env.name, *name, "--json")
    assert json.loads(again.stdout) == first
    kept = json.loads(session_file.read_text())
    session_file.write_text(json.dumps(kept | {"session_id": None}))  # killed before the answer came
    after_kill = hooked(service, "start", "--store", env.name, *name, "--json")
    assert json.loads(after_kill.stdout)["id"] == first["id"]
    os.utime(env / "00000001.jdb", ns=(1, 1))
    ended = hooked(service, "end", *name, "--json")
    assert (ended.returncode, json.loads(ended.stdout)["valid"]) == (75, False)
    fresh = hooked(service, "start", "--store", env.name, *name, "--json")
    assert json.loads(fresh.stdout)["id"] != first["id"]


def test_backup_in_the_middle_of_a_throttled_cycle(service: Service, env: Path) -> None:
    untouched = {path.name: path.read_bytes() for path in env.glob("*.jdb")}
    cycle = CycleRequest(min_file_age="PT0S", duration="PT20S")
    job_id = service.client.erasure.begin(env.name, cycle).id
    until(lambda: any(path.read_bytes() != untouched[path.name] for path in env.glob("*.jdb")))
    begun = service.client.backups.begin(env.name, tool="test")
    promised = {file.name: Path(file.path).read_bytes() for file in begun.files}
    until(lambda: service.client.jobs.get(job_id).state == "WAITING")
    time.sleep(1)
    assert {name: (env / name).read_bytes() for name in promised} == promised
    job = service.client.jobs.get(job_id)
    assert {(each["kind"], each["ref"]) for each in job.raw["waiting_on"]} >= {("BACKUP", begun.id)}
    assert service.client.backups.end(env.name, begun.id).valid is True
    until(lambda: {name: (env / name).read_bytes() for name in promised} != promised)
    service.client.jobs.abort(job_id)
    assert await_job(service.client, job_id).state == "ABORTED"
