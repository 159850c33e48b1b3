"""Data sources in Python: what a count of rows says does not depend on the counts before it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition, IsNotNull

from spark.pool.errors import SparkJobFailed
from spark.pool.lease import Lease
from spark.pool.pool import SparkPool

ROWS = 100
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


class Numbers(DataSource):
    """A hundred rows of which each tenth has the remainder that is asked for."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int, remainder int"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumbersReader()


class NumbersReader(DataSourceReader):
    """Reads all rows; Spark itself filters them."""

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        for number in range(ROWS):
            yield number, number % 10


class FilteringNumbers(Numbers):
    """Asks for the filters."""

    @classmethod
    def name(cls) -> str:
        return "filtering_numbers"

    def reader(self, schema: Any) -> DataSourceReader:
        return FilteringReader()


class FilteringReader(NumbersReader):
    """Would take every filter itself."""

    def __init__(self) -> None:
        self.remainder: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for each in filters:
            if isinstance(each, EqualTo):
                self.remainder = int(each.value)
            elif not isinstance(each, IsNotNull):
                yield each

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        for number, remainder in super().read(partition):
            if self.remainder in (None, remainder):
                yield number, remainder


def _counts(session: SparkSession, source: type[Numbers] = Numbers) -> list[int]:
    session.dataSource.register(source)
    frame = session.read.format(source.name()).load()
    return [
        frame.count(),
        frame.filter("remainder = 3").count(),
        frame.count(),
        frame.filter("remainder = 4").count(),
        frame.count(),
    ]


def _counts_with_pushdown(session: SparkSession) -> list[int]:
    """What Spark says where a source gets its filters: the setting is that of this session alone."""
    session.conf.set(PUSHDOWN, "true")
    return _counts(session, FilteringNumbers)


def _filtered(session: SparkSession) -> int:
    session.dataSource.register(FilteringNumbers)
    return session.read.format("filtering_numbers").load().filter("remainder = 3").count()


def test_filtered_count_changes_no_later_count_of_the_same_frame(lease: Lease) -> None:
    assert lease.run(_counts) == [ROWS, 10, ROWS, 10, ROWS]


def test_source_that_takes_filters_itself_is_refused(lease: Lease) -> None:
    """Spark 4.3.0 keeps its first reader, with the filter, for all later queries of the frame: 10 of 100."""
    with pytest.raises(SparkJobFailed) as refused:
        lease.run(_filtered)
    assert "DATA_SOURCE_PUSHDOWN_DISABLED" in str(refused.value.__cause__)


def test_what_is_switched_off_gives_wrong_rows(lease: Lease) -> None:
    """The fault that the setting is off for. Once this fails, pyspark has mended it."""
    assert lease.run(_counts_with_pushdown) != [ROWS, 10, ROWS, 10, ROWS]


def test_next_job_on_the_slot_has_it_off_again(pool: SparkPool) -> None:
    for _ in range(2):
        with pool.lease(job_id="test", job_class="INTERACTIVE") as lent:
            assert lent.run(lambda session: session.conf.get(PUSHDOWN)) == "false"
            lent.run(lambda session: session.conf.set(PUSHDOWN, "true"))
