"""Batches as bodies: whole and right, or refused by name, whatever the bytes are."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.formats.changes.batch import (
    BATCH_BYTES,
    BatchTooLarge,
    BatchUnreadable,
    decode_arrow,
    encode_arrow,
    row_bytes,
)
from spark.formats.changes.checks import record_faults
from spark.formats.changes.messages import MESSAGES_MAX
from spark.replication.records import local_schema, record_schema
from tests.spark.formats.hostile_batches import (
    COMPRESSIONS,
    FORMS,
    SCHEMAS,
    batch_of,
    batches,
    csn_of,
    damaged,
    fault_of,
    in_form,
    sample,
    stream_of,
)

MIB = 1_048_576
ROWS_MAX = 1_000
ANY = pytest.mark.parametrize("name", SCHEMAS)


def decoded(body: bytes, name: str, *, rows_max: int = ROWS_MAX, bytes_max: int = MIB) -> pa.RecordBatch:
    return decode_arrow(body, SCHEMAS[name], rows_max=rows_max, bytes_max=bytes_max)


def refusal(body: bytes, name: str = "record", *, bytes_max: int = MIB) -> str:
    with pytest.raises(BatchUnreadable) as refused:
        decoded(body, name, bytes_max=bytes_max)
    return refused.value.detail


@pytest.fixture
def counted() -> Iterator[pa.MemoryPool]:
    """Arrow's memory, measured from now on."""
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    former = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(former)


# -- what is right


@ANY
@given(data=st.data())
def test_batch_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    batch = data.draw(batches(name))
    assert decoded(encode_arrow(batch), name).equals(batch)


@ANY
@given(data=st.data())
def test_rows_within_their_measure_are_read_within_the_bound(name: str, data: st.DataObject) -> None:
    batch = data.draw(batches(name))
    first = data.draw(st.integers(0, len(batch)))
    part = batch[first:]
    bound = int(row_bytes(part).sum()) + BATCH_BYTES
    assert decoded(encode_arrow(part), name, bytes_max=bound).equals(part)


@ANY
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_other_forms_and_codecs_of_the_same_values_are_read(
    name: str, form: str, compression: str | None
) -> None:
    batch = sample(name, 40)
    found = decoded(stream_of(in_form(batch, form), compression=compression), name)
    assert found.equals(batch)
    assert found.schema.equals(SCHEMAS[name])


@ANY
def test_several_batches_are_read_as_one(name: str) -> None:
    batch = sample(name, 30)
    parts = [in_form(batch[first : first + 7], "dictionary") for first in range(0, 30, 7)]
    assert decoded(stream_of(*parts), name).equals(batch)


def test_columns_go_by_name() -> None:
    batch = sample("record")
    turned = batch.select(list(reversed(batch.schema.names)))
    assert decoded(stream_of(turned), "record").equals(batch)


def test_links_may_be_absent() -> None:
    batch = sample("record")
    found = decoded(stream_of(batch.drop_columns(["prev"])), "record")
    assert found.column("prev").null_count == len(batch)
    assert found.drop_columns(["prev"]).equals(batch.drop_columns(["prev"]))


@ANY
def test_no_rows_are_a_batch(name: str) -> None:
    assert decoded(encode_arrow(sample(name)[:0]), name, bytes_max=4_096).equals(sample(name)[:0])
    assert decoded(stream_of(sample(name)[:0]), name).num_rows == 0


def test_buffers_are_compressed() -> None:
    batch = batch_of(local_schema(), [(b"db", b"key%d" % n, b"v" * 200) for n in range(500)])
    assert len(encode_arrow(batch)) < batch.nbytes / 10


