"""What the consumers of a replica have acknowledged, and the floors that follow for trimming.

Invariants:
- an acknowledgement never goes back, in whatever order answers arrive; only a consumer that begins a session
  with less, because it was put back or is another one now, takes it back with it;
- an agreement counts from the commit of its registration on, with every replica id: of one that it has not
  acknowledged nothing may go;
- a removed agreement counts for FLOOR_KEEP_S more, then it is forgotten.

A total initialisation acknowledges the RUV of its beginning (S0) once the consumer has accepted it: what is
at or below travels in the entries, what is above waits in the changelog.

Locks, for everybody who takes several in one transaction: session, generator, replica, agreements, ruv rows
by replica id. Registering waits for the unit of trimming that is under way (`lock_agreements`);
acknowledging does not: an older acknowledgement only holds back more.
Source: design.md, Replication; facts/replication-session, section 12, weak point a.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.targets.connection import Connection

FLOOR_KEEP_S: Final = 7 * 86_400


class AgreementUnknown(Exception):
    """There is no agreement of this id in the replica's tables."""

    def __init__(self, agreement_id: str) -> None:
        super().__init__(agreement_id)
        self.agreement_id = agreement_id


@dataclass(frozen=True, slots=True)
class Agreement:
    """One consumer of a replica; `acknowledged` is its RUV as far as this supplier was told."""

    agreement_id: str
    consumer_rid: int | None
    registered_at_s: int
    removed_at_s: int | None = None
    acknowledged: Mapping[int, Csn] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Floor:
    """Up to where changes of one replica id may go, and who wants the next one; None: nothing may go."""

    upto: Csn | None
    held_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Floors:
    """The agreements that count at one moment."""

    agreements: tuple[Agreement, ...] = ()

    def of(self, rid: int) -> Floor | None:
        """The floor of one replica id; None: no agreement counts, so nothing is held back."""
        if not self.agreements:
            return None
        acknowledged = {each.agreement_id: each.acknowledged.get(rid) for each in self.agreements}
        silent = tuple(each for each, csn in acknowledged.items() if csn is None)
        if silent:
            return Floor(None, silent)
        least = min(csn for csn in acknowledged.values() if csn is not None)
        return Floor(least, tuple(each for each, csn in acknowledged.items() if csn == least))


def register_agreement(
    conn: Connection, agreement_id: str, *, now_s: int, consumer_rid: int | None = None
) -> None:
    """Make an agreement count; registered again it counts again, with what it had acknowledged.

    Args:
        now_s: the target's clock.
        consumer_rid: the consumer's own replica id; None leaves what is known.
    Raises: TargetError. TargetLockTimeout: a unit of trimming is under way; try again.
    """
    conn.execute(
        f"insert into {tables_of(conn).agreements} as a (id, consumer_rid, registered_at_s) "
        "values (:id, :rid, :now) on conflict (id) do update "
        "set consumer_rid = coalesce(excluded.consumer_rid, a.consumer_rid), removed_at_s = null",
        {"id": agreement_id, "rid": consumer_rid, "now": now_s},
    )


def acknowledge(
    conn: Connection, agreement_id: str, ruv: Mapping[int, str], *, consumer_rid: int | None = None
) -> None:
    """Note a consumer's RUV, its own replica id included; what is lower than noted before changes nothing.

    In the transaction of the caller, or in one of its own.

    Raises: AgreementUnknown; TargetError.
    """
    tables = tables_of(conn)
    with _transaction(conn):
        found = conn.execute(
            f"select consumer_rid from {tables.agreements} where id = :id", {"id": agreement_id}
        )
        if not found:
            raise AgreementUnknown(agreement_id)
        if consumer_rid is not None and found[0][0] != consumer_rid:
            conn.execute(
                f"update {tables.agreements} set consumer_rid = :rid where id = :id",
                {"id": agreement_id, "rid": consumer_rid},
            )
        conn.execute_many(
            f"insert into {tables.agreement_ruv} as r (agreement_id, rid, acked_csn) "
            "values (:id, :rid, :csn) on conflict (agreement_id, rid) do update "
            "set acked_csn = excluded.acked_csn where excluded.acked_csn > r.acked_csn",
            # In the order of replica ids: two answers of one consumer must not wait for each other.
            [{"id": agreement_id, "rid": rid, "csn": str(Csn(ruv[rid]))} for rid in sorted(ruv)],
        )


