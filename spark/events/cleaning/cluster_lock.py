"""The lock under which everything that works on a cluster's configuration or cleans up takes turns.

The program's own cleaners take it as the first statement of their transaction, and so does Lethe: setval is
not transactional, so two of them at once would leave a status that fits neither. Units that remove
confirmations or events share it: each keeps everybody else out, and not one another.
Source: facts/slony, section 3, HAZARDS.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from spark.events.cleaning.errors import ClusterLocked
from spark.events.records import Catalog
from spark.formats.slony import CONFIG_LOCK
from spark.targets.connection import Connection
from spark.targets.errors import TargetLockTimeout


@contextmanager
def locked(conn: Connection, catalog: Catalog) -> Iterator[None]:
    """One transaction, READ COMMITTED, under the cluster's lock from its first statement on.

    Raises: ClusterLocked: not had within the session's lock timeout; whatever ends the transaction.
    """
    with conn.transaction():
        lock_cluster(conn, catalog.schema)
        yield


def lock_cluster(conn: Connection, schema: str, *, is_shared: bool = False) -> None:
    """Take the lock to the end of the transaction.

    Args:
        is_shared: with others that share it; whoever takes it alone is kept out all the same.
    Raises: ClusterLocked.
    """
    assert conn.in_transaction, "the lock ends with its transaction"
    take_lock(conn, schema, mode="share" if is_shared else "access exclusive")


def take_lock(conn: Connection, schema: str, *, mode: str = "access exclusive") -> None:
    """As `lock_cluster`, for a transaction that was begun by a statement.

    Raises: ClusterLocked.
    """
    try:
        conn.execute(f"lock table {conn.dialect.qualify(schema, CONFIG_LOCK)} in {mode} mode")
    except TargetLockTimeout as error:
        raise ClusterLocked(
            f"somebody else works on the cluster of {schema}: {error.detail}", sqlstate=error.sqlstate
        ) from error
