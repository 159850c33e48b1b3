"""Each field of a patch, null or of another kind, on a store of each kind: a problem, never a fault."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.auth.service import ensure_admin_token
from app.db import Database
from app.main import create_app
from app.settings import Settings
from app.stores.models import StorePatch
from tests.app.fake_clock import FakeClock

STORES: dict[str, dict[str, Any]] = {
    "SYMMETRICDS": {"url": "sqlite:////{}/a.db"},
    "REPLICA": {"url": "sqlite:////{}/b.db", "rid": 1},
    "SQL": {"url": "sqlite:////{}/c.db"},
    "SLONY": {"url": "postgresql://nobody@127.0.0.1:1/none", "cluster": "lab"},
    "JE": {"path": "{}/env"},
}
VALUES: dict[str, list[Any]] = {
    "url": [None, "sqlite:////{}/d.db", "postgresql://nobody@127.0.0.1:1/none"],
    "path": [None, "{}/env"],
    "cluster": [None, "0", "lab"],
    "schema": [None, "other"],
}


def _filled(value: Any, place: Path) -> Any:
    return (
        value.replace("{}", str(place).strip("/") if "://" in value else str(place))
        if isinstance(value, str)
        else value
    )


@pytest.mark.parametrize("kind", STORES)
def test_a_patch_that_does_not_fit_is_a_problem(
    kind: str, settings: Settings, sqlite_database: Database, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "env").mkdir()
    app = create_app(settings, sqlite_database, clock=clock)
    with sqlite_database.transaction() as db:
        token = ensure_admin_token(db, settings.data_dir, now=clock.now()).read_text().strip()
    fields = {field.alias or name for name, field in StorePatch.model_fields.items()}

    async def ask() -> dict[str, int]:
        seen = {}
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}", "If-Match": "*"}
        async with httpx.AsyncClient(transport=transport, base_url="http://lethe", headers=headers) as client:
            made = {name: _filled(value, tmp_path) for name, value in STORES[kind].items()}
            answer = await client.post("/v1/stores", json={"id": "one", "kind": kind, **made})
            assert answer.status_code == 201, answer.text
            for name in fields:
                for value in VALUES.get(name, [None]):
                    body = {name: _filled(value, tmp_path)}
                    seen[repr(body)] = (await client.patch("/v1/stores/one", json=body)).status_code
        return seen

    seen = asyncio.run(ask())
    assert len(seen) > len(fields)
    assert {body: status for body, status in seen.items() if status not in (200, 409, 422)} == {}
    assert 422 in seen.values()
