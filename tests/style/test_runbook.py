"""Every code that an error, a wait or the overview may have stands in the runbook, and nothing else does."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from typer.exceptions import TyperException

from app.backups.rows import BackupState, FileFault
from app.erase.rows import CycleState
from app.fleet.models import AttentionCode
from app.jobs.counting import QUEUED
from app.jobs.rows import JobState
from app.outbox.rows import DeliveryState
from app.purge.check import OTHER_KINDS
from app.readiness import NOTES
from app.replication.rows import SessionOutcome
from app.runbook import registry
from app.runbook.entry import Seen
from app.runbook.page import render
from app.runbook.registry import RUNBOOK, SECTIONS
from spark.erase.calls.calls import RefusalCode
from spark.erase.reasons import Cause
from spark.events.cleaning.records import HazardKind
from spark.events.rights import Ability
from spark.events.waiting import Impossible
from spark.pool.errors import StartReason
from spark.replication.records import ReplicaStatus
from spark.replication.supplier.decide import Reason
from tests.style import code_places
from tests.style.code_places import Found, problem_codes
from tests.style.source_files import ROOT, SourceFile, source_files
from tests.style.test_answer_words import answers
from tests.style.test_examples import understood

PAGE: Final = ROOT / "docs" / "reference" / "runbook.md"
REPLICA: Final = {f"REPLICA_{status}" for status in ReplicaStatus if status is not ReplicaStatus.ONLINE}
HANDED_ON: Final[dict[str, tuple[Seen, set[str]]]] = {
    "app/console/calls.py:Refused": (Seen.HTTP, set()),  # what an operation of the API has answered
    "app/backups/preparing.py:PreparationFailed": (Seen.HTTP, {"BACKUP_SESSION_FAILED"}),
    "app/replication/purges/attempt.py:JobFailed": (Seen.JOB, REPLICA),
    "app/replication/purges/looking.py:Conflict": (Seen.HTTP, REPLICA),
    "app/events/waits/task.py:JobFailed": (Seen.JOB, {str(each) for each in Impossible}),
    "app/purge/check.py:_info": (Seen.FINDING, {f"NO_{kind}" for kind in OTHER_KINDS}),
    "app/events/check.py:_finding": (Seen.FINDING, {f"NO_{ability}" for ability in get_args(Ability)}),
    "app/events/health/notes.py:_finding": (Seen.FINDING, set()),  # what judge and callers have said
    "app/events/cleanup/report.py:CleanupWarning": (
        Seen.FINDING,
        {f"HAZARD_{kind}" for kind in get_args(HazardKind)},
    ),
    "app/erase/certificates/verify_findings.py:fault": (Seen.FINDING, set()),  # a RefusalCode, read there
    "app/erase/models.py:AmountRead": (Seen.FINDING, set()),  # a Cause, read below
    "app/erase/cycle/task.py:JobFailed": (Seen.TARGET, set()),  # what the cycle has failed with before
    "app/erase/refusals.py:JobFailed": (Seen.TARGET, {str(each) for each in RefusalCode}),
    "app/extinction/service.py:EnvironmentUnreadable": (Seen.TARGET, set()),  # LogRefused's own
    "app/extinction/counting.py:JobFailed": (Seen.TARGET, set()),  # LogRefused's own, or a RefusalCode
    "spark/erase/overwrite/witness.py:Refused": (Seen.TARGET, set()),  # a RefusalCode
    "app/replication/supplier/task.py:JobFailed": (Seen.JOB, set()),  # what the session has stopped on before
    "app/replication/peer/client.py:PeerRefused": (
        Seen.TARGET,
        set(),
    ),  # a peer's own
    "spark/replication/consumer/arrival.py:Refused": (
        Seen.TARGET,
        {"KIND_UNKNOWN", "RECORD_TOO_LONG", "CSN_FROM_THE_FUTURE", "TOMBSTONE_PURGED"},
    ),
    "app/rows/rules.py:TableNotPurgeable": (
        Seen.HTTP,
        set(),
    ),  # of findings, which are read where they are made
    "app/replication/supplier/extinctions.py:JobFailed": (Seen.JOB, set()),  # what the consumer has refused
    "app/replication/supplier/work.py:Refused": (Seen.TARGET, set()),  # the same, kept as a dead letter
    "spark/replication/dead_letters.py:Refused": (Seen.TARGET, set()),  # as it was written
}
"""Places whose code no reader of the syntax can follow, and what it can be."""
NAMELESS: Final = "app/errors.py:NotFound"
"""An id in a path that nothing can have: its parameter's name, and _NOT_FOUND."""


def _of_paths() -> set[str]:
    paths = json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"]
    names = {name for path in paths for name in re.findall(r"{(\w+)}", path)}
    return {f"{name.removesuffix('_id').upper()}_NOT_FOUND" for name in names}


