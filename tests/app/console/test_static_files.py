"""Files of others are those that their table names, and whatever is served may be kept."""

from __future__ import annotations

import hashlib
import re

import pytest

from app.console.static_files import FOLDER, get_static, static_url
from app.errors import NotFound

ROW = re.compile(r"^\| (\S+\.js) \| \S+ \| (\S+) \| 0BSD \((\S+)\) \| ([0-9a-f]{64}) \|$", re.MULTILINE)


def test_files_of_others_have_the_hashes_of_their_table() -> None:
    named = ROW.findall((FOLDER / "README.md").read_text())
    for name, version, licence, digest in named:
        assert version in name
        assert "Permission to use, copy, modify" in (FOLDER / licence).read_text()
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    assert {name for name, *_ in named} == {path.name for path in FOLDER.glob("*.min.js")}


def test_address_has_the_hash_and_others_are_not_there() -> None:
    url = static_url("console.css")
    digest = hashlib.sha256((FOLDER / "console.css").read_bytes()).hexdigest()[:16]
    assert url == f"/console/static/console.{digest}.css"
    answer = get_static(url.rpartition("/")[2])
    assert bytes(answer.body) == (FOLDER / "console.css").read_bytes()
    assert "immutable" in answer.headers["cache-control"]
    for name in ("console.css", "README.md", "../rendering.py"):
        with pytest.raises(NotFound):
            get_static(name)
