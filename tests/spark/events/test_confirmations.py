"""Who has confirmed what, against a brute-force model; confirmations made by hand."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from spark.events.catalog import read_catalog
from spark.events.confirmations import (
    Confirmer,
    Confirmers,
    ConfirmOutcome,
    confirm,
    confirmed_upto,
    confirmers,
    read_matrix,
)
from spark.events.records import Catalog, Confirmed
from spark.targets.connection import Connection
from spark.targets.errors import TargetReadOnly
from tests.spark.events.catalogs import Catalogs, LoadedCatalog, State, recorded_rows

START = datetime(2026, 11, 20, 8, tzinfo=UTC)
# slony1_funcs.2.2.11: inserts only what is greater; its time has no zone.
FORWARD_CONFIRM = """
create function forwardConfirm(o int4, r int4, s int8, t timestamp) returns bigint language plpgsql as $$
declare newest bigint;
begin
    select coalesce(max(con_seqno), 0) into newest from {schema}.sl_confirm
        where con_origin = o and con_received = r;
    if newest < s then
        insert into {schema}.sl_confirm (con_origin, con_received, con_seqno, con_timestamp)
            values (o, r, s, t);
        newest := s;
    end if;
    return newest;
end $$
"""


@contextmanager
def asked(loaded: LoadedCatalog) -> Iterator[tuple[Connection, Catalog]]:
    with loaded.connect() as conn:
        yield conn, read_catalog(conn, loaded.cluster)


@dataclass
class Model:
    """Rows as Python values, and what they mean, worked out pair by pair."""

    nodes: list[tuple[int, bool, bool]]
    events: list[tuple[int, int, datetime]]
    confirms: list[tuple[int, int, int, datetime]]

    def newest(self, origin: int, receiver: int) -> tuple[int | None, datetime | None]:
        rows = [(s, at) for o, r, s, at in self.confirms if (o, r) == (origin, receiver)]
        top = max((s for s, _ in rows), default=None)
        return top, min((at for s, at in rows if s == top), default=None)

    def pair(self, origin: int, receiver: int) -> tuple[object, ...]:
        """All but the lag, and since when it is behind: "NEVER", "CURRENT" or an instant."""
        seqno, at = self.newest(origin, receiver)
        own = sorted((s, made) for o, s, made in self.events if o == origin)
        above = [(s, made) for s, made in own if seqno is None or s > seqno]
        below = [(s, made) for s, made in own if seqno is not None and s <= seqno]
        since: object = "CURRENT"
        if seqno is None:
            since = "NEVER"
        elif above:
            since = below[-1][1] if below else above[0][1]
        return origin, receiver, seqno, at, own[-1][0] if own else None, len(above), since

    def matrix(self) -> list[tuple[object, ...]]:
        ids = sorted(node for node, _, _ in self.nodes)
        return [self.pair(o, r) for o in ids for r in ids if o != r]

    def confirmers(self, origin: int, seqno: int) -> Confirmers:
        done, outstanding = [], []
        for node, is_active, has_failed in sorted(self.nodes):
            if node == origin:
                continue
            newest, at = self.newest(origin, node)
            if newest is not None and newest >= seqno:
                done.append(Confirmer(node, is_active and not has_failed, newest, at))
            elif is_active and not has_failed:
                outstanding.append(node)
        return Confirmers(tuple(done), tuple(outstanding))

    def write(self, loaded: LoadedCatalog, rng: random.Random) -> None:
        with loaded.raw() as raw, raw.cursor() as cursor:
            cursor.executemany("insert into sl_node values (%s, %s, 'x', %s)", self.nodes)
            for table, rows in (
                ("sl_event (ev_origin, ev_seqno, ev_timestamp)", self.events),
                ("sl_confirm (con_origin, con_received, con_seqno, con_timestamp)", self.confirms),
            ):
                with cursor.copy(f"copy {table} from stdin") as copy:
                    for row in rng.sample(rows, len(rows)):
                        copy.write_row(row)


def random_model(rng: random.Random) -> Model:
    """Nodes of every state, gaps, duplicates, rows of nodes that are gone, pairs without any row."""
    ids = rng.sample(range(1, 12), rng.randint(1, 5))
    nodes = [(node, rng.random() < 0.8, rng.random() < 0.2) for node in ids]
    known = [*ids, 40]
    top = rng.choice((0, 5, 30))
    events = [
        (origin, 5_000_000_000 + number, START + timedelta(seconds=rng.randrange(100)))
        for origin in known
        for number in range(1, top + 1)
        if rng.random() < 0.7
    ]
    confirms = []
    for origin in known:
        for receiver in known:
            if rng.random() < 0.3:
                continue
            for _ in range(rng.randint(1, 4)):
                seqno = rng.choice((0, 5_000_000_000 + rng.randrange(top + 4)))
                row = (origin, receiver, seqno, START + timedelta(seconds=rng.randrange(100)))
                confirms += [row] * rng.choice((1, 1, 2))
                confirms += [(*row[:3], row[3] + timedelta(days=1))] * rng.choice((0, 0, 1))
    return Model(nodes, events, confirms)


def since(found: Confirmed, now: datetime) -> object:
    """What the lag says: since when."""
    if found.lag is None:
        return "NEVER"
    return "CURRENT" if found.lag == timedelta(0) else now - found.lag


def assert_matrix(found: list[Confirmed], expected: list[tuple[object, ...]], now: datetime) -> None:
    """Equal, the lag within the seconds that the reading took."""
    assert [_without_lag(one) for one in found] == [row[:-1] for row in expected]
    for one, (*_, wanted) in zip(found, expected, strict=True):
        told = since(one, now)
        if isinstance(wanted, datetime):
            assert isinstance(told, datetime)
            assert abs(told - wanted) < timedelta(seconds=20), (one, wanted)
        else:
            assert told == wanted, one


def _without_lag(one: Confirmed) -> tuple[object, ...]:
    return one.origin, one.receiver, one.seqno, one.timestamp, one.last_seqno, one.lag_events


@pytest.mark.parametrize("seed", range(25))
def test_random_catalog_is_told_as_the_model_tells_it(catalogs: Catalogs, seed: int) -> None:
    rng = random.Random(seed)
    loaded, model = catalogs.empty(cluster="Night Shift"), random_model(rng)
    model.write(loaded, rng)
    ids = {node for node, _, _ in model.nodes}
    with asked(loaded) as (conn, catalog):
        assert_matrix(read_matrix(conn, catalog), model.matrix(), datetime.now(UTC))
        assert confirmed_upto(conn, catalog) == {
            (o, r): max(s for o2, r2, s, _ in model.confirms if (o2, r2) == (o, r))
            for o, r in {(o, r) for o, r, _, _ in model.confirms}
            if o != r and {o, r} <= ids
        }
        for _ in range(10):
            origin, seqno = rng.choice([*ids, 40, 41]), 5_000_000_000 + rng.randrange(34)
            assert confirmers(conn, catalog, origin, seqno) == model.confirmers(origin, seqno)


@pytest.mark.parametrize("node", [1, 2, 3])
@pytest.mark.parametrize("state", ["fxa", "fxc"])
def test_recorded_catalog_is_told_as_the_model_tells_it(catalogs: Catalogs, state: State, node: int) -> None:
    rows = recorded_rows(state, node)
    model = Model(
        [tuple(row) for row in rows["sl_node"]],
        [(o, s, datetime.fromisoformat(at)) for o, s, at, *_ in rows["sl_event"]],
        [(o, r, s, datetime.fromisoformat(at)) for o, r, s, at in rows["sl_confirm"]],
    )
    with asked(catalogs.load(state, node)) as (conn, catalog):
        assert_matrix(read_matrix(conn, catalog), model.matrix(), datetime.now(UTC))


def test_frozen_receiver_is_behind_and_one_without_rows_infinitely(catalogs: Catalogs) -> None:
    """Node 3 was stopped at 5000000113; afterwards somebody deleted what node 2 had confirmed."""
    loaded = catalogs.load("fxa", 1)
    loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 2")
    with asked(loaded) as (conn, catalog):
        found = {(one.origin, one.receiver): one for one in read_matrix(conn, catalog)}
        assert len(found) == 6
        assert confirmers(conn, catalog, 1, 5_000_000_113) == Confirmers(
            (Confirmer(3, True, 5_000_000_113, found[1, 3].timestamp),), (2,)
        )
        assert confirmers(conn, catalog, 1, 5_000_000_114) == Confirmers((), (2, 3))
    two, three = found[1, 2], found[1, 3]
    assert (two.seqno, two.timestamp, two.lag_events, two.lag) == (None, None, 142, None)
    assert (three.seqno, three.last_seqno, three.lag_events) == (5_000_000_113, 5_000_000_142, 29)
    assert three.lag is not None
    assert three.lag > timedelta(0)


def test_clock_ahead_and_rows_without_times_give_no_negative_lag(catalogs: Catalogs) -> None:
    loaded = catalogs.empty()
    loaded.execute(
        "insert into sl_node values (1, true, '', false), (2, true, '', false), (3, true, '', false)",
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp) values (1, 1, now() + interval '1 day'),"
        " (1, 2, 'infinity'), (2, 1, null), (2, 2, '-infinity'), (3, 9223372036854775807, now())",
        "insert into sl_confirm values (1, 2, 1, null), (2, 1, 1, 'infinity'), (2, 3, null, now()),"
        " (3, 1, 9223372036854775807, now())",
    )
    with asked(loaded) as (conn, catalog):
        found = {(one.origin, one.receiver): one for one in read_matrix(conn, catalog)}
    assert (found[1, 2].lag_events, found[1, 2].lag) == (1, timedelta(0))
    assert (found[1, 2].seqno, found[1, 2].timestamp) == (1, None)
    assert (found[2, 1].lag_events, found[2, 1].seqno) == (1, 1)
    assert (found[2, 3].seqno, found[2, 3].lag) == (None, None)
    assert (found[3, 1].lag_events, found[3, 1].lag) == (0, timedelta(0))
    assert (found[3, 2].lag_events, found[3, 2].lag) == (1, None)


@pytest.fixture(params=["function", "table"])
def confirming(request: pytest.FixtureRequest, catalogs: Catalogs) -> LoadedCatalog:
    """A node with the cluster's function, and one with the tables alone."""
    loaded = catalogs.load("fxa", 1, cluster="Night Shift")
    if request.param == "function":
        loaded.execute(FORWARD_CONFIRM.format(schema='"_Night Shift"'))
    return loaded


