"""Parameters of a store's page: Lethe's switches beside those of the target that have the same names."""

from __future__ import annotations

import re

import httpx

from tests.http.shop import Shop

NAME = "start.purge.outgoing.job"


def row_of(page: str, name: str) -> str:
    """The row of a parameter as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    [row] = [each for each in rows if re.search(rf">{re.escape(name)}<", each)]
    return " ".join(re.sub(r"<[^>]+>", " ", row).split())


def test_the_page_tells_lethes_switch_from_the_targets(operator: httpx.Client, shop: Shop) -> None:
    """It said `no`, `default` where SymmetricDS's own switch of that name was on by default."""
    assert shop.http.post(f"/v1/stores/{shop.id}:check").status_code == 200
    page = operator.get(f"/console/stores/{shop.id}").text
    row = row_of(page, NAME)
    assert "Lethe itself submits the purges OUTGOING and DATA_GAP" in row
    assert row.endswith("off Lethe&#39;s default")
    before = page.partition(f">{NAME}<")[0].rpartition('id="parameters"')[2]
    assert "not set in sym_parameter, so on by default" in before
    assert "OWN_PURGE" in before


def test_a_switch_that_is_set_says_by_whom(operator: httpx.Client, shop: Shop) -> None:
    headers = {"If-Match": shop.etag()}
    url = f"/v1/stores/{shop.id}/parameters/{NAME}"
    assert shop.http.put(url, json={"value": True}, headers=headers).status_code == 200
    assert row_of(operator.get(f"/console/stores/{shop.id}").text, NAME).endswith("on this store")
