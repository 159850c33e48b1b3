"""Extinctions of a JE environment on the page of its store: databases by the names that they have there."""

from __future__ import annotations

import html
import re
from pathlib import Path

import httpx

from tests.http.test_je_extinctions import discarded, registered, written


def test_extinctions_of_an_environment_are_shown_with_the_names_of_their_databases(
    operator: httpx.Client, http: httpx.Client, roots: Path, tmp_path: Path
) -> None:
    # The names were read as base64: the part was 500, or named a database that is not there.
    store = registered(http, roots, written(tmp_path / "je"))
    discarded(store)
    page = operator.get(f"/console/stores/{store.id}")
    assert page.status_code == 200
    urls = [html.unescape(each) for each in re.findall(r'hx-get="([^"]+/parts/[^"]+)"', page.text)]
    shown = {url.rpartition("/")[2]: operator.get(url) for url in urls}
    assert {answer.status_code for answer in shown.values()} == {200}
    [part] = [answer.text for name, answer in shown.items() if "extinctions" in name]
    assert "users of 2024" in part
    assert ">users<" in part
    assert operator.get(f"/console/stores/{store.id}/parts/extinctions").status_code == 200