def take_back(conn: Connection, agreement_id: str, ruv: Mapping[int, str]) -> Sequence[int]:
    """Forget what was acknowledged above the RUV that a consumer begins a session with.

    Waits for the unit of trimming that is under way. In the transaction of the caller, or in one of its own.

    Returns: the replica ids of which something was taken back.
    Raises: TargetError. TargetLockTimeout: a unit of trimming is under way; try again.
    """
    tables = tables_of(conn)
    with _transaction(conn):
        rows = conn.execute(
            f"select rid, acked_csn from {tables.agreement_ruv} where agreement_id = :id order by rid",
            {"id": agreement_id},
        )
        above = [rid for rid, acked in rows if acked > ruv.get(rid, "")]
        if not above:
            return above
        # Nothing changes in it: but this waits for a unit of trimming, and the next one for this.
        conn.execute(
            f"update {tables.agreements} set consumer_rid = consumer_rid where id = :id", {"id": agreement_id}
        )
        for rid in above:
            params = {"id": agreement_id, "rid": rid}
            mine = "where agreement_id = :id and rid = :rid"
            if rid in ruv:
                set_back = f"update {tables.agreement_ruv} set acked_csn = :csn {mine}"
                conn.execute(set_back, params | {"csn": str(Csn(ruv[rid]))})
            else:
                conn.execute(f"delete from {tables.agreement_ruv} {mine}", params)
    return above


def remove_agreement(conn: Connection, agreement_id: str, *, now_s: int) -> None:
    """Take an agreement away; its floor stays for FLOOR_KEEP_S. Removed again it keeps its first time.

    Raises: AgreementUnknown; TargetError.
    """
    changed = conn.execute_count(
        f"update {tables_of(conn).agreements} set removed_at_s = coalesce(removed_at_s, :now) where id = :id",
        {"id": agreement_id, "now": now_s},
    )
    if not changed:
        raise AgreementUnknown(agreement_id)


def read_agreements(conn: Connection) -> list[Agreement]:
    """Every agreement in the order of their ids, removed ones too until they are forgotten."""
    tables = tables_of(conn)
    # One statement, so that agreements and acknowledgements are of one moment in READ COMMITTED too.
    rows = conn.execute(
        "select a.id, a.consumer_rid, a.registered_at_s, a.removed_at_s, r.rid, r.acked_csn "
        f"from {tables.agreements} a left join {tables.agreement_ruv} r on r.agreement_id = a.id "
        "order by a.id, r.rid"
    )
    heads: dict[str, tuple[int | None, int, int | None]] = {}
    vectors: dict[str, dict[int, Csn]] = {}
    for agreement_id, consumer_rid, registered_at_s, removed_at_s, rid, csn in rows:
        heads[agreement_id] = (consumer_rid, registered_at_s, removed_at_s)
        vector = vectors.setdefault(agreement_id, {})
        if rid is not None:
            vector[rid] = Csn(csn)
    return [Agreement(each, *heads[each], vectors[each]) for each in heads]


def floors(conn: Connection, *, now_s: int) -> Floors:
    """The agreements that count now: registered ones, and those removed less than FLOOR_KEEP_S ago.

    Args:
        now_s: the target's clock.
    """
    return Floors(tuple(each for each in read_agreements(conn) if _counts(each, now_s)))


def lock_agreements(conn: Connection) -> None:
    """Keep agreements from being registered until the transaction ends, and wait for one that is.

    Raises: TargetLockTimeout: one is being registered at this moment.
    """
    assert conn.in_transaction, "the lock must last as long as the effect"
    if conn.dialect.name == "postgresql":
        conn.execute(f"lock table {tables_of(conn).agreements} in share mode")


def forget_removed(conn: Connection, *, now_s: int) -> Sequence[str]:
    """Delete agreements whose floor has been kept long enough; their ids.

    In the transaction of the caller, or in one of its own.
    """
    tables = tables_of(conn)
    with _transaction(conn):
        rows = conn.execute(
            f"delete from {tables.agreements} where removed_at_s <= :old returning id",
            {"old": now_s - FLOOR_KEEP_S},
        )
        gone = sorted(str(agreement_id) for (agreement_id,) in rows)
        for agreement_id in gone:
            conn.execute(f"delete from {tables.agreement_ruv} where agreement_id = :id", {"id": agreement_id})
    return gone


def _counts(agreement: Agreement, now_s: int) -> bool:
    return agreement.removed_at_s is None or now_s < agreement.removed_at_s + FLOOR_KEEP_S


@contextmanager
def _transaction(conn: Connection) -> Iterator[None]:
    if conn.in_transaction:
        yield
        return
    with conn.transaction():
        yield
