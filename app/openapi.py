"""`python -m app.openapi`: the canonical OpenAPI document on standard output."""

import json
import sys

from app.db import Database
from app.description import describe
from app.main import create_app
from app.settings import Settings


def render() -> str:
    """The document as committed: sorted, indented, one newline at the end."""
    app = create_app(Settings(), Database("sqlite://"))
    return json.dumps(describe(app), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
