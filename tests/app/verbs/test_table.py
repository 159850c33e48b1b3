"""The table of verbs and that of the kinds of stores: nothing runs that is described half.

A kind of job without an entry in one of five dicts was started by whoever may purge, never proved silent by
its own proof, or had no limits; a kind of store without a `recover` got that of SymmetricDS.
"""

import ast
import inspect
import re
from dataclasses import replace
from typing import Any, get_args, get_type_hints

import pytest
from fastapi.routing import APIRoute

from app.jobs.errors import JobKindUnknown
from app.routers import ROUTERS
from app.starting import EXIT_CONFIGURATION, Misconfigured, check_verbs
from app.stores.models import StoreCreate
from app.verbs.purges import PURGINGS, TABLES
from app.verbs.stores.table import COLUMNS as STORE_COLUMNS
from app.verbs.stores.table import KINDS
from app.verbs.table import CARRIERS, COLUMNS, SUBMITTERS, VERBS, scopes_of, task_kinds, verb_of
from app.verbs.verb import Limits, Tools, Verb
from tests.app.forged import ended
from tests.app.starts_forged import with_a_gap
from tests.style.source_files import ROOT

BY_NAME = {verb.name: verb for verb in VERBS}


def _without(verb: Verb, column: str) -> list[Verb]:
    others = [each for each in VERBS if each is not verb]
    lacking: dict[str, Any] = {column: None}
    return [*others, replace(verb, **lacking)]


def test_the_tables_are_whole() -> None:
    check_verbs()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", BY_NAME)
def test_a_verb_that_lacks_a_column_does_not_start(name: str, column: str) -> None:
    with pytest.raises(Misconfigured, match=f"job kind {name} lacks `{column}`") as refused:
        check_verbs(_without(BY_NAME[name], column))
    assert refused.value.exit_code == EXIT_CONFIGURATION


def test_two_rows_for_one_act_do_not_start() -> None:
    with pytest.raises(Misconfigured, match="two rows"):
        check_verbs([*VERBS, VERBS[0]])


@pytest.mark.parametrize("column", sorted(set(STORE_COLUMNS) - {"rules"}))
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_store_that_lacks_a_column_does_not_start(kind: Any, column: str) -> None:
    lacking: dict[str, Any] = {column: None}
    others = {name: each for name, each in KINDS.items() if name != kind}
    with pytest.raises(Misconfigured, match=f"store kind {kind} lacks `{column}`"):
        check_verbs(kinds={**others, kind: replace(KINDS[kind], **lacking)})
    with pytest.raises(Misconfigured, match=f"store kind {kind} has no row"):
        check_verbs(kinds=others)


def test_a_service_with_a_gap_in_its_table_ends_before_it_listens(tmp_path: Any) -> None:
    code, said = ended(with_a_gap, str(tmp_path / "data"))
    assert code == EXIT_CONFIGURATION, said
    assert "lacks `proof`" in said
    assert not (tmp_path / "data" / "lethe.db").exists()


def test_every_kind_of_job_that_the_code_names_has_a_row() -> None:
    """A submitted kind that is in no table would be claimed by nobody, or by nobody's rules."""
    named = {
        node.value.value
        for path in (ROOT / "app").rglob("*.py")
        if re.search("^JOB_", text := path.read_text(), re.MULTILINE)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant)
        for target in ([node.target] if isinstance(node, ast.AnnAssign) else node.targets)
        if re.fullmatch("[A-Z_]+", str(node.value.value))
        if isinstance(target, ast.Name) and re.fullmatch("JOB_[A-Z_]+", target.id)
    }
    assert named == {verb.kind for verb in VERBS} | set(CARRIERS)
    assert set(task_kinds(Tools(None, None))) == named  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("PURGE", {"kind": "OF_A_LATER_VERSION"}),
        ("PURGE", {}),
        ("OF_A_LATER_VERSION", {}),
        ("PLAN", {"plan": "OF_A_LATER_VERSION"}),
        ("PLAN", {"plan": "LOG_SWITCH"}),
        ("BATCH", {"kind": "EXTINCTION", "params": {}}),
    ],
)
def test_what_is_in_no_row_is_nobodys(kind: str, params: dict[str, Any]) -> None:
    with pytest.raises(JobKindUnknown):
        scopes_of(kind, params)


def test_what_removes_is_planned_and_bounded() -> None:
    for verb in VERBS:
        assert (verb.plan is not None) == (verb.limits is Limits.BEFORE_THE_FIRST_DELETE), verb.name
        assert verb.batch is None or SUBMITTERS[verb.kind] == (verb.scope, verb.batch)


def test_preparations_make_the_parameters_of_their_row() -> None:
    for verb in VERBS:
        if verb.kind == "PURGE":  # the route of all purges looks by the same value
            assert {PURGINGS[act].look for act in verb.acts} == {verb.prepare}, verb.name
        elif verb.prepare is not None:
            made = str(get_type_hints(verb.prepare)["return"])
            assert verb.params.__name__ in made, verb.name


def test_acts_of_a_purge_are_told_apart_by_their_parameters() -> None:
    assert verb_of("PURGE", {"kind": "CHANGELOG"}) is BY_NAME["PURGE CHANGELOG"]
    assert verb_of("PURGE", {"kind": "DATA_GAP"}) is TABLES
    assert verb_of("PURGE", {"kind": "TRIGGER_HIST"}) is TABLES


@pytest.mark.parametrize("kind", KINDS)
def test_examples_of_stores_are_taken(kind: Any) -> None:
    assert StoreCreate.model_validate(dict(KINDS[kind].rules.example)).kind == kind


def test_requests_of_the_table_are_the_bodies_that_routes_take() -> None:
    taken = {
        parameter.annotation
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for parameter in inspect.signature(route.endpoint).parameters.values()
    }
    taken |= {get_args(each)[0] for each in taken if get_args(each)}
    assert [verb.name for verb in VERBS if verb.request not in taken] == []