# -- schemas


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lambda b: b.append_column("extra", b.column("csn")), "unknown column 'extra'"),
        (lambda b: b.drop_columns(["csn"]), "column csn is missing"),
        (lambda b: b.drop_columns(["payload"]), "column payload is missing"),
        (
            lambda b: b.set_column(0, "csn", b.column("csn").cast(pa.binary())),
            "column csn is binary, not string",
        ),
        (
            lambda b: b.set_column(3, "database", pa.array([1] * len(b))),
            "column database is int64, not binary",
        ),
        (lambda b: b.set_column(2, "kind", pa.nulls(len(b))), "column kind is null, not string"),
        (
            lambda b: b.set_column(2, "kind", pa.array([1] * len(b)).dictionary_encode()),
            "column kind is dictionary<values=int64, indices=int32, ordered=0>, not string",
        ),
        (
            lambda b: b.rename_columns(["csn", "csn", *b.schema.names[2:]]),
            "a column stands twice in the schema",
        ),
    ],
)
def test_other_columns_are_refused_by_name(change: object, detail: str) -> None:
    assert callable(change)
    assert refusal(stream_of(change(sample("record")))) == detail


def test_a_missing_value_column_does_not_delete() -> None:
    body = stream_of(sample("local").drop_columns(["value"]))
    assert refusal(body, "local") == "column value is missing"


# -- values


def record(**changes: object) -> tuple[object, ...]:
    """A right record, changed."""
    row = {
        "csn": csn_of(9, 5),
        "prev": None,
        "kind": "CHANGE",
        "database": b"d",
        "key": b"k",
        "payload": None,
    }
    return tuple((row | changes).values())


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        ({"csn": csn_of(9, 5)[:-1]}, "csn of row 1 is not 20 hexadecimal digits"),
        ({"csn": csn_of(9, 5).upper().replace("0", "A")}, "csn of row 1 is no lower-case hexadecimal digits"),
        ({"csn": "ä" + csn_of(9, 5)[2:]}, "csn of row 1 is no lower-case hexadecimal digits"),
        ({"csn": csn_of(9, 0)}, "csn of row 1 is of a replica outside 1..65534"),
        ({"csn": csn_of(9, 65_535)}, "csn of row 1 is of a replica outside 1..65534"),
        ({"prev": "x" * 20}, "prev of row 1 is no lower-case hexadecimal digits"),
        ({"prev": ""}, "prev of row 1 is not 20 hexadecimal digits"),
        ({"prev": csn_of(8, 6)}, "prev of row 1 is of another replica than its csn"),
        ({"prev": csn_of(9, 5)}, "prev of row 1 is not before its csn"),
        ({"prev": csn_of(10, 5)}, "prev of row 1 is not before its csn"),
        ({"kind": ""}, "kind of row 1 is not 1 to 40 characters long"),
        ({"kind": "ü" * 41}, "kind of row 1 is not 1 to 40 characters long"),
        ({"kind": "CHANGE\0"}, "kind of row 1 is text with a NUL"),
        ({"key": None}, "key of row 1 is null"),
        ({"csn": None}, "csn of row 1 is null"),
    ],
)
def test_records_with_wrong_values_are_refused_by_row(row: dict[str, object], detail: str) -> None:
    batch = batch_of(record_schema(), [record(csn=csn_of(1, 4)), record(**row)])
    assert refusal(stream_of(batch)) == detail
    nullable = [pa.field(field.name, field.type) for field in record_schema()]
    declared = pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(nullable))
    assert refusal(stream_of(declared)) == detail


def test_wrong_link_is_told_by_its_own_row() -> None:
    rows = [record(csn=csn_of(n, 5), prev=csn_of(n - 1, 5) if n in (3, 6) else None) for n in range(8)]
    rows[6] = record(csn=csn_of(6, 5), prev=csn_of(5, 7))
    assert (
        refusal(stream_of(batch_of(record_schema(), rows)))
        == "prev of row 6 is of another replica than its csn"
    )


@pytest.mark.parametrize(("order", "fault_row"), [([1, 2, 2], 2), ([1, 3, 2], 2), ([2, 1], 1)])
def test_records_of_one_replica_ascend_and_those_of_several_need_not(
    order: list[int], fault_row: int
) -> None:
    rows = [record(csn=csn_of(number, 5)) for number in order]
    detail = refusal(stream_of(batch_of(record_schema(), rows)))
    assert detail == f"csn of row {fault_row} is not after the one before it of the same replica"
    apart = [record(csn=csn_of(number, rid)) for rid, number in enumerate(order, start=1)]
    assert decoded(stream_of(batch_of(record_schema(), apart)), "record").num_rows == len(order)


