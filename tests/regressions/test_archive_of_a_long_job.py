"""A purge with an archive was paused for longer than archives are kept. Housekeeping removed the folder of
the job that was still to write into it: the archived rows were lost, and the job died of a row that was
gone. And the archive of a purge that took that long was removed right after its end, for its retention had
been counted from the beginning.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from app.jobs.service import request_pause, request_resume
from app.retention import remove_expired_archives
from tests.app.fake_clock import FakeClock
from tests.oracles.symmetricds import Place
from tests.regressions.purges import OLD_CUTOFF, Purges

THROTTLE = {"rows_per_s": 40}


def test_archive_stays_while_its_job_is_paused_and_its_retention_counts_from_the_end(
    purges: Purges, clock: FakeClock, tmp_path: Path
) -> None:
    bench = purges.bench
    purges.store(purges.fill(Place(f"sqlite:///{tmp_path}/sym.db")))
    job_id = purges.submit(
        cutoff=OLD_CUTOFF, archive={"format": "PARQUET"}, max_rows_in_tx=10, throttle=THROTTLE
    )
    with bench.running(purges.kinds):
        bench.until(job_id, "RUNNING")
        while not list(tmp_path.glob("archive/shop/*/*.parquet")):
            pass
        bench.do(request_pause, job_id)
        bench.until(job_id, "PAUSED")
    kept = {path.name for path in tmp_path.glob("archive/shop/*/*.parquet")}
    clock.advance(timedelta(days=400).total_seconds())
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == []
    assert {path.name for path in tmp_path.glob("archive/shop/*/*.parquet")} >= kept
    bench.set(job_id, throttle_requested=None)
    bench.do(request_resume, job_id)
    job = purges.run(job_id)
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    assert job.result["archive"]["rows"] == sum(job.result["removed"].values())
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == []
    clock.advance(timedelta(days=366).total_seconds())
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == [job_id]


def test_archive_that_a_job_reads_stays(purges: Purges, clock: FakeClock, tmp_path: Path) -> None:
    bench = purges.bench
    purges.store(purges.fill(Place(f"sqlite:///{tmp_path}/sym.db")))
    job_id = purges.submit(cutoff=OLD_CUTOFF, archive={"format": "PARQUET"})
    assert purges.run(job_id).state == "SUCCEEDED"
    reader = bench.submit("ARCHIVE_RESTORE")
    bench.set(reader, subject={"type": "archive", "id": job_id, "href": f"/v1/archives/{job_id}"})
    clock.advance(timedelta(days=400).total_seconds())
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == []
    bench.set(reader, state="ABORTED")
    assert remove_expired_archives(bench.database, bench.settings, instance_id="ins_a") == [job_id]
