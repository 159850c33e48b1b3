"""A fleet that fills every page: a shop, an environment with a backup and a protection, schedules, a window.

Its texts are hostile: a script, and four thousand characters without a space where the API takes so many.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.http.environments import EnvironmentStore, make_environment_store
from tests.http.shop import Shop, accepted, wait_for
from tests.je_data import unpack

SCRIPT: Final = "<script>document.title = 'taken'</script>\"'><img src=x onerror=\"document.title='taken'\">"
LONG: Final = "W" * 4_000


@dataclass(frozen=True)
class Fleet:
    """The names of what is there, for addresses."""

    shop: Shop
    environment: EnvironmentStore
    names: dict[str, str]


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def make_fleet(http: httpx.Client, roots: Path, shop: Shop, *, hostile: bool = True) -> Fleet:
    """Fill a service.

    Args:
        hostile: texts are; else they are those of a day's work, for pictures.
    """
    text = SCRIPT if hostile else "nightly"
    environment = make_environment_store(http, roots, unpack("closed", roots / f"closed-{shop.id}"))
    backup = environment.begin(label=text[:200], tool="restic", lease="PT10M")
    held = {"kind": "SCAN", "name": text[:100], "files": environment.names[:1], "lease": "PT10M"}
    protection = _made(environment.post("protections", held))
    body = {"kind": "OUTGOING", "retention_minutes": 7200, "reason": (text + LONG)[:500] if hostile else text}
    schedule = _made(
        http.post(
            "/v1/schedules",
            json={"name": text[:100], "verb": "PURGE", "body": body, "cron": "0 3 * * *", "store": shop.id},
        )
    )
    window = _made(
        http.post(
            "/v1/windows",
            json={
                "name": text[:100],
                "kind": "DENY",
                "cron": "0 8 1 1 *",
                "duration": "PT1H",
                "labels": {"a": (text + LONG)[:100] if hostile else "b"},
            },
        )
    )
    plan = _made(shop.plan())["plan_id"]
    reason = (text + LONG)[:500] if hostile else text
    job = accepted(shop.purge(reason=reason, archive={"format": "PARQUET"}))
    assert wait_for(http, job)["state"] == "SUCCEEDED"
    names = {"store": shop.id, "environment": environment.id, "job": job, "plan": plan}
    named = {"backup": backup, "protection": protection, "schedule": schedule, "window": window}
    return Fleet(shop, environment, names | {name: each["id"] for name, each in named.items()})