def test_confirmation_moves_forward_only(confirming: LoadedCatalog) -> None:
    """Node 3 has confirmed node 1's events up to 5000000113."""
    old, new = 5_000_000_113, 5_000_000_120
    with asked(confirming) as (conn, catalog):
        started = datetime.now(UTC) - timedelta(seconds=5)
        assert confirm(conn, catalog, 1, 3, old - 5) == ConfirmOutcome(False, old, old)
        assert confirm(conn, catalog, 1, 3, old) == ConfirmOutcome(False, old, old)
        assert confirming.rows() == recorded_rows("fxa", 1)
        assert confirm(conn, catalog, 1, 3, new) == ConfirmOutcome(True, old, new)
        assert confirm(conn, catalog, 1, 3, new) == ConfirmOutcome(False, new, new)
        assert confirm(conn, catalog, 1, 3, new - 1) == ConfirmOutcome(False, new, new)
        assert confirmed_upto(conn, catalog)[1, 3] == new
    found, before = confirming.rows(), recorded_rows("fxa", 1)
    [added] = [row for row in found["sl_confirm"] if row not in before["sl_confirm"]]
    assert added[:3] == [1, 3, new]
    assert started < datetime.fromisoformat(added[3]) < datetime.now(UTC) + timedelta(seconds=5)
    found["sl_confirm"].remove(added)
    assert found == before


