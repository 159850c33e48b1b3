"""The rights that are asked for are those that the statements need: each of them, and no more."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.log_switch import read_log_status, start_switch
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleanup import log_step
from spark.events.confirmations import confirm, read_matrix
from spark.events.events import create_sync, select_events
from spark.events.records import Catalog
from spark.events.rights import RIGHTS, Ability, MissingRight, missing_rights
from spark.events.unit import UnitJob
from spark.targets.connection import Connection
from spark.targets.errors import TargetError
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.cleaning import clean_up

CUTOFF = datetime(2026, 11, 20, 8, 10, tzinfo=UTC)
SEQUENCES = ("sl_local_node_id", "sl_log_status", "sl_event_seq")
FUNCTIONS = {
    "createevent": "createEvent(name, text)",
    "seqtrack": "seqtrack(int4, int8)",
}
# As the program's own does: with the caller's rights, the sequences' values beside the event.
CREATE_EVENT = (
    "create view sl_seqlastvalue as select 1 as seq_id, 5::int8 as seq_last_value, 1 as seq_origin",
    "create function seqtrack(int4, int8) returns int8 language sql as 'select $2'",
    "create function createEvent(p_cluster name, p_type text) returns bigint language plpgsql as $$"
    " declare made bigint; begin"
    " insert into _lab.sl_event (ev_origin, ev_seqno, ev_timestamp, ev_type)"
    " select last_value, nextval('_lab.sl_event_seq'), now(), p_type from _lab.sl_local_node_id;"
    " made := currval('_lab.sl_event_seq');"
    " insert into _lab.sl_seqlog select seq_id, 1, made, seq_last_value from _lab.sl_seqlastvalue"
    " where _lab.seqtrack(seq_id, seq_last_value) is not null;"
    " return made; end $$",
    "revoke execute on all functions in schema _lab from public",
)


def read_all(conn: Connection, catalog: Catalog) -> None:
    read_matrix(conn, catalog)
    select_events(conn, catalog, limit=10)
    read_log_status(conn, catalog)


def confirm_more(conn: Connection, catalog: Catalog) -> None:
    [(newest,)] = conn.execute("select max(con_seqno) from sl_confirm where con_origin = 2")
    assert confirm(conn, catalog, 2, 3, newest + 1).changed


OPERATIONS: dict[Ability, Callable[[Connection, Catalog], object]] = {
    "READ": read_all,
    "CONFIRM": confirm_more,
    "CREATE_SYNC": create_sync,
}


def granted(verb: str, name: str, right: str, role: str) -> str:
    """A GRANT or REVOKE; LOCK TABLE asks for one of three."""
    preposition = "to" if verb == "grant" else "from"
    if right == "EXECUTE":
        return f"{verb} execute on function {FUNCTIONS[name]} {preposition} {role}"
    kind = "sequence" if name in SEQUENCES else "table"
    return f"{verb} {'delete' if right == 'LOCK' else right} on {kind} {name} {preposition} {role}"


def lacking(loaded: LoadedCatalog, ability: Ability) -> list[MissingRight]:
    with loaded.connect(read_only=True) as conn:
        return [one for one in missing_rights(conn, loaded.cluster) if one.ability == ability]


def run(loaded: LoadedCatalog, ability: Ability) -> None:
    with loaded.connect() as conn:
        OPERATIONS[ability](conn, read_catalog(conn, loaded.cluster))


@pytest.mark.parametrize("ability", [*OPERATIONS])
def test_each_right_is_needed_and_together_they_do(catalogs: Catalogs, ability: Ability) -> None:
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    loaded.execute(*CREATE_EVENT, f"grant usage on schema _lab to {role}")
    needed = list(dict.fromkeys((*RIGHTS["READ"], *RIGHTS[ability])))
    loaded.execute(*(granted("grant", name, right, role) for name, right in needed))
    by_role = loaded.as_role(role)
    assert lacking(by_role, ability) == []
    run(by_role, ability)
    for name, right in RIGHTS[ability]:
        loaded.execute(granted("revoke", name, right, role))
        assert lacking(by_role, ability) == [MissingRight(ability, name, right)]
        with pytest.raises(TargetError) as caught:
            run(by_role, ability)
        assert caught.value.code in ("TARGET_READ_ONLY", "FUNCTIONS_MISSING")
        loaded.execute(granted("grant", name, right, role))
    run(by_role, ability)


def test_cleanup_and_switch_are_done_with_their_rights(catalogs: Catalogs) -> None:
    """By its owner and by a role with just these rights: the same rows."""
    left = []
    for is_owner in (True, False):
        loaded, role = catalogs.load("fxc", 1), catalogs.role()
        rights = dict.fromkeys((*RIGHTS["READ"], *RIGHTS["CLEANUP"], *RIGHTS["LOG_SWITCH"]))
        loaded.execute(f"grant usage on schema _lab to {role}")
        loaded.execute(*(granted("grant", name, right, role) for name, right in rights))
        with (loaded if is_owner else loaded.as_role(role)).connect() as conn:
            catalog = read_catalog(conn, "lab")
            plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
            removed = clean_up(conn, plan, catalog, UnitJob("job-1", 1, "cleanup", has_ledger=False))
            left.append((removed, type(log_step(conn, catalog)).__name__, loaded.rows()))
    owners, roles = left
    assert owners == roles
    assert owners[0]["EVENT"] == 92
    assert owners[2]["sl_log_2"] == []


def test_log_switch_starts_with_its_rights(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxc", 2), catalogs.role()
    loaded.execute(f"grant usage on schema _lab to {role}")
    loaded.execute(
        *(granted("grant", name, right, role) for name, right in (*RIGHTS["READ"], *RIGHTS["LOG_SWITCH"]))
    )
    by_role = loaded.as_role(role)
    assert lacking(by_role, "LOG_SWITCH") == []
    assert [(one.name, one.right) for one in lacking(by_role, "LOG_INDICES")] == [
        ("addpartiallogindices", "EXECUTE"),
        ("sl_log_1", "OWNER"),
        ("sl_log_2", "OWNER"),
    ]
    assert lacking(by_role, "CLEANUP_NATIVE") == [
        MissingRight("CLEANUP_NATIVE", "cleanupevent", "EXECUTE"),
        MissingRight("CLEANUP_NATIVE", role, "SUPERUSER"),
    ]
    with by_role.connect() as conn:
        assert start_switch(conn, read_catalog(conn, "lab")).outcome == "STARTED"
    assert loaded.rows()["sl_log_status"] == 3


def test_lock_is_allowed_by_any_of_three_rights(catalogs: Catalogs) -> None:
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    loaded.execute(f"grant usage on schema _lab to {role}")
    by_role, wanted = loaded.as_role(role), MissingRight("CLEANUP", "sl_config_lock", "LOCK")
    for right in ("update", "delete", "truncate"):
        assert wanted in lacking(by_role, "CLEANUP")
        loaded.execute(f"grant {right} on sl_config_lock to {role}")
        assert wanted not in lacking(by_role, "CLEANUP")
        with by_role.connect() as conn, conn.transaction():
            conn.execute("lock table sl_config_lock in access exclusive mode")
        loaded.execute(f"revoke {right} on sl_config_lock from {role}")


def test_replicated_sequence_must_be_readable_for_a_sync(catalogs: Catalogs) -> None:
    """Slony-I 2.2.11 as a role without it: permission denied for sequence."""
    loaded, role = catalogs.load("fxa", 1), catalogs.role()
    loaded.execute(
        "create sequence public.history_hid_seq",
        f"grant usage on schema _lab to {role}",
        f"grant select on sl_sequence, sl_set, sl_local_node_id to {role}",
    )
    by_role, wanted = loaded.as_role(role), MissingRight("CREATE_SYNC", "public.history_hid_seq", "SELECT")
    with by_role.connect(read_only=True) as conn:
        told = [one.ability for one in missing_rights(conn, "lab")]
    assert told == sorted(told, key=list(RIGHTS).index)
    assert lacking(by_role, "CREATE_SYNC")[-1] == wanted
    loaded.execute(f"grant select on public.history_hid_seq to {role}")
    assert wanted not in lacking(by_role, "CREATE_SYNC")
    # Another node's set: this node does not read its sequence.
    loaded.execute(f"revoke select on public.history_hid_seq from {role}", "update sl_set set set_origin = 2")
    assert wanted not in lacking(by_role, "CREATE_SYNC")
