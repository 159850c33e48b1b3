"""Data sources in Python: what a count of rows says does not depend on the counts before it."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition

from spark.pool.errors import SparkJobFailed
from spark.pool.lease import Lease

ROWS = 100


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

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return []


def _counts(session: SparkSession) -> list[int]:
    session.dataSource.register(Numbers)
    frame = session.read.format("numbers").load()
    return [
        frame.count(),
        frame.filter("remainder = 3").count(),
        frame.count(),
        frame.filter("remainder = 4").count(),
        frame.count(),
    ]


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
