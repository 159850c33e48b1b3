"""What a target is, before anything is planned on it."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from spark.purge.reading.inspect import Inspection, inspect
from spark.targets.connection import Target, connect, target_now
from spark.targets.errors import MixedTimeTypes, TargetSchemaUnsupported, TargetTablesMissing
from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Row,
    Version,
    build,
    create,
    reference_database,
    session,
)
from tests.spark.purge.outgoing_run import target_of


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Empty 3.x tables with another prefix."""
    if request.param == "sqlite":
        found = Place(f"sqlite:///{tmp_path}/sym.db", version="3.x", prefix="corp_")
    elif request.param == "mariadb":
        found = Place(request.getfixturevalue("mariadb_url"), version="3.x", prefix="corp_")
    else:
        found = Place(
            request.getfixturevalue("postgresql_url"), version="3.x", prefix="corp_", schema="tenant"
        )
    create(found)
    return found


def _inspect(target: Target) -> Inspection:
    with connect(target, application_name="inspect", read_only=True) as conn:
        return inspect(conn)


def _run(place: Place, *statements: str) -> None:
    with session(place) as target:
        for statement in statements:
            target.run(statement)


def _data(data_id: int, time: object) -> Row:
    row = {"data_id": data_id, "table_name": "item", "event_type": "I", "trigger_hist_id": 1}
    return {**row, "create_time": time}


@pytest.mark.parametrize("version", VERSIONS)
def test_reference_database_is_recognised(version: Version) -> None:
    found = _inspect(Target(f"sqlite:///{reference_database(version)}"))
    assert found.layout.version == version
    assert found.layout.data_gap_has_status == (version == "2.x")
    assert found.time_encoding == "text"
    assert found.sizes["sym_data"] == (315, None)


def test_writable_target_misses_no_right_and_tells_its_clock(place: Place) -> None:
    found = _inspect(target_of(place))
    assert found.permissions_missing == ()
    assert found.can_create_ledger
    assert not found.read_only
    assert found.layout.common_batches
    assert found.own_purge_running == ()
    assert found.identity.startswith(target_of(place).dialect)
    with connect(target_of(place), application_name="t") as conn:
        assert abs(target_now(conn) - found.now) < timedelta(minutes=1)


def test_missing_table_is_named_with_a_hint(place: Place) -> None:
    _run(place, f"drop table {place.name('data_event')}")
    with pytest.raises(TargetTablesMissing, match="corp_data_event not found"):
        _inspect(target_of(place))
    wrong = Target(place.url, schema=place.schema, table_prefix="sym_")
    with pytest.raises(TargetTablesMissing, match=r"sym_data, .*there is .*corp_data: check"):
        _inspect(wrong)


def test_missing_column_is_not_supported(place: Place) -> None:
    _run(place, f"alter table {place.name('data')} rename column create_time to made")
    with pytest.raises(TargetSchemaUnsupported, match="corp_data has no column create_time"):
        _inspect(target_of(place))


def test_parameters_of_the_own_node_win_over_those_of_its_group(place: Place) -> None:
    time = "current_timestamp"
    columns = "external_id, node_group_id, param_key, param_value, last_update_time"
    into = f"insert into {place.name('parameter')} ({columns})"
    node = f"insert into {place.name('node')} (node_id, node_group_id, external_id)"
    rows = [
        ("ALL", "ALL", "a", "1"),
        ("ALL", "store", "a", "2"),
        ("s1", "store", "a", "3"),
        ("ALL", "ALL", "b", "1"),
        ("ALL", "store", "b", "2"),
        ("ALL", "server", "b", "9"),
        ("s2", "store", "b", "9"),
        ("ALL", "ALL", "c", "1"),
    ]
    _run(
        place,
        *(f"{into} values ('{e}', '{g}', '{k}', '{v}', {time})" for e, g, k, v in rows),
        f"create table {place.name('node_identity')} (node_id varchar(50) primary key)",
        f"insert into {place.name('node_identity')} values ('00001')",
        f"{node} values ('00001', 'store', 's1')",
        f"{node} values ('00000', 'server', 's0')",
    )
    assert _inspect(target_of(place)).sym_parameter == {"a": "3", "b": "2", "c": "1"}
    _run(place, f"drop table {place.name('node_identity')}")
    assert _inspect(target_of(place)).sym_parameter == {"a": "1", "b": "1", "c": "1"}
    _run(place, f"delete from {place.name('node')} where node_id = '00000'")
    assert _inspect(target_of(place)).sym_parameter == {"a": "2", "b": "2", "c": "1"}


def test_lock_of_the_programs_own_purge_is_reported(place: Place) -> None:
    _run(
        place,
        f"insert into {place.name('lock')} (lock_action, lock_type, locking_server_id, lock_time)"
        " values ('PURGE_OUTGOING', 'CLUSTER', 'host-1', '2026-11-01 00:00:00')",
    )
    [hint] = _inspect(target_of(place)).own_purge_running
    assert "PURGE_OUTGOING is held by host-1" in hint


def test_milliseconds_are_found_by_their_type(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", encoding="epoch_ms")
    build(place, {"data": [_data(1, CUTOFF), _data(2, None)]})
    assert _inspect(target_of(place)).time_encoding == "epoch_ms"


@pytest.mark.parametrize("other", [1_700_000_000, 1_700_000_000_000, 2460000.5, "'soon'", "'1700000000000x'"])
def test_times_that_do_not_compare_are_refused(tmp_path: Path, other: object) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    build(place, {"data": [_data(1, CUTOFF), _data(2, CUTOFF)]})
    _run(place, f"update sym_data set create_time = {other} where data_id = 2")
    with pytest.raises(MixedTimeTypes):
        _inspect(target_of(place))


def test_zoned_times_of_postgresql_are_instants(postgresql_url: str) -> None:
    place = Place(postgresql_url)
    create(place)
    _run(place, "alter table sym_data alter column create_time type timestamptz")
    with pytest.raises(MixedTimeTypes):
        _inspect(target_of(place))
    _run(place, "alter table sym_outgoing_batch alter column create_time type timestamptz")
    assert _inspect(target_of(place)).time_encoding == "timestamptz"


def test_rights_that_a_role_lacks_are_named(postgresql_url: str) -> None:
    place = Place(postgresql_url)
    create(place)
    role = f"reader_{postgresql_url.rpartition('_')[2]}"
    with closing(connect(target_of(place), application_name="admin")) as admin:
        admin.execute(f"create role {role}")
        try:
            admin.execute(f"grant usage on schema public to {role}")
            admin.execute(f"grant select on all tables in schema public to {role}")
            admin.execute(f"grant update (status) on sym_outgoing_batch to {role}")
            admin.execute(f"set role {role}")
            found = inspect(admin)
            admin.execute("reset role")
        finally:
            admin.execute(f"drop owned by {role}")
            admin.execute(f"drop role {role}")
    assert found.permissions_missing == (
        ("sym_data", "DELETE"),
        ("sym_data_event", "DELETE"),
        ("sym_outgoing_batch", "DELETE"),
    )
    assert not found.can_create_ledger
