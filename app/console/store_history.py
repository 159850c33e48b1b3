"""The last runs of each verb of a store: how they ended, how long they took, and how much they did."""

import asyncio
from datetime import datetime
from typing import Any, Final

from app.console.calls import Api
from app.console.words import instant
from app.stores.models import StoreKind
from app.verbs.table import VERBS

RUNS: Final = 5


async def history_of(api: Api, store: Any, look: list[Any], *, now: datetime) -> list[dict[str, Any]]:
    """Each verb that has run or comes, with its newest runs.

    Args:
        look: the store in the overview, or nothing: its verbs tell the last success and what comes next.
    """
    told = {verb["verb"]: verb for each in look for verb in each["verbs"]}
    # A plan is no verb, though its last success is told.
    kinds = {verb.kind for verb in VERBS if StoreKind(store["kind"]) in verb.stores or verb.kind in told}
    found = await asyncio.gather(*(_runs(api, store["id"], kind, now=now) for kind in sorted(kinds)))
    return [
        {
            "verb": kind,
            "last_success_at": told.get(kind, {}).get("last_success_at"),
            "next_due_at": told.get(kind, {}).get("next_due_at"),
            "runs": runs,
        }
        for kind, runs in zip(sorted(kinds), found, strict=True)
        if runs or kind in told
    ]


async def _runs(api: Api, store: str, kind: str, *, now: datetime) -> list[dict[str, Any]]:
    found = await api.find("jobs", store=store, kind=kind, view="summary", page_size=RUNS)
    return [job | {"took_s": _took_s(job, now)} for job in (found or {"items": []})["items"]]


def _took_s(job: Any, now: datetime) -> float | None:
    """From its first start to its end, or until now."""
    if job["started_at"] is None:
        return None
    ended = now if job["finished_at"] is None else instant(job["finished_at"])
    return max(0.0, (ended - instant(job["started_at"])).total_seconds())
