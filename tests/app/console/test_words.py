"""Values as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.console import words

NOW = datetime(2026, 11, 23, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0 s"),
        (0.25, "250 ms"),
        (59, "59 s"),
        (3_661, "1 h 1 min"),
        (3_600, "1 h"),
        ("P25DT1H", "25 d 1 h"),
        (timedelta(minutes=5), "5 min"),
    ],
)
def test_durations_have_two_units_at_most(value: float | str | timedelta | None, shown: str) -> None:
    assert words.lasting(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (123_456_789, "123 MB")]
)
def test_bytes_have_a_unit(value: float | None, shown: str) -> None:
    assert words.size(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (1, "jobs", "1 job"),
        (1, "rows/s", "1 row/s"),
        (1, "retries", "1 retry"),
        (1, "crashes", "1 crash"),
        (0, "rows", "0 rows"),
        (2, "instances", "2 instances"),
    ],
)
def test_one_is_singular(value: float, unit: str, shown: str) -> None:
    assert words.count(value, unit) == shown


def test_times_are_utc_and_say_so() -> None:
    shown = words.when("2026-11-23T11:00:00+01:00")
    assert shown == (
        '<time datetime="2026-11-23T10:00:00Z" title="2026-11-23 10:00:00 UTC" class="at">'
        "2026-11-23 10:00:00 UTC</time>"
    )
    assert ">2 min ago<" in words.since(NOW - timedelta(minutes=2), NOW)
    assert ">in 2 min<" in words.since(NOW + timedelta(minutes=2), NOW)


@pytest.mark.parametrize(
    ("name", "value", "shape"),
    [
        ("total_bytes", 5, "bytes"),
        ("took_s", 5, "seconds"),
        ("rows_per_s", 5, "rate"),
        ("longest_hold_ms", 5, "milliseconds"),
        ("eraserReadBytes", 5, "bytes"),
        ("rows", 5, "number"),
        ("at", "2026-11-23T10:00:00.123Z", "instant"),
        ("lease", "PT2M", "duration"),
        ("name", "P", "text"),
        ("name", "PURGE", "text"),
        ("x", {}, "nothing"),
        ("x", [{"a": 1}], "rows"),
        ("x", [[1]], "json"),
        ("x", ["a"], "texts"),
        ("x", True, "yes"),
    ],
)
def test_shape_of_a_value_is_told_by_name_and_value(name: str, value: object, shape: str) -> None:
    assert words.shape(value, name) == shape


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("x", "NEVER_CONFIRMED", "never confirmed"),
        ("outcome", "MADE", "made"),
        ("status", "NE", "NE"),  # of SymmetricDS
        ("x", "SQL", "SQL"),
        ("table", "SYM_DATA", "SYM_DATA"),
        ("", "SYM_DATA", "SYM_DATA"),
        ("kind", "DATA_GAP", "DATA_GAP"),
        ("detail", "node 1: NOT_DRAINED", "node 1: NOT_DRAINED"),
    ],
)
def test_names_of_the_api_are_words_and_those_of_others_stay(name: str, value: str, shown: str) -> None:
    assert words.plain(value, name) == shown


def test_what_says_nothing_is_left_out_and_names_are_a_few() -> None:
    said = {"a": None, "b": "", "c": [], "d": {}, "e": 0, "f": False}
    assert words.filled(said) == {"e": 0, "f": False}
    assert words.listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert words.listed(["a", "b"], 2) == "a, b"
    assert [words.decoded(each) for each in ("ZGI=", "/w==", "AAA=")] == ["db", "ff", "0000"]


def test_links_lead_to_pages_of_the_console() -> None:
    assert words.help_url("docs/runbook.md#job_failed") == "/console/help#job_failed"
    assert words.subject_url("jobs/job_1") == "/console/jobs/job_1"
    assert words.subject_url("stores/shop/agreements/agr_1") == "/console/stores/shop"
    assert words.subject_url("nothing") is None
