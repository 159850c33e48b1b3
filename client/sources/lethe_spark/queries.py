"""What auditors ask, as SQL over frames: `ask(session, QUERY, name=frame, ...)`.

Each text names its frames in braces. docs/how-to/audit.md says how the frames are read, and what an answer
means.
"""

from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

ERASED_KEYS_IN_LOGS: Final = """
with names as (
    select environment, cast(cast(key as string) as bigint) as db, max_by(name, lsn) as database,
        max_by(deleted, lsn) as dropped
    from {entries} where type in ('MAP_LN', 'MAP_LN_TX') group by environment, key
),
ends as (
    select environment, txn, max(type) as outcome from {entries} where type in ('COMMIT', 'ABORT')
    group by environment, txn
),
places as (
    select k.environment, n.database, n.dropped, k.db, k.key, k.lsn, k.slot, k.says,
        coalesce(k.txn is null or ends.outcome = 'COMMIT', false) as committed,
        coalesce(ends.outcome = 'ABORT', false) as aborted
    from {keys} k
    join names n on n.environment = k.environment and n.db = k.db
    join (select distinct database, key from {erased}) x on x.database = n.database and x.key = k.key
    left join ends on ends.environment = k.environment and ends.txn = k.txn
),
found as (
    select environment, database, db, key, max(dropped) as dropped, count(*) as places, count(slot) as slots,
        max_by(says, lsn) filter (
            where says is not null and not aborted and (committed or says = 'PRESENT')
        ) as newest
    from places group by environment, database, db, key
)
select environment, database, key, places - slots as entries, slots,
    coalesce(newest = 'PRESENT', false) and not coalesce(dropped, false) as alive
from found order by environment, database, key
"""
"""Of erased(database string, key binary) those that a log still holds: readable in so many entries and slots
of nodes, and `alive` where nothing newer says that the key was deleted. Frames: `entries` and `keys` are the
views of lethe_je. A key with no row can be read in none of the files that were read."""

ERASED_KEYS_IN_CHANGES: Final = """
select c.database, c.key, max_by(c.payload is not null, c.csn) as alive, count(c.payload) as records
from {changes} c join (select distinct cast(database as binary) as database, key from {erased}) x
    on x.database = c.database and x.key = c.key
where c.kind = 'CHANGE'
group by c.database, c.key having count(c.payload) > 0
order by c.database, c.key
"""
"""Of erased(database, key binary) those whose values a changelog still holds, in so many records; `alive`
where the newest record writes the key. Frame: `changes` is lethe_changes."""

PURGED_TWICE: Final = """
select element_at(split(file, '/'), -3) as store, table_name, primary_key, count(*) as times,
    array_sort(collect_list(struct(job_id, unit_id))) as purges
from {archive} where primary_key is not null
group by element_at(split(file, '/'), -3), table_name, primary_key having count(*) > 1
order by store, table_name, primary_key
"""
"""Rows that were removed and kept more than once, by whom. Frame: `archive` is lethe_archive without `table`.
A row that was restored and purged again is here too; rows of tables without a primary key are not."""

ARCHIVE_AGAINST_LEDGER: Final = """
with kept as (
    select job_id, unit_id, max(table_name) as table_name, count(*) as archived
    from {archive} group by job_id, unit_id
),
counted as (
    select l.job_id, l.unit_id, l.step, l.rows_affected as counted from {ledger} l
    left semi join kept on kept.job_id = l.job_id
    where l.rows_affected > 0
)
select job_id, unit_id, table_name, step, coalesce(archived, 0) as archived, coalesce(counted, 0) as counted
from kept full outer join counted using (job_id, unit_id)
where coalesce(archived, 0) <> coalesce(counted, 0)
order by job_id, unit_id
"""
"""Units of archived jobs whose archive holds other rows than the ledger counted; none: they agree. Frames:
`archive` is lethe_archive, `ledger` is lethe_ledger of the same target."""


def ask(session: SparkSession, query: str, **frames: DataFrame) -> DataFrame:
    """Run one of the queries over frames, by the names that stand in its braces."""
    named: dict[str, Any] = dict(frames)
    return session.sql(query, **named)
