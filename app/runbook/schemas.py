"""Codes in OpenAPI: a list that later versions may add to, with what each means."""

from typing import Any

from app.runbook.entry import Seen
from app.runbook.registry import RUNBOOK


def codes_of(*places: Seen) -> dict[str, Any]:
    """What a field says that has the codes of these places: names, and their meanings in the same order."""
    found = [RUNBOOK[code] for code in sorted(RUNBOOK) if set(places) & set(RUNBOOK[code].seen)]
    return {
        "x-extensible-enum": [entry.code for entry in found],
        "x-enum-descriptions": [f"{entry.meaning} {entry.next}" for entry in found],
    }
