"""Who may work on a resource of the target: a token that only grows.

Invariants:
- The claim raises the row in a transaction of its own; units only read it, FOR SHARE, and hold it to their
  end. So a claim that has returned has waited for every unit of a smaller token, and none begins afterwards.
- Raising waits no longer than the lock timeout of its connection.

Source: facts/locks.md (an UPDATE in each unit would serialise all workers).
"""

from spark.targets.connection import Connection
from spark.targets.errors import FenceRaised

# Below every token: of a row that was made a moment ago, in the transaction that gives it an owner.
NOBODY = -1


def raise_fence(conn: Connection, resource: str, *, token: int, owner: str) -> None:
    """Claim a resource; the same token of the same owner may claim again.

    Raises: FenceRaised: the row is somebody else's, with our token or a greater one.
        TargetLockTimeout: a unit of the former owner is still under way; try again.
    """
    fence = conn.dialect.lethe_table("fence")
    with conn.transaction():
        if read_fence(conn, resource) == (token, owner):
            return
        if conn.dialect.name == "mysql":
            _raise_mysql(conn, resource, token=token, owner=owner)
            return
        won = conn.execute(
            f"insert into {fence} as f (resource, token, owner) values (:resource, :token, :owner) "
            "on conflict (resource) do update set token = excluded.token, owner = excluded.owner "
            "where f.token < excluded.token or (f.token = excluded.token and f.owner = excluded.owner) "
            "returning token",
            {"resource": resource, "token": token, "owner": owner},
        )
        if not won:
            found = read_fence(conn, resource)
            raise _raised(resource, token, found)


def _raise_mysql(conn: Connection, resource: str, *, token: int, owner: str) -> None:
    fence = conn.dialect.lethe_table("fence")
    # Makes the row or locks the one that is there, without a shared lock to be raised: two claims would
    # then wait for each other.
    conn.execute(
        f"insert into {fence} (resource, token, owner) values (:resource, :nobody, '')"
        " on duplicate key update resource = :resource",
        {"resource": resource, "nobody": NOBODY},
    )
    found = read_fence(conn, resource)
    assert found is not None, "the row is ours until the end of the transaction"
    if found[0] > token or (found[0] == token and found[1] != owner):
        raise _raised(resource, token, found)
    conn.execute(
        f"update {fence} set token = :token, owner = :owner where resource = :resource",
        {"resource": resource, "token": token, "owner": owner},
    )


def read_fence(conn: Connection, resource: str) -> tuple[int, str] | None:
    """Token and owner of a resource, without a lock."""
    rows = conn.execute(
        f"select token, owner from {conn.dialect.lethe_table('fence')} where resource = :resource",
        {"resource": resource},
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def greatest_fence(conn: Connection, resource: str) -> tuple[int, str] | None:
    """The greatest token, with its owner, of a resource and of its parts (`resource:part`)."""
    rows = conn.execute(
        f"select token, owner from {conn.dialect.lethe_table('fence')}"
        " where resource = :resource or substr(resource, 1, :length) = :prefix order by token desc limit 1",
        {"resource": resource, "prefix": f"{resource}:", "length": len(resource) + 1},
    )
    return (int(rows[0][0]), str(rows[0][1])) if rows else None


def check_fence(conn: Connection, resource: str, *, token: int) -> None:
    """Refuse a stale worker; the first statement of every unit that writes.

    Raises: FenceRaised: the row is greater, missing, or smaller than ours. Smaller means that the target went
        back in time (a restored backup): somebody older could believe the resource is his.
        TargetLockTimeout: a claim is being written at this moment.
    """
    assert conn.in_transaction, "the lock must last as long as the effect"
    rows = conn.execute(
        f"select token, owner from {conn.dialect.lethe_table('fence')} f where resource = :resource"
        f"{conn.dialect.share_lock('f')}",
        {"resource": resource},
    )
    found = (int(rows[0][0]), str(rows[0][1])) if rows else None
    if found is None or found[0] != token:
        raise _raised(resource, token, found)


def _raised(resource: str, token: int, found: tuple[int, str] | None) -> FenceRaised:
    if found is None:
        return FenceRaised(f"the fence of {resource} is gone", token=token, fence_token=None)
    return FenceRaised(
        f"{resource} belongs to {found[1]} with token {found[0]}, ours is {token}",
        token=token,
        fence_token=found[0],
    )
