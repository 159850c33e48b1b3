"""Rows of one column that are cut out of the driver's buffer: the same as the driver's own."""

from random import Random

import pytest

from spark.targets.connection import Connection, Target
from spark.targets.dialects.mysql_rows import BLOCK_BYTES, BUFFER_BYTES
from spark.targets.errors import TargetError
from tests.spark.targets.conftest import Connect

ROUNDS = 8
STATEMENT_ROWS = 1_000
# The borders of the protocol's lengths: 1, 3, 4 bytes; and a row that no buffer holds.
BORDERS = (0, 1, 250, 251, 252, 65_535, 65_536, 300_000)


@pytest.fixture
def conn(mysql: Target, opened: Connect) -> Connection:
    made = opened(mysql)
    made.execute("create table line (id int primary key, size int, value longblob) engine=innodb")
    return made


def _fill(conn: Connection, sizes: list[int | None]) -> None:
    conn.execute("truncate line")
    rows = [
        f"({at}, {size}, repeat(char({33 + at % 90}), {size}))".replace("None", "null")
        for at, size in enumerate(sizes)
    ]
    for begin in range(0, len(rows), STATEMENT_ROWS):
        conn.execute(f"insert into line values {', '.join(rows[begin : begin + STATEMENT_ROWS])}")


def _lines(conn: Connection) -> list[bytes | None]:
    blocks = conn.stream_lines("select value from line order by id")
    return [line for block in blocks for line in block]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_random_rows_come_as_they_are(conn: Connection, seed: int) -> None:
    rng = Random(seed)
    sizes: list[int | None] = [
        rng.choice([None, rng.choice(BORDERS), rng.randrange(600), rng.randrange(600), rng.randrange(3_000)])
        for _ in range(rng.choice([0, 1, 40, 900]))
    ]
    _fill(conn, sizes)

    found = _lines(conn)

    assert found == [None if size is None else bytes([33 + at % 90]) * size for at, size in enumerate(sizes)]
    assert conn.execute("select count(*) from line") == [(len(sizes),)]  # nothing is left in the buffer


def test_an_error_behind_the_first_rows_is_raised_and_the_connection_goes_on(conn: Connection) -> None:
    _fill(conn, [40] * 2_000)
    late = "select if(id < 1990, value, (select value from line where id >= l.id)) from line l order by id"

    with pytest.raises(TargetError, match="more than 1 row"):
        list(conn.stream_lines(late))

    assert len(_lines(conn)) == 2_000


def test_what_is_not_read_is_left_behind(conn: Connection) -> None:
    _fill(conn, [300] * 20_000)
    blocks = conn.stream_lines("select value from line order by id")
    assert next(blocks)[0] == b"!" * 300

    blocks.close()

    assert conn.execute("select count(*) from line") == [(20_000,)]


def test_a_block_of_long_rows_is_bounded_by_its_bytes(conn: Connection) -> None:
    size, count = 200_000, 150
    _fill(conn, [size] * count)

    blocks = [len(block) for block in conn.stream_lines("select value from line order by id")]

    assert sum(blocks) == count
    assert max(blocks) * size <= BLOCK_BYTES + BUFFER_BYTES + size
