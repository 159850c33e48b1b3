"""`if_csn` over HTTP: in every form of a body, with Idempotency-Keys, and many writers at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from spark.formats.changes.batch import NDJSON_MEDIA_TYPE
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.writers import WrittenStore, change, make_written, text64, url64

ABSENT = "6aff000a000000010000"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: conditions are judged at the target."""
    return sqlite_service


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def written(request: pytest.FixtureRequest, http: httpx.Client, roots: Path) -> WrittenStore:
    """A replica on either kind of target."""
    if request.param == "sqlite":
        return make_written(http, folder=roots)
    return make_written(http, url=request.getfixturevalue("postgresql_url"))


def done(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["last_csn"])


def mismatch(answer: httpx.Response) -> tuple[int, str | None, bool]:
    found = problem(answer, 412, "CSN_MISMATCH")
    return found["row"], found["current_csn"], found["is_tombstone"]


def test_a_change_is_written_only_on_what_its_writer_knows(written: WrittenStore, http: httpx.Client) -> None:
    def put(if_csn: str | None, **fields: Any) -> httpx.Response:
        return written.post(change(b"k", b"v") | {"if_csn": if_csn} | fields)

    assert mismatch(put(ABSENT)) == (0, None, False)
    first = done(put("none"))
    assert mismatch(put("none")) == (0, first, False)
    second = done(put(first))
    assert mismatch(put(first)) == (0, second, False)
    third = done(put(None))  # null asks for nothing
    # Several together: one that does not hold, and nothing of them is written.
    changes = [change(b"other", b"v"), change(b"k", b"w") | {"if_csn": second}]
    assert mismatch(written.post({"changes": changes})) == (1, third, False)
    assert written.entry(b"other").status_code == 404
    # By its key.
    path = f"/v1/stores/{written.id}/entries/{url64(b'orders')}/{url64(b'k')}"
    assert mismatch(http.put(path, json={"value": text64(b"x"), "if_csn": first})) == (0, third, False)
    fourth = done(http.put(path, json={"value": text64(b"x"), "if_csn": third}))
    assert mismatch(http.delete(path, params={"if_csn": third})) == (0, fourth, False)
    gone = done(http.delete(path, params={"if_csn": fourth}))
    assert written.entry(b"k").status_code == 404
    # A deleted entry is none, and may be named by the CSN of its tombstone.
    assert mismatch(put(fourth)) == (0, gone, True)
    done(put(gone))
    done(http.delete(path))
    done(put("none"))
    # Lines of NDJSON, of which only some depend on anything.
    lines = f'{{"database":"{text64(b"orders")}","key":"{text64(b"n")}","value":null,"if_csn":"none"}}\n'
    headers = {"Content-Type": NDJSON_MEDIA_TYPE}
    done(http.post(written.url, content=lines, headers=headers))
    bad = lines.replace("none", "nine")
    problem(http.post(written.url, content=bad, headers=headers), 422, "BATCH_UNREADABLE")
    assert pointers(problem(put("nine"), 422, "INVALID_REQUEST")) == {"/if_csn"}
    assert pointers(problem(http.put(path, json={"value": None}), 422, "INVALID_REQUEST")) == {"/value"}
    problem(http.delete(path, params={"if_csn": "x"}), 422, "INVALID_REQUEST")
    # What the history tells of it: who won, and what was overwritten by what.
    found = http.get(f"{path}/history").json()
    assert [each["outcome"] for each in found["items"]] == ["WON"] + ["OVERWRITTEN"] * 7
    assert found["items"][-1]["overwritten_by"] == second
    assert http.get(f"{written.url}/overwritten").json()["items"] == []  # one replica alone has no conflict


def test_a_repeated_request_is_answered_as_then(written: WrittenStore) -> None:
    body = change(b"k", b"v") | {"if_csn": "none"}
    first = written.post(body, idempotency="once")
    again = written.post(body, idempotency="once")
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = written.post(change(b"k", b"v"), idempotency="once")
    assert other.status_code == 422


@pytest.mark.parametrize("rounds", [15, pytest.param(300, marks=pytest.mark.long)])
def test_of_many_writers_one_wins_each_time(
    written: WrittenStore, service: ServiceProcess, rounds: int
) -> None:
    writers, current = 6, "none"
    line = threading.Barrier(writers)

    def write(number: int, if_csn: str) -> httpx.Response:
        with service.http() as own:
            line.wait()
            body = change(b"k", b"w%d" % number) | {"if_csn": if_csn}
            return WrittenStore(own, written.id).post(body)

    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            answers = [pool.submit(write, number, current) for number in range(writers)]
            found = [answer.result() for answer in answers]
            [winner] = [answer for answer in found if answer.status_code == 200]
            current = done(winner)
            lost = [mismatch(answer) for answer in found if answer is not winner]
            assert lost == [(0, current, False)] * (writers - 1)
    assert len(written.records(page_size=500)) == rounds