STATES: Final = (JobState, CycleState, BackupState, SessionOutcome, DeliveryState)
CAUSES: Final = (Cause, FileFault, Reason)
"""Why files, entries and changes stay, why a backup is INVALID, why a session NEEDS_TOTAL."""
OF_SPARK: Final = set(get_args(StartReason)) - {"STOPPED", "FAILED"}
"""Why Spark does not start. STOPPED is somebody's wish, and FAILED has its reason in words."""


def _of_the_command() -> set[str]:
    """What the command complains of in its own words."""
    return {
        node.args[0].value
        for file in source_files("app/cli")
        for node in ast.walk(file.tree)
        if isinstance(node, ast.Call) and code_places.callable_name(node) == "Complaint" and node.args
        if isinstance(node.args[0], ast.Constant)
    }


@pytest.fixture(scope="module")
def found() -> dict[str, Found]:
    return problem_codes()


@pytest.fixture(scope="module")
def seen(found: dict[str, Found]) -> dict[Seen, set[str]]:
    codes = {Seen(name.upper()): set(each.codes) for name, each in found.items()}
    codes[Seen.ATTENTION] = {str(each) for each in AttentionCode}
    codes[Seen.JOB].add("RETRIES_EXHAUSTED")  # of a JobWaiting that names no code
    codes[Seen.WAIT].add(QUEUED)  # of no task: nobody has taken the job
    codes[Seen.STATE] = {str(each) for kind in STATES for each in kind}
    codes[Seen.COMMAND] = _of_the_command()
    codes[Seen.READY] = set(NOTES)
    codes[Seen.HTTP] |= _of_paths()
    codes[Seen.FINDING] |= {str(each) for kind in CAUSES for each in kind}
    codes[Seen.FINDING] |= OF_SPARK | code_places.codes_of_the_chain()
    for place, more in HANDED_ON.values():
        codes[place] |= more
    codes[Seen.ANSWER] = answers() - set().union(*codes.values())
    return codes


def test_no_code_comes_about_where_nobody_can_follow_it(found: dict[str, Found]) -> None:
    unknown = {place: text for each in found.values() for place, text in each.unknown.items()}
    assert set(unknown) == {*HANDED_ON, NAMELESS}, unknown


def test_every_code_has_an_entry(seen: dict[Seen, set[str]]) -> None:
    lacking = set().union(*seen.values()) - set(RUNBOOK)
    assert not lacking, f"write their entries in app/runbook/entries: {sorted(lacking)}"


def test_every_entry_is_of_a_code_and_says_where_it_is_met(seen: dict[Seen, set[str]]) -> None:
    wrong = {}
    for code, entry in RUNBOOK.items():
        places = {place for place, codes in seen.items() if code in codes}
        if places != set(entry.seen):
            wrong[code] = sorted(places)
    assert not wrong, f"an entry names these places, none: no code has it (any more): {wrong}"


def test_no_code_has_two_entries() -> None:
    assert sum(len(entries) for entries in SECTIONS.values()) == len(RUNBOOK)


def test_entries_are_short_plain_sentences() -> None:
    for entry in RUNBOOK.values():
        for text in (entry.meaning, entry.next):
            assert re.fullmatch(r"[`A-Z].*\.", text, re.DOTALL), text
            assert not re.search(r"\b(told|minded|the hands|the document|the program)\b", text), text
            assert len(text) <= 300, text


def test_page_is_the_one_of_the_code() -> None:
    assert render() == PAGE.read_text(), "docs/reference/runbook.md is stale: make runbook"


def test_module_prints_the_page() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "app.runbook.page"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout == PAGE.read_text()


def test_every_section_is_read() -> None:
    files = {path.stem for path in (ROOT / "app" / "runbook" / "entries").rglob("*.py")} - {"__init__"}
    assert files <= set(vars(registry))
    assert len(files) == len(SECTIONS)


@pytest.mark.parametrize(
    ("schema", "field", "places"),
    [
        ("Problem", "code", {Seen.HTTP, Seen.TARGET}),
        ("JobError", "code", {Seen.JOB, Seen.TARGET}),
        ("WaitingRead", "kind", {Seen.WAIT, Seen.TARGET}),
    ],
)
def test_openapi_names_every_code_and_says_what_it_means(schema: str, field: str, places: set[Seen]) -> None:
    document: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    found = document["components"]["schemas"][schema]["properties"][field]
    meanings = dict(zip(found["x-extensible-enum"], found["x-enum-descriptions"], strict=True))
    assert meanings == {
        code: f"{entry.meaning} {entry.next}" for code, entry in RUNBOOK.items() if places & set(entry.seen)
    }


