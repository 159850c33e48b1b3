"""A target was so slow (triggers on the tables, a cold cache, rows of megabytes) that no unit of the first
size ended within the statement timeout. The unit was tried again at the same size, thirty times nine times
thirty seconds with its batches locked, and then the job failed: every purge of that store, for ever.
"""

from __future__ import annotations

from app.settings import Settings
from tests.oracles.symmetricds import Place, session, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges

SLEEPY = """
    create function slow() returns trigger language plpgsql as
    $$ begin perform pg_sleep(0.01); return old; end $$;
"""


def test_unit_is_divided_until_it_ends_within_the_timeout(
    purges: Purges, settings: Settings, postgresql_url: str
) -> None:
    place = purges.fill(Place(postgresql_url), rows=300)
    twin = snapshot(place)
    with session(place) as target:
        target.run(SLEEPY)
        target.run("create trigger slow before delete on sym_data for each row execute function slow()")
    purges.store(place)
    purges.bench.settings = settings.model_copy(
        update={"target_statement_timeout_ms": 1_000, "purge_unit_retries_max": 8, "job_retries_max": 0}
    )
    job = purges.run(purges.submit(cutoff=OLD_CUTOFF))
    assert (job.state, job.error) == ("SUCCEEDED", None)
    assert job.result is not None
    gone = {table: len(twin[table]) - len(rows) for table, rows in snapshot(place).items()}
    assert job.result["removed"]["data"] == gone["data"] > 100
    with session(place) as target:
        units = target.run("select count(*), sum(rows_affected) from lethe.unit_ledger where step = 'DATA'")
    assert units[0][0] > 1
    assert units[0][1] == gone["data"]
