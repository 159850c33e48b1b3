"""Plain lines where nobody looks live, a bar on a terminal."""

import io
import re

from lethe_client import Job, Progress
from lethe_client.decoding import decode
from lethe_client.results import WaitingOn
from rich.console import Console

from app.cli.shell.progress import Bar, PlainLines, brief, describe


def running(done: int, total: int | None = 100) -> Job:
    fraction = done / total if total else None
    progress = Progress(unit="rows", done=done, total=total, fraction=fraction, rate_per_s=12_500.0)
    return Job(id="job_1", kind="PURGE", state="RUNNING", store="shop", progress=progress)


def test_plain_lines_come_with_a_tenth_a_state_or_ten_seconds() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = PlainLines(Console(file=stream, width=200), monotonic=lambda: now[0])
    for second, done in [(0, 0), (1, 5), (2, 11), (3, 12), (13, 13)]:
        now[0] = second
        lines.show(running(done))
    lines.show(Job(id="job_1", kind="PURGE", state="PAUSED"))
    assert stream.getvalue().splitlines() == [
        "job_1 RUNNING 0 %, 0 of 100 rows, 12,500/s",
        "job_1 RUNNING 11 %, 11 of 100 rows, 12,500/s",
        "job_1 RUNNING 13 %, 13 of 100 rows, 12,500/s",
        "job_1 PAUSED",
    ]


def test_plain_lines_say_once_what_a_job_that_looks_again_and_again_waits_for() -> None:
    stream, now = io.StringIO(), [0.0]
    lines = PlainLines(Console(file=stream, width=200), monotonic=lambda: now[0])
    look = Job(id="job_1", kind="EVENT_WAIT", state="RUNNING")
    both, one = (
        Job(
            id="job_1",
            kind="EVENT_WAIT",
            state="WAITING",
            waiting_on=tuple(WaitingOn(kind="CONFIRMATION", ref=ref) for ref in refs),
        )
        for refs in (("node 2", "node 3"), ("node 3",))
    )
    shown = [look, both, look, both, look, one, look, one, look, one]
    for second, job in enumerate(shown):
        now[0] = second
        lines.show(job)
    now[0] = 15.5
    lines.show(one)
    for state in ("PAUSED", "QUEUED", "RUNNING", "FAILED"):
        lines.show(Job(id="job_1", kind="EVENT_WAIT", state=state))
    assert stream.getvalue().splitlines() == [
        "job_1 RUNNING",
        "job_1 WAITING waits for CONFIRMATION node 2, waits for CONFIRMATION node 3",
        "job_1 WAITING waits for CONFIRMATION node 3",
        "job_1 WAITING waits for CONFIRMATION node 3",
        "job_1 PAUSED",
        "job_1 QUEUED",
        "job_1 RUNNING",
        "job_1 FAILED",
    ]


def test_bar_on_a_terminal_shows_the_store_and_redraws() -> None:
    stream = io.StringIO()
    with Bar(Console(file=stream, force_terminal=True, width=80)) as bar:
        bar.show(running(0, total=None))
        bar.show(running(5_000_000, total=10_000_000))
    # A long description once squeezed the bar and the name out of the line.
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue()).splitlines()[-1]
    assert last.startswith("shop ━━━━━━━━")
    assert last.rstrip().endswith("50% RUNNING 5,000,000/10,000,000 rows, 12,500/s")


def test_description_says_throttle_and_what_is_waited_for() -> None:
    job = decode(
        Job,
        {
            "id": "job_1",
            "kind": "PURGE",
            "state": "WAITING",
            "progress": None,
            "throttle": {
                "requested": None,
                "effective": {"rows_per_s": 5000.0, "bytes_per_s": None},
                "cause": None,
            },
            "waiting_on": [{"kind": "CONFLICTING_JOB", "ref": "job_2", "until": None}],
        },
    )
    assert describe(job) == "WAITING throttle rows_per_s=5,000, waits for CONFLICTING_JOB job_2"


def test_purge_that_removes_nothing_does_not_look_as_if_it_had_removed_all() -> None:
    # "68 of 68 rows" was the last line of a purge that had removed none of them.
    shown = Progress(unit="rows examined", done=68, total=68, removed=0, fraction=1.0)
    job = Job(id="job_1", kind="PURGE", state="SUCCEEDED", store="shop", progress=shown)
    assert describe(job) == "SUCCEEDED 100 %, 68 of 68 rows examined, 0 removed"


def test_a_job_in_the_queue_does_not_wait_for_the_queue() -> None:
    job = Job(id="job_1", kind="PURGE", state="QUEUED", waiting_on=(WaitingOn(kind="QUEUED", ref=""),))
    assert describe(job) == brief(job) == "QUEUED"
