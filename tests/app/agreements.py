"""Agreements as rows of the metadata."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from app.replication.rows import Agreement


def agreement_of(store: str, at: datetime, **fields: Any) -> Agreement:
    """One of a store, whose consumer nobody can reach.

    Args:
        at: when it was made.
        fields: in the place of what it has otherwise.
    """
    usual: dict[str, Any] = {
        "id": f"agr_{store}",
        "store": store,
        "consumer_url": "http://127.0.0.1:9",
        "consumer_store": "there",
        "consumer_token": "secret:none",
        "strategy": "WINDOW",
        "batch_rows": 100,
        "batch_bytes": 100_000,
        "in_flight": 1,
        "created_at": at,
        "updated_at": at,
    }
    return Agreement(**usual | fields)
