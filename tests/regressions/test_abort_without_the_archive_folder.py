"""The runner that archived died for good, and its disk with it. The order to abort came to another one,
whose proof of silence wrote the archive's manifest too: there was no such folder, the proof counted as
failed, and the job was ABORTING for ever although nothing was being written anywhere. The same on a full
disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from app.jobs.service import request_abort, request_pause
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges


def test_job_is_aborted_although_its_manifest_cannot_be_written(purges: Purges, tmp_path: Path) -> None:
    bench = purges.bench
    purges.store(purges.fill(Place(f"sqlite:///{tmp_path}/sym.db")))
    job_id = purges.submit(
        cutoff=OLD_CUTOFF, archive={"format": "PARQUET"}, max_rows_in_tx=10, throttle={"rows_per_s": 40}
    )
    with bench.running(purges.kinds):
        while not list(tmp_path.glob("archive/shop/*/*.parquet")):
            pass
        bench.do(request_pause, job_id)
        bench.until(job_id, "PAUSED")
    shutil.rmtree(tmp_path / "archive")
    bench.set(job_id, state="ABORTING", unproven=True)  # as an abort while another runner held it
    with bench.running(purges.kinds):
        job = bench.until(job_id, "ABORTED")
    assert job.result is not None
    assert job.result["counts"] == "EXACT"
    assert job.result["archive"]["error"]["code"] == "ARCHIVE_FAILED"
    assert [event.data["code"] for event in bench.events(job_id) if event.type == "warning"] == [
        "ARCHIVE_FAILED"
    ]
    assert bench.do(request_abort, job_id).state == "ABORTED"
