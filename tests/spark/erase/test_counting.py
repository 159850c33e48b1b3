"""What an extinction covers of an environment, against JE's own list of its live records."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from lethe_samples.je_writer.packed import two_part_key
from spark.erase.calls.calls import RefusalCode
from spark.erase.calls.count_calls import CountAnswer, CountCall
from spark.erase.rule.extinct import primary_key
from spark.erase.unit import do
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from tests.spark.erase.conftest import Sample


def _count(directory: Path, extinction: Extinction | None = None) -> CountAnswer:
    answer = do(CountCall(str(directory), None if extinction is None else extinction.to_json()))
    assert isinstance(answer, CountAnswer)
    return answer


@pytest.mark.parametrize("name", ["closed", "crash", "replicated"])
def test_live_records_of_each_database_are_those_that_je_counts(
    samples: dict[str, Sample], copy_of: Callable[[str], Path], name: str
) -> None:
    live = Counter(row[0] for row in samples[name].expected["live_records"])
    directory = copy_of(name)
    named = _count(directory)
    assert named.databases == tuple(sorted(live))
    counted = {
        database: _count(directory, Extinction("ext_1", frozenset({database.encode()}))).records
        for database in named.databases
    }
    assert counted == dict(live)


def test_range_and_filter_count_what_a_loop_over_je_s_records_counts(
    samples: dict[str, Sample], copy_of: Callable[[str], Path]
) -> None:
    keys = sorted(
        bytes.fromhex(row[1]) for row in samples["closed"].expected["live_records"] if row[0] == "users"
    )
    start, end = keys[100], keys[-100]
    last = len(keys[0])
    found = Filter.parse({"modulo": {"offset": last - 1, "width": 1, "divisor": 2, "remainder": 1}})
    extinction = Extinction("ext_1", frozenset({b"users", b"nowhere"}), start, end, found)
    expected = sum(start <= key < end and len(key) >= last and key[last - 1] % 2 == 1 for key in keys)
    assert 0 < expected < len(keys)
    assert _count(copy_of("closed"), extinction).records == expected


@pytest.mark.parametrize("length", [0, 1, 119, 120, 375, 70_000])
def test_primary_key_of_a_database_with_duplicates_is_the_data(length: int) -> None:
    data = os.urandom(20)
    assert primary_key(two_part_key(b"k" * length, data)) == data


def test_directory_without_a_log_is_refused_by_name(tmp_path: Path) -> None:
    answer = _count(tmp_path)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.ref) == (RefusalCode.LOG_REFUSED, "NOT_AN_ENVIRONMENT")
