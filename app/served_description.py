"""The description of the API as it is served.

The one that the repository keeps and the wheel brings is taken: to make it anew takes seconds of processor
time, in which every other request of the process waits twice as long. `make check` proves that it is what the
code describes.
"""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI

KEPT = Path(__file__).resolve().parents[1] / "openapi" / "openapi.json"
"""Beside `app`, in a checkout as in a wheel."""


@lru_cache(maxsize=1)
def rendered(app: FastAPI) -> tuple[bytes, str]:
    """The description of a service as JSON, and its version."""
    body = json.dumps(described(app), ensure_ascii=False, separators=(",", ":")).encode()
    return body, hashlib.sha256(body).hexdigest()[:32]


def described(app: FastAPI) -> dict[str, Any]:
    """The description that is kept; made anew where none is."""
    if KEPT.is_file():
        kept: dict[str, Any] = json.loads(KEPT.read_bytes())
        return kept
    # With all examples and texts: a process that starts does without.
    from app.description import describe

    return describe(app)