@pytest.mark.parametrize(
    ("name", "row", "detail"),
    [
        ("local", (b"", b"k", None), "database of row 0 is not of 1 to 255 bytes"),
        ("local", (b"d" * 256, b"k", None), "database of row 0 is not of 1 to 255 bytes"),
        ("local", (b"d", b"", None), "key of row 0 is not of 1 to 2000 bytes"),
        ("local", (b"d", b"k" * 2_001, None), "key of row 0 is not of 1 to 2000 bytes"),
        ("local", (b"d", b"k", b"v" * (MIB + 1)), "value of row 0 is not of 0 to 1048576 bytes"),
        ("entry", (b"d", b"k", b"v", "x" * 20, False), "csn of row 0 is no lower-case hexadecimal digits"),
        (
            "entry",
            (b"d", b"k", b"v", csn_of(1, 1), True),
            "value of row 0 is null, or not, against is_tombstone",
        ),
        (
            "entry",
            (b"d", b"k", None, csn_of(1, 1), False),
            "value of row 0 is null, or not, against is_tombstone",
        ),
        ("entry", (b"d", b"k" * 2_001, b"v", csn_of(1, 1), False), "key of row 0 is not of 1 to 2000 bytes"),
    ],
)
def test_local_changes_and_entries_with_wrong_values_are_refused(
    name: str, row: tuple[object, ...], detail: str
) -> None:
    assert refusal(stream_of(batch_of(SCHEMAS[name], [row])), name, bytes_max=4 * MIB) == detail


@pytest.mark.parametrize(
    ("keys", "is_right"),
    [
        ([(b"a", b"k"), (b"b", b"a")], True),
        ([(b"a", b"k"), (b"a", b"k\0")], True),
        ([(b"a", b"k"), (b"a", b"k")], False),
        ([(b"a", b"k"), (b"a", b"j\xff")], False),
        ([(b"b", b"a"), (b"a", b"k")], False),
    ],
)
def test_entries_ascend_by_their_keys(keys: list[tuple[bytes, bytes]], is_right: bool) -> None:
    batch = batch_of(SCHEMAS["entry"], [(*key, b"v", csn_of(1, 1), False) for key in keys])
    if is_right:
        assert decoded(stream_of(batch), "entry").equals(batch)
    else:
        assert refusal(stream_of(batch), "entry") == "key of row 1 is not after the one before it"


def test_longest_values_are_read() -> None:
    batch = batch_of(local_schema(), [(b"d" * 255, b"k" * 2_000, b"v" * MIB), (b"d", b"k", b"")])
    assert decoded(stream_of(batch), "local", bytes_max=2 * MIB).equals(batch)