def test_first_confirmation_of_a_pair_is_written(confirming: LoadedCatalog) -> None:
    confirming.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    with asked(confirming) as (conn, catalog):
        assert confirm(conn, catalog, 1, 3, 7) == ConfirmOutcome(True, None, 7)
        assert confirm(conn, catalog, 1, 3, 7) == ConfirmOutcome(False, 7, 7)
        assert confirmers(conn, catalog, 1, 7).confirmed_by[1].seqno == 7


def test_writer_and_cleaner_of_the_cluster_are_not_waited_for(confirming: LoadedCatalog) -> None:
    """A slon inserts into sl_confirm, and another holds the cluster's lock: neither is in the way."""
    with (
        confirming.raw(autocommit=False) as slon,
        confirming.raw(autocommit=False) as cleaner,
        asked(confirming) as (conn, catalog),
    ):
        slon.execute("insert into sl_confirm values (1, 3, 5000000119, now())")
        cleaner.execute("lock table sl_config_lock")
        found = confirm(conn, catalog, 1, 3, 5_000_000_120)
        assert found == ConfirmOutcome(True, 5_000_000_113, 5_000_000_120)
        assert confirm(conn, catalog, 1, 3, 5_000_000_118).changed is False
        slon.commit()
        assert confirmed_upto(conn, catalog)[1, 3] == 5_000_000_120


