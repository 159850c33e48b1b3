"""The README of the library names every group that a client has."""

import re
from pathlib import Path

from lethe_client import Lethe

README = Path(__file__).parents[2] / "client" / "README.md"


def test_every_group_is_named() -> None:
    found = re.search(r"- Groups: `([^`]*)`", README.read_text())
    assert found is not None
    with Lethe("http://127.0.0.1:1", "x") as client:
        groups = {
            name for name, value in vars(client).items() if not name.startswith("_") and value is not None
        }
    assert set(found.group(1).split()) == groups
