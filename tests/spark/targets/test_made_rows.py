"""What is made of each row while it is read: the values are those of a plain statement."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from spark.targets.connection import Target
from spark.targets.errors import TargetCancelled, TargetError, TargetSchemaUnsupported
from tests.spark.targets.conftest import Connect

VALUES = """
select n, n::bigint * 4611686018427387904, null::integer, null::text, 'é' || chr(n + 1), 'x'::"char"::text,
    array['a', null, '', 'NULL', '"', '\\', '{,}', ' é ', repeat('x', n)], array[]::text[], null::text[]
from generate_series(-1, 0) n where n > -1
union all select -2147483648, -9223372036854775808, 2147483647, '', E'\\t\\n', '',
    array[''], array[null], '{}'
"""


def test_values_are_those_of_a_plain_statement(postgresql: Target, opened: Connect) -> None:
    with opened(postgresql) as conn:
        wanted = conn.execute(VALUES)
        assert conn.execute_made(VALUES, list) == [list(row) for row in wanted]
        assert len(wanted) == 2
        assert conn.execute_made("select 1 where false", list) == []


def test_an_error_while_making_leaves_the_connection_whole(postgresql: Target, opened: Connect) -> None:
    def make(row: Sequence[Any]) -> int:
        raise ValueError(row[0])

    with opened(postgresql) as conn, conn.transaction(read_only=True):
        with pytest.raises(ValueError, match="7"):
            conn.execute_made("select 7 from generate_series(1, 1000)", make)
        assert conn.execute_made("select 8", list) == [[8]]


def test_it_is_cancelled_as_any_statement(postgresql: Target, opened: Connect) -> None:
    with opened(postgresql) as conn:
        timer = threading.Timer(0.2, conn.cancel)
        timer.start()
        with pytest.raises(TargetCancelled):
            conn.execute_made("select pg_sleep(60)", list)
        timer.join()
        with pytest.raises(TargetCancelled):
            conn.execute_made("select 1", list)
        conn.reset_cancel()
        with pytest.raises(TargetError, match="nothing_here"):
            conn.execute_made("select * from nothing_here", list)


@pytest.mark.parametrize("other", ["sqlite", "mysql"])
def test_other_databases_do_not_have_it(other: str, request: pytest.FixtureRequest, opened: Connect) -> None:
    target: Target = request.getfixturevalue(other)
    with opened(target) as conn, pytest.raises(TargetSchemaUnsupported):
        conn.execute_made("select 1", list)
