"""What a token needs, for every operation, is what the OpenAPI document says: no less, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from app.auth.scopes import ROLES, Role, Scope
from app.handlers import task_kinds
from app.jobs.api import STARTING
from app.verbs.table import scopes_of
from tests.app.auth.tenants import Call, Operation, World, all_operations, call_of

OPERATIONS = all_operations()
LIMITED = [each for each in OPERATIONS if each.is_unlimited]
CONDITIONAL = [(each, scope) for each in OPERATIONS for scope, _ in each.conditions]

Variation = Callable[[World, Call], Call]


def _body(**fields: object) -> Variation:
    return lambda _, call: call.with_body(**fields)


def _at(suffix: str) -> Variation:
    return lambda _, call: call.at(call.path + suffix)


def _parameter(store: str, name: str) -> Variation:
    """Another parameter, of a store of its kind or of all."""

    def varied(_: World, call: Call) -> Call:
        path = call.path.replace("purge.retention.minutes", name).replace("-sym", f"-{store}")
        value = None if call.method == "DELETE" else {"value": SWITCHED[name]}
        return Call(call.method, path, value, None, call.headers)

    return varied


SWITCHED = {"start.purge.job": True, "je.erase.period": "P1D", "start.cleanup_thread": True}


def _job(verb: str, scope: str) -> Variation:
    def varied(world: World, call: Call) -> Call:
        kind, params = STARTED_BY[scope]
        state = "PAUSED" if verb == "resume" else "FAILED"
        job_id = world.job(kind, f"{world.theirs.name}-sym", params, state)
        return call.at(f"/v1/jobs/{job_id}:{verb}")

    return varied


_INTO = {"file": None, "schema": None, "live": False}
STARTED_BY: dict[str, tuple[str, dict[str, object]]] = {
    "purges:write": ("PURGE", {"kind": "OUTGOING"}),
    "erasure:write": ("ERASURE", {}),
    "extinctions:write": ("EXTINCTION", {}),
    "replication:write": ("AUDIT", {}),
    "events:write": ("EVENT_CLEANUP", {}),
    "events:wait": ("EVENT_WAIT", {}),
    "evidence:verify": ("ARCHIVE_VERIFY", {}),
    "data:read": ("SLONY_FEED", {"source": "tenant-b-node"}),
    "stores:write": ("ARCHIVE_RESTORE", {"into": _INTO | {"file": "/x"}}),
    "admin": ("ARCHIVE_RESTORE", {"into": _INTO | {"live": True}}),
}
"""A job that a token with the scope (and `purges:write`, for the last two) may have made."""
_STORE = {"kind": "SYMMETRICDS", "parameters": {"start.purge.job": True}}
_JE = {"kind": "JE", "path": "/nowhere", "url": None}
_NODE = {"kind": "SLONY", "cluster": "c", "url": "postgresql+psycopg://x@127.0.0.1:1/x"}


def _of(store: str, **fields: object) -> Variation:
    def varied(_: World, call: Call) -> Call:
        return Call(call.method, call.path.replace("-sym", f"-{store}"), dict(fields), None, call.headers)

    return varied


def _kept_for_backup(world: World, call: Call) -> Call:
    """The protection of a backup session, or a new one of that kind."""
    if call.method == "POST" and call.path.endswith("/protections"):
        return call.with_body(kind="BACKUP")
    backup = world.theirs.things["backup_id"]
    path = f"/v1/stores/{world.theirs.name}-je/protections?kind=BACKUP"
    [found] = world.ask(Call("GET", path), world.admin).json()["items"]
    assert backup
    return call.at(call.path.replace(world.theirs.things["protection_id"], found["id"]))


def _as_it_is(_: World, call: Call) -> Call:
    return call


def _schedule(verb: str, store: str, **fields: object) -> Variation:
    def varied(world: World, call: Call) -> Call:
        body = fields | ({"period": "P1D"} if verb == "ERASURE" else {})
        if verb == "SLONY_FEED":
            body |= {"source": f"{world.theirs.name}-node"}
        elif store == "replica":
            body |= {"agreement_id": world.theirs.things["agreement_id"]}
        return call.with_body(verb=verb, body=body, store=f"{world.theirs.name}-{store}", cron="0 3 * * *")

    return varied


def _resumed(verb: str, store: str, **fields: object) -> Variation:
    """A schedule of another verb."""

    def varied(world: World, call: Call) -> Call:
        written = _schedule(verb, store, **fields)(world, Call("POST", "/v1/schedules"))
        made = world.ask(written, world.admin)
        assert made.status_code == 201, made.text
        return call.at(f"/v1/schedules/{made.json()['id']}:resume")

    return varied


def _feeds(world: World, call: Call) -> Call:
    source, store = f"{world.theirs.name}-node", f"{world.theirs.name}-replica"
    return call.with_body(kind="SLONY_FEED", params={"source": source}, stores=[store])


_DISCARD = {"mode": "TOTAL", "discard_consumer_changes": True}
VARIATIONS: dict[tuple[str, str], Variation] = {
    ("restore_archive", "admin"): _body(into={"live": True}),
    ("restore_archive", "stores:write"): _body(into={"file": "/tmp/never-made.sqlite"}),
    ("create_batch", "purges:write"): _body(kind="PURGE"),
    ("create_batch", "events:write"): _body(kind="EVENT_CLEANUP", params={}),
    ("create_batch", "erasure:write"): _body(kind="ERASURE", params={}),
    ("create_batch", "replication:write"): _feeds,
    ("feed_replica", "data:read"): _as_it_is,
    ("create_schedule", "data:read"): _schedule("SLONY_FEED", "replica"),
    ("resume_schedule", "data:read"): _resumed("SLONY_FEED", "replica"),
    ("create_schedule", "purges:write"): _body(verb="PURGE"),
    ("create_schedule", "events:write"): _schedule("EVENT_CLEANUP", "node"),
    ("create_schedule", "erasure:write"): _schedule("ERASURE", "je"),
    ("create_schedule", "replication:write"): _schedule("AUDIT", "replica"),
    ("create_schedule", "evidence:verify"): _schedule("ERASURE_VERIFY", "je"),
    ("create_schedule", "admin"): _schedule(
        "REPLICATION_SESSION", "replica", mode="TOTAL", discard_consumer_changes=True
    ),
    ("resume_schedule", "replication:write"): _resumed("AUDIT", "replica"),
    ("resume_schedule", "evidence:verify"): _resumed("ARCHIVE_VERIFY", "sym"),
    ("resume_schedule", "admin"): _resumed(
        "REPLICATION_SESSION", "replica", mode="TOTAL", discard_consumer_changes=True
    ),
    ("resume_schedule", "purges:write"): _as_it_is,
    ("resume_schedule", "events:write"): _resumed("EVENT_CLEANUP", "node"),
    ("resume_schedule", "erasure:write"): _resumed("ERASURE", "je"),
    ("confirm_event", "admin"): _body(force=True),
    ("create_replication_session", "admin"): _body(mode="TOTAL", discard_consumer_changes=True),
    ("create_webhook", "admin"): _body(url="https://127.0.0.1/hook"),
    ("change_webhook", "admin"): _body(url="https://localhost:8443/hook"),
    ("remove_store", "admin"): _at("?forget_extinctions=true"),
    ("create_store", "purges:write"): _body(**_STORE),
    ("create_store", "erasure:write"): _body(**_JE, parameters={"je.erase.period": "P1D"}),
    ("create_store", "events:write"): _body(**_NODE, parameters={"start.cleanup_thread": True}),
    ("create_store", "admin"): _body(**_JE, mode="LIVE", backups="VIA_LETHE"),
    ("change_store", "purges:write"): _of("sym", parameters={"start.purge.job": True}),
    ("change_store", "erasure:write"): _of("je", parameters={"je.erase.period": "P1D"}),
    ("change_store", "events:write"): _of("node", parameters={"start.cleanup_thread": True}),
    ("change_store", "admin"): _of("je", accept_medium=True),
    **{(f"{verb}_job", scope): _job(verb, scope) for verb in ("retry", "resume") for scope in STARTED_BY},
    **{
        (f"{verb}_{which}parameter", scope): _parameter(store, name)
        for verb in ("set", "unset")
        for which, scope, store, name in (
            ("", "erasure:write", "je", "je.erase.period"),
            ("store_", "purges:write", "sym", "start.purge.job"),
            ("store_", "erasure:write", "je", "je.erase.period"),
            ("store_", "events:write", "node", "start.cleanup_thread"),
        )
    },
    **{
        (name, "backups:write"): _kept_for_backup
        for name in (
            "create_protection",
            "renew_protection",
            "release_protected_files",
            "end_protection",
        )
    },
}
"""What makes an operation need a scope besides; a condition that is not here fails."""


@pytest.fixture(scope="module")
def world(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = World(sqlite_template, tmp_path_factory.mktemp("permissions"))
    yield found
    found.close()


def _name(value: object) -> str:
    return value.id if isinstance(value, Operation) else str(value)


def _is_refused(answer: httpx.Response) -> bool:
    return answer.status_code == 403 and answer.json()["code"] != "TARGET_OF_OTHER_STORES"


@pytest.mark.parametrize("operation", OPERATIONS, ids=_name)
def test_the_stated_scope_is_enough_and_nothing_else_is(world: World, operation: Operation) -> None:
    call = call_of(operation, world.theirs)
    others = [scope for scope in Scope if scope != Scope.ADMIN and scope not in operation.scopes]
    refused = world.ask(call, world.token(others))
    if not operation.scopes:  # any token will do
        assert not _is_refused(refused), refused.text
        return
    assert (refused.status_code, refused.json()["code"]) == (403, "SCOPE_MISSING")
    for scope in operation.scopes:
        plain = [scope, *BASES.get(operation.id, ())]
        answer = world.ask(call, world.token(plain))
        assert not _is_refused(answer), answer.text
        world.restore()


BASES = {
    "create_batch": ("purges:write",),
    "create_schedule": ("purges:write",),
    "resume_schedule": ("purges:write",),
    "retry_job": ("purges:write",),
    "resume_job": ("purges:write",),
    "create_token": ("admin",),
    "feed_replica": ("data:read",),
}
"""Where every request meets some condition."""


@pytest.mark.parametrize("operation", LIMITED, ids=_name)
def test_limited_token_does_nothing_that_is_for_all(world: World, operation: Operation) -> None:
    limited = world.token([*operation.scopes], stores=world.theirs.stores)
    answer = world.ask(call_of(operation, world.theirs), limited)
    assert (answer.status_code, answer.json()["code"]) == (403, "TOKEN_LIMITED_TO_STORES")


@pytest.mark.parametrize(("operation", "scope"), CONDITIONAL, ids=_name)
def test_scope_that_some_requests_need_is_asked_for(world: World, operation: Operation, scope: str) -> None:
    call = VARIATIONS[operation.id, scope](world, call_of(operation, world.theirs))
    without = [each for each in Scope if each not in (Scope.ADMIN, scope)]
    answer = world.ask(call, world.token(without))
    assert (answer.status_code, answer.json()["code"]) == (403, "SCOPE_MISSING"), answer.text
    assert answer.json()["scope"] == scope
    more = ["purges:write"] if operation.id in ("retry_job", "resume_job") else []
    more += ["replication:write"] if scope == "data:read" else []  # a feed needs both
    answer = world.ask(call, world.token([*operation.scopes, scope, *more]))
    assert not _is_refused(answer), answer.text
    world.restore()


def test_conditions_are_those_of_the_document() -> None:
    assert set(VARIATIONS) == {(operation.id, scope) for operation, scope in CONDITIONAL}


def test_every_kind_of_job_says_what_starting_it_needs() -> None:
    """A kind that a runner runs and nobody can start again, or that anybody can, would be a gap."""
    params: dict[str, dict[str, object]] = {
        "PURGE": {"kind": "OUTGOING"},
        "PLAN": {"kind": "CHANGELOG"},
        "BATCH": {"kind": "PURGE", "params": {"kind": "OUTGOING"}},
        "ARCHIVE_RESTORE": {"into": _INTO | {"schema": "x"}},
        "REPLICATION_SESSION": {"discard_consumer_changes": False},
    }
    needed = {kind: scopes_of(kind, params.get(kind, {})) for kind in task_kinds(None, None)}  # type: ignore[arg-type]
    assert all(needed.values())
    assert frozenset().union(*needed.values()) <= STARTING


def test_viewer_reads_and_nothing_else() -> None:
    """A viewer once submitted jobs that wait for a month, and read what replicas hold."""
    held = ROLES[Role.VIEWER]
    assert {scope.rpartition(":")[2] for scope in held} == {"read"}
    assert Scope.DATA_READ not in held
    changing = {
        each.id
        for each in OPERATIONS
        if each.method != "GET" and not held.isdisjoint(map(Scope, each.scopes))
    }
    assert changing == {
        "check_store",
        "compare_replicas",
        "decide_replication",
        "evaluate_precondition",
        "find_ds389_lost",
        "query_extinction_status",
    }
