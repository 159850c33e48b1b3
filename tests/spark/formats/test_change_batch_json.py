"""Batches as NDJSON: what humans write and read; every fault is told with its line."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.formats.changes.batch import BatchTooLarge, BatchUnreadable, decode_ndjson, encode_ndjson
from spark.formats.changes.json_form import LINE_MAX_BYTES
from tests.spark.formats.hostile_batches import SCHEMAS, batch_of, batches, csn_of, damaged, fault_of, sample

MIB = 1_048_576
ANY = pytest.mark.parametrize("name", SCHEMAS)
RIGHT = b'{"database":"ZGI=","key":"aw==","value":null}\n'


def refusal(body: bytes, name: str = "local") -> str:
    with pytest.raises(BatchUnreadable) as refused:
        decode_ndjson(body, SCHEMAS[name], rows_max=1_000, bytes_max=MIB)
    return refused.value.detail


@ANY
@given(data=st.data())
def test_batch_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    batch = data.draw(batches(name))
    assert decode_ndjson(encode_ndjson(batch), SCHEMAS[name], rows_max=12, bytes_max=MIB).equals(batch)


def test_lines_are_objects_with_standard_base64() -> None:
    assert encode_ndjson(sample("record", 2)).decode().splitlines() == [
        '{"csn":"6553f100000000010000","prev":null,"kind":"CHANGE","database":"ZGI=","key":"aw==","payload":""}',
        '{"csn":"6553f100000100020000","prev":null,"kind":"CHANGE","database":"ZGI=","key":"aw==","payload":null}',
    ]
    assert json.loads(encode_ndjson(sample("entry", 2)).splitlines()[1])["is_tombstone"] is True


def test_blank_lines_and_other_line_ends_are_passed_over() -> None:
    body = b"\n" + RIGHT.replace(b"\n", b"\r\n") + b"  \n" + RIGHT.strip()
    found = decode_ndjson(body, SCHEMAS["local"], rows_max=2, bytes_max=MIB)
    assert found.to_pylist() == [{"database": b"db", "key": b"k", "value": None}] * 2
    assert decode_ndjson(b"", SCHEMAS["local"], rows_max=1, bytes_max=1).num_rows == 0


def test_links_may_be_absent() -> None:
    line = {"csn": csn_of(1, 1), "kind": "CHANGE", "database": "ZGI=", "key": "aw==", "payload": None}
    found = decode_ndjson(json.dumps(line).encode(), SCHEMAS["record"], rows_max=1, bytes_max=MIB)
    assert found.column("prev").to_pylist() == [None]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"{", "line 2: no JSON"),
        (b"[]", "line 2: no JSON object"),
        (b"\xff", "line 2: no JSON"),
        (b"[" * 100_000, "line 2: no JSON"),
        (b'{"database":"ZGI=","key":"aw==","value":null,"valeu":1}', "line 2: unknown field 'valeu'"),
        (b'{"database":"ZGI=","key":"aw=="}', "line 2: value is missing"),
        (b'{"key":"aw==","value":null}', "line 2: database is missing"),
        (b'{"database":null,"key":"aw==","value":null}', "line 2: database is null, not a string"),
        (b'{"database":"ZGI=","key":1,"value":null}', "line 2: key is int, not a string"),
        (b'{"database":"ZGI=","key":["aw=="],"value":null}', "line 2: key is list, not a string"),
        (b'{"database":"ZGI=","key":"aw","value":null}', "line 2: key is no base64"),
        (b'{"database":"ZGI=","key":"a w==","value":null}', "line 2: key is no base64"),
        (b'{"database":"ZGI=","key":"_w==","value":null}', "line 2: key is no base64"),
        (b'{"database":"ZGI=","key":"\\u00e4w==","value":null}', "line 2: key is no base64"),
        (b'{"database":"ZGI=","key":"ax==","value":null}', "line 2: key is no canonical base64"),
        (
            b'{"database":"ZGI=","database":"ZGI=","key":"aw==","value":null}',
            "line 2: no JSON: a field stands",
        ),
        (b'{"database":"","key":"aw==","value":null}', "database of row 1 is not of 1 to 255 bytes"),
    ],
)
def test_wrong_lines_are_refused_by_number(line: bytes, detail: str) -> None:
    assert refusal(RIGHT + line + b"\n" + RIGHT).startswith(detail)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"is_tombstone": 1}, "line 1: is_tombstone is int, not true or false"),
        ({"is_tombstone": "true"}, "line 1: is_tombstone is str, not true or false"),
        ({"is_tombstone": False}, "value of row 0 is null, or not, against is_tombstone"),
        ({"csn": "\ud800" * 20}, "line 1: csn holds half a character"),
        ({"csn": 5}, "line 1: csn is int, not a string"),
        ({"csn": csn_of(1, 0)}, "csn of row 0 is of a replica outside 1..65534"),
    ],
)
def test_wrong_entries_are_refused(changes: dict[str, object], detail: str) -> None:
    line = {"database": "ZGI=", "key": "aw==", "value": None, "csn": csn_of(1, 1), "is_tombstone": True}
    assert refusal(json.dumps(line | changes).encode(), "entry") == detail


def test_bounds_of_rows_bytes_and_lines() -> None:
    schema = SCHEMAS["local"]
    with pytest.raises(BatchTooLarge, match="more than 2 rows"):
        decode_ndjson(RIGHT * 3, schema, rows_max=2, bytes_max=MIB)
    long = b'{"database":"ZGI=","key":"aw==","value":"' + b"QUFB" * 1_000 + b'"}\n'
    assert decode_ndjson(long, schema, rows_max=2, bytes_max=3_100).num_rows == 1
    with pytest.raises(BatchTooLarge, match="decodes to more than 3100 bytes"):
        decode_ndjson(long + RIGHT * 40, schema, rows_max=100, bytes_max=3_100)
    assert refusal(b'"' + b"x" * LINE_MAX_BYTES) == f"line 1 has more than {LINE_MAX_BYTES} bytes"


def test_longest_value_fits_into_a_line() -> None:
    body = encode_ndjson(batch_of(SCHEMAS["local"], [(b"d" * 255, b"k" * 2_000, b"v" * MIB)]))
    assert decode_ndjson(body, SCHEMAS["local"], rows_max=1, bytes_max=2 * MIB).num_rows == 1


@pytest.mark.parametrize("seed", range(2))
def test_damaged_lines_are_refused_or_still_right(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [(name, encode_ndjson(sample(name, 4))) for name in SCHEMAS]
    for _ in range(2_000):
        name, body = rng.choice(bodies)
        try:
            batch = decode_ndjson(damaged(body, rng), SCHEMAS[name], rows_max=100, bytes_max=MIB)
        except (BatchUnreadable, BatchTooLarge):
            continue
        assert fault_of(batch) is None


@settings(max_examples=200)
@given(body=st.binary(max_size=100), name=st.sampled_from(sorted(SCHEMAS)))
def test_any_bytes_end_in_a_batch_or_a_refusal(body: bytes, name: str) -> None:
    try:
        batch = decode_ndjson(body, SCHEMAS[name], rows_max=100, bytes_max=MIB)
    except (BatchUnreadable, BatchTooLarge):
        return
    assert len(batch) == 0
    assert not body.strip()
