"""A plan that would remove nothing says so, and where to look; it said "Run exactly this"."""

import shlex
from typing import Any

import pytest

from tests.style.test_examples import understood

RUN = "Run exactly this"
NOTHING = "There is nothing to remove, and so nothing to run."
PURGES = "POST /v1/stores/it/purges"
TABLE = {"table": "sym_data", "rows": 1200, "rows_to_remove": 0, "lo": None, "hi": None}
HELD = {"rid": 2, "rows": 9, "rows_to_remove": 0, "rows_held": 4, "held_by": ["agr_1"]}
HELD_ROWS = {"code": "HELD_BY_FOREIGN_KEY", "table": "ticket", "count": 445, "detail": "they stay"}
SYMMETRICDS: dict[str, Any] = {
    "kind": "OUTGOING",
    "cutoff": "2026-11-01T03:00:00Z",
    "retention_source": "STORE",
    "tables": [TABLE],
    "stranded": {"mode": "SKIP", "nodes": [{"node_id": "store-05", "batches": 15, "rows": 9}]},
    "warnings": [{"code": "NULL_CREATE_TIME", "table": "sym_data", "count": 3, "detail": "stay"}],
}
ROWS = ("purge", "rows", "it", "--table", "ticket", "--where", "status = 'done'", "--plan")
CLEANUP = ("slony", "cleanup", "it", "--plan")
ERASURE = ("erasure", "plan", "it", "--min-file-age", "P1D", "--duration", "PT1H")


def planned(service: Any, lethe: Any, words: tuple[str, ...], path: str, plan: dict[str, Any]) -> Any:
    service.on(f"POST /v1/stores/it/{path}", (200, {"plan_id": "job_7", "store": "it", **plan}))
    run = lethe(*words)
    assert run.code == 0, run.err
    return run


@pytest.mark.parametrize(
    ("words", "path", "plan", "looks"),
    [
        (
            ("purge", "plan", "it"),
            "purges",
            SYMMETRICDS,
            [
                "cut-off 2026-11-01 03:00:00Z (retention from STORE)",
                "sym_data=1,200",
                "15 batches of the nodes above keep their rows; --stranded mark",
                "the warnings above",
                "lethe purge stats it",
            ],
        ),
        (
            ("purge", "plan", "it", "--kind", "changelog"),
            "purges",
            {"kind": "CHANGELOG", "rids": [HELD], "rows": 9, "rows_to_remove": 0},
            ["9 records stay; 4 of them", "(agr_1): lethe replication topology"],
        ),
        (
            ("purge", "plan", "it", "--kind", "tombstones"),
            "purges",
            {"kind": "TOMBSTONES", "rids": [HELD], "rows": 9, "rows_to_remove": 0, "held_by": ["rid 3"]},
            ["9 tombstones stay; 4 of them", "(rid 3): lethe replication topology"],
        ),
        (
            ROWS,
            "purges",
            {"kind": "ROWS", "where": "status = 'done'", "tables": [TABLE], "rows_to_remove": 0},
            ["the rows that --where status = 'done' chooses", "sym_data=1,200"],
        ),
        (
            ROWS,
            "purges",
            {"kind": "ROWS", "tables": [TABLE], "warnings": [HELD_ROWS]},
            ["445 chosen rows that rows of other tables need: --child TABLE removes both"],
        ),
        (
            ERASURE,
            "erasure-cycles",
            {
                "mode": "CLOSED",
                "cutoff": "2026-11-01T03:00:00Z",
                "files": [{"file": "00000000.jdb", "causes": [{"cause": "TOO_YOUNG"}]}],
                "keep": [{"code": "TOO_YOUNG", "entries": 7, "bytes": 90}],
            },
            ["--min-file-age", "why each is not erased", "by cause: TOO_YOUNG=7"],
        ),
        (
            CLEANUP,
            "event-cleanups",
            {
                "confirmed_before": "2026-11-01T03:00:00Z",
                "log_switch": {"step": "BLOCKED"},
                "tables": {"a": 0},
            },
            ["a shorter --interval", "the log switch, above"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_empty_plan_names_what_to_look_at(
    service, lethe, words: tuple[str, ...], path: str, plan: dict[str, Any], looks: list[str]
) -> None:
    run = planned(service, lethe, words, path, plan)
    assert NOTHING in run.err
    assert RUN not in run.err
    assert [each for each in looks if each not in run.err] == []
    for line in run.err.splitlines():
        _, is_command, rest = line.partition(": lethe ")
        if is_command:
            understood(shlex.split(rest))


@pytest.mark.parametrize(
    ("words", "path", "plan"),
    [
        (("purge", "plan", "it"), "purges", SYMMETRICDS | {"tables": [TABLE | {"rows_to_remove": 1}]}),
        (
            ("purge", "plan", "it", "--stranded", "mark"),
            "purges",
            SYMMETRICDS | {"stranded": SYMMETRICDS["stranded"] | {"mode": "MARK"}},
        ),
        (CLEANUP, "event-cleanups", {"log_switch": {"step": "START"}}),
        (ERASURE, "erasure-cycles", {"mode": "CLOSED", "files": [{"file": "00000000.del", "deleted": True}]}),
    ],
    ids=["rows", "batches that are given up", "a step of the log switch", "a file of JE's"],
)
def test_a_plan_that_does_something_is_run(
    service, lethe, words: tuple[str, ...], path: str, plan: dict[str, Any]
) -> None:
    run = planned(service, lethe, words, path, plan)
    assert RUN in run.err
    assert NOTHING not in run.err


def test_an_empty_range_is_discarded_all_the_same(service, lethe) -> None:
    """What a discard says, it says of keys: the answer for them changes without a record."""
    words = ("extinction", "discard", "it", "--database", "d", "--label", "old", "--base64", "--plan")
    service.on("GET /v1/stores/it", (200, {"id": "it", "kind": "JE"}, {"ETag": '"1"'}))
    run = planned(service, lethe, words, "extinctions", {"records": 0, "bytes": 0})
    assert "no record lies in the range" in run.err
    assert RUN in run.err


def test_a_plan_of_too_many_rows_is_not_run_by_its_id(service, lethe) -> None:
    plan = {"kind": "ROWS", "tables": [TABLE | {"rows_to_remove": 5}], "is_executable": False}
    run = planned(service, lethe, ROWS, "purges", plan)
    assert "without --plan" in run.err
    assert RUN not in run.err