def test_role_that_may_only_read_confirms_nothing(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    loaded.execute(
        f"grant usage on schema _lab to {role}",
        f"grant select on all tables in schema _lab to {role}",
        f"grant select on all sequences in schema _lab to {role}",
    )
    with asked(loaded.as_role(role)) as (conn, catalog):
        assert len(read_matrix(conn, catalog)) == 6
        with pytest.raises(TargetReadOnly, match="permission denied for table sl_confirm"):
            confirm(conn, catalog, 1, 3, 5_000_000_120)
    assert loaded.rows() == recorded_rows("fxa", 1)


def test_matrix_of_many_confirmations_looks_each_pair_up(catalogs: Catalogs) -> None:
    """200,000 rows of confirmations are not read through: each pair is a look-up in the index."""
    loaded = catalogs.empty()
    loaded.execute(
        "insert into sl_node select n, true, '', false from generate_series(1, 4) n",
        "insert into sl_confirm select o, r, s, now() from generate_series(1, 4) o, generate_series(1, 4) r,"
        " generate_series(1, 5000) s where o <> r",
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_type) select o, s, now(), 'SYNC'"
        " from generate_series(1, 4) o, generate_series(1, 5010) s",
        "analyze sl_confirm, sl_event, sl_node",
    )
    plan: list[str] = []

    class Explaining:
        def __init__(self, conn: Connection) -> None:
            self.conn, self.dialect = conn, conn.dialect

        def execute(self, sql: str, params: object = None) -> list[tuple[object, ...]]:
            if "sl_confirm" not in sql:
                return self.conn.execute(sql)
            plan.extend(str(line) for (line,) in self.conn.execute(f"explain {sql}"))
            return []

    with asked(loaded) as (conn, catalog):
        assert read_matrix(Explaining(conn), catalog) == []  # type: ignore[arg-type]
        found = read_matrix(conn, catalog)
    assert not any("Seq Scan" in line and "sl_node" not in line for line in plan), plan
    assert {(one.seqno, one.last_seqno, one.lag_events) for one in found} == {(5000, 5010, 10)}
    assert len(found) == 12
