"""Revision 0011: tokens keep what their other scopes make them need, and stores their targets."""

import json

import pytest
import sqlalchemy as sa

from app.db import Database
from migrations.upgrade import upgrade
from tests.migrations.steps import step_down, step_up

TOKEN = (
    "insert into tokens (id, name, scopes, secret_sha256, created_at)"
    " values (:name, :name, :scopes, :name, '2026-01-01')"
)
STORE = (
    "insert into stores (id, kind, url, table_prefix, time_zone, labels, runs_on, parameters, limits,"
    " version, is_suspended, target_parameters, created_at, updated_at, accept_medium, delete_reserved_files,"
    " erase_expired, node_grace, backup_grace, target_identity) values ('shop', 'SYMMETRICDS',"
    " 'sqlite:////x', 'sym_', 'UTC', '{}', '[]', '{}', '{}', 1, false, '{}', '2026-01-01', '2026-01-01',"
    " false, false, false, 600, 86400, 'sqlite:1:2')"
)
CLAIM = (
    "insert into job_claims (target_identity, resource, job_id, since)"
    " values ('postgresql:127.0.0.1:5432:5:public', 'x', 'job_1', '2026-01-01')"
)
JOB = (
    "insert into jobs (id, kind, state, requested_by, engine, params, created_at, updated_at, attempt,"
    " crash_count, retries, runs_on, job_class, runs_on_key, version, event_seq, fencing_token, unproven,"
    " waiting_on, active_s) values ('job_1', 'PURGE', 'QUEUED', 'ann', 'INLINE', '{}', '2026-01-01',"
    " '2026-01-01', 0, 0, 0, '[]', 'BULK', '', 1, 0, 0, false, '[]', 0)"
)
READING = ["jobs:read", "stores:read"]
TOKENS = {
    "viewer": ([*READING, "audit:read"], []),
    "reader of stores": (["stores:read"], []),
    "controller": (["jobs:control", "jobs:read"], []),
    "backup": ([*READING, "backups:write"], []),
    "peer": (["replication:peer"], []),
    "writer": (["changes:write", "stores:read"], ["data:read"]),
    "blind writer": (["changes:write"], []),
    "supplier": ([*READING, "replication:write"], ["data:read"]),
    "purger": ([*READING, "purges:write"], ["evidence:verify"]),
    "eraser": (["jobs:read", "erasure:write"], ["evidence:verify"]),
    "waiter": (["jobs:read", "events:write"], ["events:wait"]),
    "admin": (["admin"], []),
}
"""What a token had, and what it gets."""


@pytest.fixture
def former(empty_database: Database) -> Database:
    """A metadata database before 0011."""
    database = empty_database
    step_up(database, "0009")
    return database


def _scopes(database: Database) -> dict[str, list[str]]:
    with database.reading() as db:
        rows = db.execute(sa.text("select id, scopes from tokens")).all()
    return {name: json.loads(found) if isinstance(found, str) else found for name, found in rows}


def test_tokens_keep_what_they_legitimately_had_and_stores_their_targets(former: Database) -> None:
    with former.transaction() as db:
        for name, (scopes, _) in TOKENS.items():
            db.execute(sa.text(TOKEN), {"name": name, "scopes": json.dumps(scopes)})
        for row in (STORE, JOB, CLAIM):
            db.execute(sa.text(row))
    upgrade(former)
    assert {name: set(scopes) for name, scopes in _scopes(former).items()} == {
        name: {*scopes, *more} for name, (scopes, more) in TOKENS.items()
    }
    with former.reading() as db:
        query = "select target_identity, target_limit, target_proof, version from stores"
        assert db.execute(sa.text(query)).all() == [("sqlite:1:2", None, None, 1)]
        assert db.execute(sa.text("select job_id from job_claims")).all() == [("job_1",)]
    step_down(former, "0009")
    assert {name: set(scopes) for name, scopes in _scopes(former).items()} == {
        name: set(scopes) for name, (scopes, _) in TOKENS.items()
    }
