"""A backup session without `files` is a copy of the whole log. It left out, without a word, a log file that
was a symbolic link, which JE follows; and one that JE's cleaner had deleted while the session was prepared,
although its records stood by then in a file that had begun since and that the session lacked. Both copies
were called valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.http.environments import (
    EnvironmentStore,
    engine_at_work,
    make_environment_store,
    round_at_work,
)
from tests.http.problem import problem


@pytest.fixture
def env(http: httpx.Client, roots: Path) -> EnvironmentStore:
    return make_environment_store(http, roots)


def begin_while(env: EnvironmentStore, deed: Callable[[], object]) -> httpx.Response:
    """Begin a session that has to wait for a round, and do something meanwhile."""
    found: list[httpx.Response] = []
    with round_at_work(env.directory, 1) as writer:
        stop = writer.stop_counter()
        waiting = threading.Thread(target=lambda: found.append(env.post("backup-sessions", {})))
        waiting.start()
        deadline = time.monotonic() + 10
        while writer.stop_counter() == stop and time.monotonic() < deadline:
            time.sleep(0.002)
        deed()
        writer.unlock_file(1)
        waiting.join(10)
    return found[0]


@pytest.mark.parametrize("named", [False, True])
def test_log_file_that_is_a_link_is_refused_by_name(env: EnvironmentStore, *, named: bool) -> None:
    path = env.directory / env.names[1]
    path.rename(path.with_suffix(".elsewhere"))
    path.symlink_to(path.with_suffix(".elsewhere"))
    answer = env.post("backup-sessions", {"files": [path.name]} if named else {})
    assert path.name in problem(answer, 409, "LOG_FILE_NOT_REGULAR")["detail"]
    assert env.ranges() == []


def test_log_that_moved_on_while_a_file_of_it_went_is_no_whole_one(env: EnvironmentStore) -> None:
    def clean() -> None:
        (env.directory / f"{len(env.names):08x}.jdb").write_bytes(b"what was live in the first file")
        (env.directory / "00000000.jdb").unlink()

    answer = begin_while(env, clean)
    assert "00000000.jdb" in problem(answer, 409, "LOG_FILES_VANISHED")["detail"]
    assert env.ranges() == []
    assert [file["name"] for file in env.begin()["files"]] == env.names


def test_file_that_went_while_the_last_one_stays_the_last_is_left_out(env: EnvironmentStore) -> None:
    answer = begin_while(env, (env.directory / "00000000.jdb").unlink)
    assert answer.status_code == 201, answer.text
    assert [file["name"] for file in answer.json()["files"]] == env.names


def test_file_of_an_engine_grows_whatever_is_erased_beside_it(env: EnvironmentStore) -> None:
    """A round beside a running engine was taken for the one that held its lock: of a session that had other
    files than the round's the last one was to stay as it was, and each of its copies was called invalid.
    """
    last = env.directory / env.names[-1]
    with engine_at_work(env.directory), round_at_work(env.directory, 1):
        begun = env.begin(files=[last.name])
        with last.open("ab") as log:
            log.write(b"more")
        assert [file["growing"] for file in begun["files"]] == [True]
        assert env.post(f"backup-sessions/{begun['id']}:end").json()["valid"] is True
