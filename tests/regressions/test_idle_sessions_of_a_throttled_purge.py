"""The database ended sessions that were idle for a while (`idle_session_timeout`). Those of a throttled
purge are idle most of the time: it lost its sessions in each window, waited, and began the attempt anew.
The same database had every other default that could harm: none of them may change what is removed.
"""

from __future__ import annotations

import pytest

from tests.oracles.symmetricds import CUTOFF, Place, expected_after_purge, session, snapshot
from tests.regressions.purges import OLD_CUTOFF, Purges

ODD = (
    "idle_session_timeout = '300ms'",
    "idle_in_transaction_session_timeout = '200ms'",
    "statement_timeout = '40ms'",
    "lock_timeout = '1ms'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "synchronous_commit = off",
    "search_path = 'evil'",
    "\"DateStyle\" = 'German'",
    "\"TimeZone\" = 'Asia/Kolkata'",
    "standard_conforming_strings = off",
    "transform_null_equals = on",
    "enable_indexscan = off",
    "plan_cache_mode = 'force_generic_plan'",
    "client_encoding = 'LATIN1'",
)


@pytest.mark.postgresql
def test_odd_defaults_of_a_database_change_nothing(purges: Purges, postgresql_url: str) -> None:
    place = purges.fill(Place(postgresql_url), rows=300)
    expected = expected_after_purge(snapshot(place), CUTOFF)
    with session(place) as target:
        [(name,)] = target.run("select current_database()")
        target.run("create schema evil")
        for table in ("data", "data_event", "outgoing_batch", "node"):
            target.run(f"create table evil.sym_{table} (like sym_{table})")
        for setting in ODD:
            target.run(f'alter database "{name}" set {setting}')
    purges.store(place)
    job = purges.run(
        purges.submit(cutoff=OLD_CUTOFF, stranded="MARK", max_rows_in_tx=100, throttle={"rows_per_s": 300})
    )
    assert (job.state, job.error, job.attempt) == ("SUCCEEDED", None, 1)
    with session(place) as target:
        target.run(f'alter database "{name}" reset all')
    after = snapshot(place)
    assert {table: after[table] for table in expected} == expected
