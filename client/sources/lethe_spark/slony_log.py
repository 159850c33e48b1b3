"""`lethe_slony_log`: the rows of sl_log_1 and sl_log_2 of a node of Slony-I.

Both tables are read in one transaction, which only reads, in one partition: a log switch between two reads
would show rows twice or not at all. While it is read, TRUNCATE of a log table waits, as for any reader.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lethe_spark.options import Options
from lethe_spark.target import TARGET_OPTIONS, ReadTarget
from spark.formats.slony import CLUSTER_MAX_CHARS, LOG_TABLES, NODE_MAX, schema_of
from spark.targets.errors import TargetSchemaUnsupported

COLUMNS: Final = (
    "log_origin int",
    "log_txid bigint",
    "log_tableid int",
    "log_actionseq bigint",
    "log_tablenspname string",
    "log_tablerelname string",
    "log_cmdtype string",
    "log_cmdupdncols int",
    "log_cmdargs array<string>",
)


class SlonyLogSource(DataSource):
    """`lethe_slony_log`: a row for each logged change, with the log table that it lies in.

    Options: `url` without a password, `password_file`, `cluster`, `origins` (only these nodes, between
    commas), `statement_timeout_s`.
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_slony_log"

    def schema(self) -> str:
        _asked(self.options)
        return ", ".join(("log_table string", *COLUMNS))

    def reader(self, schema: Any) -> DataSourceReader:
        return SlonyLogReader(_asked(self.options))


@dataclass(frozen=True, slots=True)
class _Asked:
    target: ReadTarget
    schema: str
    origins: tuple[int, ...] | None


def _asked(given: Mapping[str, str]) -> _Asked:
    options = Options("lethe_slony_log", given)
    options.only((*(each for each in TARGET_OPTIONS if each != "schema"), "cluster", "origins"))
    cluster = options.required("cluster", "the name of the cluster, without the underscore of its schema")
    if len(cluster) > CLUSTER_MAX_CHARS or "\0" in cluster:
        raise options.refuse(f"cluster={cluster[:80]!r} is no name of a cluster")
    origins = options.numbers("origins", least=1, most=NODE_MAX)
    schema = schema_of(cluster)
    return _Asked(ReadTarget(options, schema=schema), schema, origins)


class SlonyLogReader(DataSourceReader):
    """Reads both log tables in one snapshot."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows. Raises: TargetError: TargetTablesMissing, TargetReadOnly and others."""
        names = [each.split()[0] for each in COLUMNS]
        where = "" if self._asked.origins is None else " where log_origin = any(:origins)"
        params = None if self._asked.origins is None else {"origins": list(self._asked.origins)}
        with self._asked.target.connect() as conn:
            if conn.dialect.name != "postgresql":
                raise TargetSchemaUnsupported("a cluster of Slony-I is on PostgreSQL; give the url of a node")
            selected = ", ".join(conn.dialect.quote(name) for name in names)
            selected = selected.replace('"log_cmdtype"', '"log_cmdtype"::text')
            with conn.transaction(read_only=True):
                for table in LOG_TABLES:
                    place = conn.dialect.qualify(self._asked.schema, table)
                    for row in conn.stream(f"select {selected} from {place}{where}", params):
                        yield (table, *row)
