"""`lethe_ledger`: what a target's own ledger has counted, a row for each committed unit.

One partition: the rows are those of one snapshot.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lethe_spark.options import Options
from lethe_spark.target import TARGET_OPTIONS, ReadTarget
from spark.targets.dialects.dialect import Params
from spark.targets.errors import TargetTablesMissing
from spark.targets.ledger import aware, shows_ledger

SCHEMA: Final = (
    "job_id string, unit_id string, step string, attempt bigint, token bigint, rows_affected bigint, "
    "detail string, committed_at timestamp"
)


class LedgerSource(DataSource):
    """`lethe_ledger`: job, unit, step, rows and the time of each unit that was committed.

    Options: `url` without a password, `password_file`, `schema`, `jobs` (only these, between commas),
    `statement_timeout_s`.
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_ledger"

    def schema(self) -> str:
        _asked(self.options)
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return LedgerReader(*_asked(self.options))


def _asked(given: Mapping[str, str]) -> tuple[ReadTarget, tuple[str, ...] | None]:
    options = Options("lethe_ledger", given)
    options.only((*TARGET_OPTIONS, "jobs"))
    return ReadTarget(options), options.jobs()


class LedgerReader(DataSourceReader):
    """Reads the ledger in one transaction that only reads."""

    def __init__(self, target: ReadTarget, jobs: tuple[str, ...] | None) -> None:
        self._target = target
        self._jobs = jobs

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows. Raises: TargetTablesMissing: there is no ledger. TargetError."""
        with self._target.connect() as conn, conn.transaction(read_only=True):
            if not shows_ledger(conn):
                raise TargetTablesMissing(
                    "this database has no ledger of Lethe, or this user may not read it; "
                    "grant SELECT on its tables, or name another url"
                )
            table = conn.dialect.lethe_table("unit_ledger")
            columns = "job_id, unit_id, step, attempt, token, rows_affected, detail, committed_at"
            sql = f"select {columns} from {table}"
            params: Params = None
            if self._jobs is not None:
                names = [f"job_{number}" for number in range(len(self._jobs))]
                sql += f" where job_id in ({', '.join(':' + name for name in names)})"
                params = dict(zip(names, self._jobs, strict=True))
            for *values, committed in conn.stream(f"{sql} order by job_id, unit_id", params):
                yield (*values, aware(committed))
