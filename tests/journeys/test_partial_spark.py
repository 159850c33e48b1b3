"""Changes of a part of the keys that Spark's workers have read: what arrives is what one reader brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.journeys.replicas import Pair, agree, register
from tests.journeys.service import serving
from tests.journeys.test_partial_killed import PART

pytestmark = [pytest.mark.journey, pytest.mark.long]
SETTINGS = {"LETHE_SPARK__ENABLED": "true", "LETHE_SPARK__WINDOW_MIN_CHANGES": "1000000"}
HELD, OTHERS = 7_000, 5_000


def test_a_part_comes_over_spark_as_it_comes_inline(tmp_path: Path) -> None:
    with serving(tmp_path / "spark", SETTINGS) as service:
        sites = [register(service, f"r{rid}", f"sqlite:///{tmp_path}/r{rid}.db", rid) for rid in (1, 2, 3)]
        supplier, *leaves = sites
        supplier.write(10, prefix="eu-")
        pairs = [agree(supplier, leaf, batch_rows=700, keys=PART) for leaf in leaves]
        for pair in pairs:
            assert pair.wait(pair.begin(mode="TOTAL"))["state"] == "SUCCEEDED"
        for value in (b"first", b"second"):
            supplier.write(HELD, prefix="eu-", value=value)
            supplier.write(OTHERS, prefix="us-", value=value)
        for pair, engine in zip(pairs, ("SPARK", "INLINE"), strict=True):
            job = pair.wait(pair.begin(engine=engine))
            assert (job["state"], job["engine"]) == ("SUCCEEDED", engine), job
            assert pair.session(job)["outcome"] == "UP_TO_DATE"
        over_spark, inline = leaves
        found = [_audit(pair, engine) for pair in pairs for engine in ("SPARK", "INLINE")]
        assert all(each["agrees"] and each["complete"] for each in found)
        assert all(each == found[0] for each in found)
        held = [row for row in supplier.entries() if bytes(row[1]).startswith(b"eu-")]
        assert over_spark.entries() == inline.entries() == held
        assert len(held) == HELD
        assert over_spark.changelog() == inline.changelog()
        assert sum(row[3] == "WITHHELD" for row in inline.changelog()) == 2 * OTHERS
        assert over_spark.ruv() == inline.ruv() == supplier.ruv()
        assert list((service.data_dir / "_spool").iterdir()) == []


def _audit(pair: Pair, engine: str) -> dict[str, Any]:
    """The result of an audit that the engine has read, whose use of Spark is told."""
    supplier, body = pair.supplier, {"agreement_id": pair.agreement_id, "engine": engine}
    job = pair.wait(str(supplier.done("POST", f"{supplier.path}/audits", 202, json=body)["id"]))
    assert (job["state"], job["engine"]) == ("SUCCEEDED", engine), job
    assert (job["spark"] is not None) == (engine == "SPARK")
    result: dict[str, Any] = job["result"]
    return result