COMMANDS: Final = re.compile(r"`lethe ([^`]+)`")
WHOLE: Final = {"explain", "--version"}
"""`lethe explain` it: the code stands before; `--version` prints and ends."""


def test_commands_that_entries_name_are_understood_as_they_stand() -> None:
    texts = [f"{entry.meaning} {entry.next}" for entry in RUNBOOK.values()]
    named = {match for text in texts for match in COMMANDS.findall(text)} - WHOLE
    assert len(named) > 100
    wrong = {}
    for line in sorted(named):
        words = ["7" if word == "RID" else word for word in shlex.split(line)]
        try:
            understood(words)
        except TyperException as complaint:
            wrong[line] = str(complaint)
    assert not wrong, f"an operator copies these commands: {wrong}"


RESIDUE: Final = ROOT / "app" / "erase" / "certificates" / "residue.py"
REMOVES: Final = re.compile(r"\b(delete|destroy|discard|drop|erase|remove|wipe|may go)\b", re.IGNORECASE)
COPIES: Final = re.compile(
    r"\b(backups?|snapshots?|archives?|replicas?|exports?|copy|copies)\b|je\.properties", re.IGNORECASE
)
FORBIDS: Final = re.compile(r"\b(never|not)\b", re.IGNORECASE)


def _codes_of_a_residue() -> set[str]:
    """What a certificate says stays readable."""
    words = {
        node.value
        for node in ast.walk(ast.parse(RESIDUE.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return words & set(RUNBOOK)


def endangering(text: str, *, of_a_residue: bool = False) -> list[str]:
    """Sentences that tell to remove copies of data; of a residue, to remove anything.

    Commands are left out: their words are no advice of their own.
    """
    return [
        sentence
        for sentence in re.split(r"(?<=[.:;])\s+", COMMANDS.sub("", text))
        if REMOVES.search(sentence) and not FORBIDS.search(sentence)
        if of_a_residue or COPIES.search(sentence)
    ]


def test_no_entry_tells_to_remove_copies_of_data() -> None:
    """They may be all that is left of some rows, and a certificate is no reason to remove them."""
    residue = _codes_of_a_residue()
    assert len(residue) > 15
    wrong = {
        code: found
        for code, entry in RUNBOOK.items()
        if (found := endangering(entry.next, of_a_residue=code in residue))
    }
    assert not wrong, f"an operator does what stands here: {wrong}"


def test_advice_to_remove_copies_is_seen() -> None:
    assert endangering("Delete snapshots of that file system.")
    assert endangering("Make room: old archives lie in `archive/`, `spark.log.1` may go.")
    assert endangering("Look at them, and remove what should be gone.", of_a_residue=True)
    assert not endangering("Never delete a backup for this.", of_a_residue=True)
    assert not endangering("`lethe replica discard STORE` of a replica.")


def test_no_command_of_an_entry_starts_an_erasure_with_an_age_of_its_own() -> None:
    """What is erased cannot be had again; how old it must be is the store's, or what a plan has shown."""
    wrong = {
        code: line
        for code, entry in RUNBOOK.items()
        for line in COMMANDS.findall(f"{entry.meaning} {entry.next}")
        if line.startswith("erasure start") and re.search(r"--(min-file-age|duration|period)\b", line)
    }
    assert not wrong, wrong


INVENTED: Final = '''
from app.errors import Conflict, NotFound
from app.jobs.errors import JobFailed
from app.jobs.models import WaitingOn

NAMED = "NAMED_BY_A_CONSTANT"

class MugMissing(NotFound):
    """None."""

def one(is_late: bool, words: list[str]) -> None:
    code = "WHEN_LATE" if is_late else NAMED
    if is_late:
        raise MugMissing
    if words:
        raise JobFailed(words[0], "x")
    WaitingOn(kind="TEA", ref="x")
    words.explain("LEAVES_LOW", "x")
    raise Conflict("x", code=code)

def two(findings: list[WaitingOn]) -> None:
    raise Conflict("x", code=findings[0].code)
'''


def test_codes_are_found_however_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "invented_codes.py").write_text(INVENTED)
    monkeypatch.syspath_prepend(tmp_path)
    file = SourceFile("invented_codes.py", INVENTED, ast.parse(INVENTED))
    monkeypatch.setattr(code_places, "readers", lambda: iter([code_places.Reader(file)]))
    found = problem_codes()
    assert set(found["http"].codes) == {"MUG_MISSING", "WHEN_LATE", "NAMED_BY_A_CONSTANT"}
    assert set(found["wait"].codes) == {"TEA"}
    assert set(found["finding"].codes) == {"LEAVES_LOW"}
    assert found["http"].unknown == {"invented_codes.py:Conflict": "findings[0].code"}
    assert found["job"].unknown == {"invented_codes.py:JobFailed": "words[0]"}
