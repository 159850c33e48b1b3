"""Two tenants over every operation: what one has, no token of the other reads, changes, or hears of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.auth.scopes import Scope
from tests.app.auth.tenants import Call, Operation, World, all_operations, call_of

OPERATIONS = all_operations()
NAMED = [each for each in OPERATIONS if each.is_named]
BODY_NAMES = {"create_store", "create_token", "create_batch", "create_schedule", "create_webhook"}
"""Nothing of a tenant in their paths, but in their bodies."""
SHARED = {
    "metrics",
    "get_openapi",
    "decide_replication",
    "list_archives",
    "list_audit_events",
    "list_jobs",
    "list_parameters",
    "get_parameter",
    "list_signing_keys",
    "get_signing_key",
    "get_cluster_health",
    "get_ds389_suffix_health",
    "get_ds389_topology",
    "get_topology",
    "find_ds389_lost",
    "get_overview",
    "follow_events",
    "whoami",
    "list_schedules",
    "list_stores",
    "list_tokens",
    "list_webhooks",
    "list_windows",
    "get_window",
}
"""What everybody may ask, and hears of the own stores only."""


@pytest.fixture(scope="module")
def world(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = World(sqlite_template, tmp_path_factory.mktemp("tenants"))
    yield found
    found.close()


def _of(operation: Operation) -> str:
    return operation.id


def _names_heard(world: World, call: Call, answer: httpx.Response) -> list[str]:
    """What an answer tells of the other tenant that the client has not said itself."""
    return [name for name in world.theirs.names if name in answer.text and name not in call.text]


def test_every_operation_is_of_a_known_reach() -> None:
    """A new operation whose path names nothing must be told of here, or want an unlimited token."""
    rest = {each.id for each in OPERATIONS if not each.is_named and not each.is_unlimited}
    assert rest == SHARED | BODY_NAMES


@pytest.mark.parametrize("operation", OPERATIONS, ids=_of)
def test_no_token_of_another_tenant_is_let_in(world: World, operation: Operation) -> None:
    call = call_of(operation, world.theirs)
    asked = world.ask_all(call, list(world.strangers.values()))
    answers = dict(zip(world.strangers, asked, strict=True))
    heard = {who: names for who, answer in answers.items() if (names := _names_heard(world, call, answer))}
    assert heard == {}
    if operation.id not in SHARED:
        let_in = {who: answer.status_code for who, answer in answers.items() if answer.status_code < 300}
        assert let_in == {}
        assert {answer.status_code for answer in answers.values()} == {403}


REACHED = {
    "LOG_ENTRY_NOT_FOUND",
    "SUPPLIER_NOT_FOUND",
    "SESSION_NOT_FOUND",
    "BATCH_UNREADABLE",
    "SIGNING_KEY_NOT_FOUND",
    "WINDOW_NOT_FOUND",
}
"""The store was reached, and its target asked."""
CHOSEN = {"acquire_replica"}
"""Its session's name is the supplier's choice: in another replica it is another session."""


@pytest.mark.parametrize("operation", [each for each in NAMED if "store_id" in each.path], ids=_of)
def test_own_store_is_no_way_to_things_of_another_tenant(world: World, operation: Operation) -> None:
    """The path names a store of the caller, its other parts and the body name things of the other tenant."""
    call = call_of(operation, world.theirs, stores_of=world.mine)
    own = call_of(operation, world.mine)
    answer = world.ask(call, world.strangers["role admin"])
    assert _names_heard(world, call, answer) == []
    if call != own and operation.id not in CHOSEN:
        assert answer.status_code in (403, 404, 409, 410, 422), answer.text
    world.restore()


@pytest.mark.parametrize("operation", OPERATIONS, ids=_of)
def test_the_same_call_reaches_what_its_owner_has(world: World, operation: Operation) -> None:
    """Else a refusal above would prove nothing: each call is well-formed, and names what is there."""
    answer = world.ask(call_of(operation, world.theirs), world.admin)
    if answer.status_code in (400, 401, 403, 404, 405, 415, 422):
        assert answer.json()["code"] in REACHED, answer.text
    world.restore()


def test_ruv_of_a_replica_is_read_by_peers_and_readers_of_data_of_the_own_stores_only(world: World) -> None:
    """Whoever reads the changes reads how far they go; others learn neither."""
    [operation] = [each for each in OPERATIONS if each.id == "get_replica_ruv"]
    call = call_of(operation, world.theirs)
    for scope in (Scope.DATA_READ, Scope.REPLICATION_PEER):
        assert world.ask(call, world.token([scope], stores=world.theirs.stores)).status_code == 200
        stranger = world.ask(call, world.token([scope], stores=world.mine.stores))
        assert (stranger.status_code, stranger.json()["code"]) == (403, "STORE_FORBIDDEN")
        assert _names_heard(world, call, stranger) == []
    rest = [each for each in Scope if each not in (Scope.ADMIN, Scope.DATA_READ, Scope.REPLICATION_PEER)]
    without = world.ask(call, world.token(rest))
    assert (without.status_code, without.json()["code"]) == (403, "SCOPE_MISSING")
    assert _names_heard(world, call, without) == []
