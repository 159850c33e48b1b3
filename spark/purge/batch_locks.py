"""The lock of a unit: every batch row that its range reaches stays as it is until the unit ends.

Source: facts/locks.md, 'The row lock of the outgoing purge'.
"""

from collections.abc import Mapping
from typing import Any

from spark.purge.statements import Statements, Step
from spark.targets.connection import Connection

# MySQL looks each id of a list up by key as long as the list is short enough to be planned so.
LISTED_MAX = 900


def lock_batches(conn: Connection, step: Step, statements: Statements, parameters: Mapping[str, Any]) -> int:
    """Lock the batches in key order; how many there are (0 where the transaction keeps all writers out).

    Args:
        parameters: what the statements of the step name.
    Raises: TargetLockTimeout: somebody is changing one of them.
    """
    assert conn.in_transaction, "a lock lasts as long as its transaction"
    share_lock = conn.dialect.share_lock("b")
    if conn.dialect.name == "mysql":
        return _lock_listed(conn, step, statements, parameters, share_lock)
    sql = statements.lock(step, share_lock)
    if sql is None:
        return 0
    [(locked,)] = conn.execute(sql, parameters)
    return int(locked)


def _lock_listed(
    conn: Connection, step: Step, statements: Statements, parameters: Mapping[str, Any], share_lock: str
) -> int:
    """MySQL: as one statement it would be a join that begins with the batches, and locks all of them."""
    sql = statements.lock_listed(step, share_lock)
    if sql is None:
        return 0
    if step != "DATA":
        return len(conn.execute(sql, parameters))
    ids = sorted(int(batch) for (batch,) in conn.execute(statements.reached(), parameters))
    parts = [ids[first : first + LISTED_MAX] for first in range(0, len(ids), LISTED_MAX)]
    return sum(len(conn.execute(sql, {"listed": part})) for part in parts)