def test_text_that_is_no_utf8_is_refused() -> None:
    batch = sample("record")
    kinds = pa.array([b"CHANGE"] * 11 + [b"CH\xffNGE"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(kinds), kinds.buffers())
    body = stream_of(batch.set_column(2, record_schema().field("kind"), text))
    assert "UTF8" in refusal(body)


def test_records_that_no_replica_keeps_are_told_but_not_refused() -> None:
    rows = [
        record(csn=csn_of(1, 1)),
        record(csn=csn_of(2, 1), key=b""),
        record(csn=csn_of(3, 1), kind="KEEPALIVE", key=b"", database=b""),
        record(csn=csn_of(4, 1), payload=b"p" * (MIB + 1), database=b"d" * 256),
        record(csn=csn_of(5, 1), key=b"k" * 2_000, payload=b"p" * MIB, database=b"d" * 255),
        record(csn=csn_of(6, 1), kind="KEEPALIVE", key=b"k" * 2_001),
    ]
    batch = decoded(stream_of(batch_of(record_schema(), rows)), "record", bytes_max=4 * MIB)
    assert [(fault.row, fault.detail) for fault in record_faults(batch)] == [
        (1, "key has 0 bytes, 1 to 2000 are kept"),
        (3, "database has 256 bytes, 1 to 255 are kept"),
        (3, "payload has 1048577 bytes, 0 to 1048576 are kept"),
        (5, "key has 2001 bytes, 1 to 2000 are kept"),
    ]


# -- bounds: what a body claims


@ANY
def test_more_rows_than_agreed_are_too_large(name: str) -> None:
    body = stream_of(sample(name, 12), sample(name, 12))
    with pytest.raises(BatchTooLarge, match="24 rows, 23 at most"):
        decoded(body, name, rows_max=23)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_honest_bomb_is_refused_before_anything_is_decompressed(
    counted: pa.MemoryPool, compression: str
) -> None:
    big = batch_of(local_schema(), [(b"d", b"k", bytes(64 * MIB))])
    body = stream_of(big, compression=compression)
    assert len(body) < 300_000
    del big
    before = counted.max_memory()
    with pytest.raises(BatchTooLarge, match="decodes to"):
        decoded(body, "local", bytes_max=8 * MIB)
    assert counted.max_memory() == before


@pytest.mark.parametrize("claim", [1 << 40, (1 << 63) - 1])
@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_claim_of_gigabytes_by_a_small_body_is_refused(
    counted: pa.MemoryPool, claim: int, compression: str
) -> None:
    body = with_claim(compression, claim)
    before = counted.max_memory()
    with pytest.raises(BatchTooLarge):
        decoded(body, "local")
    assert counted.max_memory() == before


@pytest.mark.parametrize("claim", [10, 4_999, 5_001, -2, -(1 << 63)])
def test_claim_that_is_not_what_comes_out_is_unreadable(claim: int) -> None:
    for compression in ("zstd", "lz4"):
        assert refusal(with_claim(compression, claim), "local")


def with_claim(compression: str, claim: int) -> bytes:
    """A stream whose one big buffer claims so many bytes instead of its 5,000."""
    body = stream_of(batch_of(local_schema(), [(b"d", b"k", b"v" * 5_000)]), compression=compression)
    # The offsets hold the same number, before the buffer of the values.
    before, honest, after = body.rpartition(struct.pack("<q", 5_000))
    assert honest
    return before + struct.pack("<q", claim) + after


def test_dictionary_that_unfolds_to_gigabytes_is_refused(counted: pa.MemoryPool) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([0] * 900, pa.int16()), pa.array([b"v" * 200_000]))
    keys = pa.array([b"k"] * 900)
    batch = pa.RecordBatch.from_arrays([keys, keys, values], names=local_schema().names)
    body = stream_of(batch)
    before = counted.max_memory()
    with pytest.raises(BatchTooLarge):
        decoded(body, "local")
    assert counted.max_memory() < before + 2 * MIB


def test_views_of_one_buffer_that_unfold_to_gigabytes_are_refused(counted: pa.MemoryPool) -> None:
    one = pa.array([b"v" * 200_000], pa.binary_view())
    view = one.buffers()[1].to_pybytes()
    many = pa.Array.from_buffers(
        pa.binary_view(), 900, [None, pa.py_buffer(view[:16] * 900), one.buffers()[2]]
    )
    keys = pa.array([b"k"] * 900)
    body = stream_of(pa.RecordBatch.from_arrays([keys, keys, many], names=local_schema().names))
    before = counted.max_memory()
    with pytest.raises(BatchTooLarge):
        decoded(body, "local")
    assert counted.max_memory() < before + 2 * MIB


def test_stream_of_countless_messages_is_too_large() -> None:
    body = stream_of(*[sample("local")[:0]] * (MESSAGES_MAX + 1), compression=None)
    with pytest.raises(BatchTooLarge, match="messages"):
        decoded(body, "local", bytes_max=64 * MIB)


# -- bytes that are no whole stream


