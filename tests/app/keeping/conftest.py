"""Metadata with something in it, in a data directory as a service leaves it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.auth.actions import Action
from app.auth.rows import AuditEvent
from app.auth.service import ensure_admin_token
from app.db import Database
from app.erase.certificates.signing import signer_of
from app.jobs.running.instances import InstanceLock
from app.keeping.backup import back_up
from app.keeping.folder import DIGEST, MANIFEST, _rendered
from app.keeping.models import Manifest
from app.settings import Settings

AWKWARD = ["plain", "a\nb\\n\tc\r\\.", "\\N", "", "\u00fc\u4e16\U0001f600 'quoted\" $1", "\\.\n"]


@pytest.fixture
def kept_settings(database: Database, tmp_path: Path) -> Settings:
    """Of a service whose data directory has all that a backup keeps."""
    data_dir = tmp_path
    with database.transaction() as db:
        now = database.now(db)
        ensure_admin_token(db, data_dir, now=now)
        for number, text in enumerate(AWKWARD):
            db.add(
                AuditEvent(
                    id=f"aud_{number}",
                    at=now,
                    actor="somebody",
                    action=Action.STORE_RECOVER,
                    subject_type="store",
                    subject_id=str(number),
                    store=None,
                    detail={"text": text, "number": 2**53 + 1, "none": None, "half": 0.1},
                )
            )
    InstanceLock(data_dir).release()
    signer_of(data_dir)
    url = None if database.is_sqlite else database.url.render_as_string(hide_password=False)
    return Settings(data_dir=data_dir, metadata_url=url)


@pytest.fixture
def folder(kept_settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of it."""
    place = tmp_path_factory.mktemp("kept") / "backup"
    back_up(kept_settings, place, lambda _text: None)
    return place


Forge = Callable[[dict[str, Any]], None]


@pytest.fixture
def forge(folder: Path) -> Forge:
    """Change the manifest of the backup, with a digest that fits again where it can be read at all."""

    def change(changes: dict[str, Any]) -> None:
        body = json.loads((folder / MANIFEST).read_text()) | changes
        body.pop(DIGEST)
        try:
            (folder / MANIFEST).write_bytes(_rendered(Manifest.model_validate_json(json.dumps(body))))
        except ValueError:
            (folder / MANIFEST).write_text(json.dumps({**body, DIGEST: "0" * 64}, indent=2) + "\n")

    return change


def rows_of(database: Database) -> dict[str, list[str]]:
    """Every row of every table, in an order of their own."""
    with database.engine.connect() as connection:
        names = sorted(sa.inspect(connection).get_table_names())
        return {
            name: sorted(repr(row) for row in connection.exec_driver_sql(f'select * from "{name}"'))
            for name in names
        }