@ANY
def test_stream_that_is_cut_anywhere_is_unreadable(name: str) -> None:
    body = stream_of(sample(name, 6), sample("local", 3) if name == "local" else sample(name, 0))
    for end in range(len(body)):
        assert refusal(body[:end], name)


@pytest.mark.parametrize("tail", [b"\0", b"\xff" * 8, b"\xff\xff\xff\xff\0\0\0\0", b"{}"])
def test_bytes_behind_the_end_are_refused(tail: bytes) -> None:
    assert refusal(encode_arrow(sample("record")) + tail) == f"{len(tail)} bytes follow the end of the stream"


def test_two_streams_are_not_one() -> None:
    body = encode_arrow(sample("record"))
    assert "follow the end" in refusal(body + body)


@pytest.mark.parametrize("garbage", [b"", b"\0" * 64, b"ARROW1\0\0" + b"\0" * 100, b"{}\n", b"\xff" * 200])
def test_garbage_is_unreadable(garbage: bytes) -> None:
    assert refusal(garbage)


def test_file_format_is_not_the_stream() -> None:
    sink = pa.BufferOutputStream()
    batch = sample("record")
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert refusal(bytes(sink.getvalue()))


def test_messages_of_an_older_version_are_refused() -> None:
    body = stream_of(sample("record"), compression=None, metadata_version=pa.ipc.MetadataVersion.V4)
    assert refusal(body) == "the messages are not of metadata version 5"


def test_broken_zstd_is_unreadable() -> None:
    body = encode_arrow(batch_of(local_schema(), [(b"d", b"k", random.Random(1).randbytes(5_000))]))
    magic = b"\x28\xb5\x2f\xfd"
    assert magic in body
    assert "ZSTD" in refusal(body.replace(magic, b"\x28\xb5\x2f\xfe"), "local")


def test_view_behind_a_null_that_points_anywhere_is_not_followed() -> None:
    # Arrow's validation leaves it out and its cast follows it: the process died of this body.
    column = pa.array([b"v" * 50, None, b"w" * 50], pa.binary_view())
    views = bytearray(column.buffers()[1].to_pybytes()[:48])
    views[16:32] = struct.pack("<iiii", 0x7FFFFFF0, 1, 0x7FFF, 0x7FFFFFF0)
    hostile = pa.Array.from_buffers(
        pa.binary_view(), 3, [column.buffers()[0], pa.py_buffer(bytes(views)), column.buffers()[2]]
    )
    keys = pa.array([b"a", b"b", b"c"])
    body = stream_of(pa.RecordBatch.from_arrays([keys, keys, hostile], names=local_schema().names))
    assert decoded(body, "local").column("value").to_pylist() == [b"v" * 50, None, b"w" * 50]


def check_damage(seed: int, cases: int) -> None:
    """Damage right bodies; whatever is still read must be right."""
    rng = random.Random(seed)
    bodies = [
        (name, stream_of(in_form(sample(name), form), compression=compression))
        for name in SCHEMAS
        for form in FORMS
        for compression in COMPRESSIONS
    ]
    read = 0
    for _ in range(cases):
        name, body = rng.choice(bodies)
        try:
            batch = decoded(damaged(body, rng), name)
        except (BatchUnreadable, BatchTooLarge):
            continue
        read += 1
        assert batch.schema.equals(SCHEMAS[name])
        assert fault_of(batch) is None
        assert decoded(encode_arrow(batch), name).equals(batch)
    assert read > cases / 50


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_damaged_bodies_are_refused_or_still_right(seed: int) -> None:
    check_damage(seed, 2_000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_damaged_bodies_are_refused_or_still_right(seed: int) -> None:
    check_damage(seed, 50_000)


@settings(max_examples=300)
@given(body=st.binary(max_size=200), name=st.sampled_from(sorted(SCHEMAS)))
def test_any_bytes_are_refused_by_name(body: bytes, name: str) -> None:
    with pytest.raises((BatchUnreadable, BatchTooLarge)):
        decoded(body, name)
