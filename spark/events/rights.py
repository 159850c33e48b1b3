"""What a role must be allowed for each thing that Lethe can do at a node, and what of it it is not.

Read from the system's catalogs alone: whoever lacks everything can still be told what.
Source: facts/slony, sections 2, 3 and 5; the statements of this package.
"""

from dataclasses import dataclass
from typing import Final, Literal

from spark.formats.slony import LOG_TABLES, schema_of
from spark.targets.connection import Connection

Ability = Literal["READ", "CREATE_SYNC", "CONFIRM", "CLEANUP", "CLEANUP_NATIVE", "LOG_SWITCH", "LOG_INDICES"]
"""LOG_INDICES: the partial indices that the program makes on an emptied log table; a switch ends without."""
Right = Literal[
    "SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "LOCK", "USAGE", "EXECUTE", "OWNER", "SUPERUSER"
]
"""LOCK: LOCK TABLE in ACCESS EXCLUSIVE mode."""


@dataclass(frozen=True, slots=True)
class MissingRight:
    """A right that a role lacks, or an object that is not there to have it on.

    Args:
        name: of the table, sequence or function in the cluster's schema; of the schema; of the role.
    """

    ability: Ability
    name: str
    right: Right


_LOCK: Final = (("sl_config_lock", "LOCK"),)
_LOGS: Final = tuple((table, "SELECT") for table in LOG_TABLES)
_CLEANUP: Final = (
    *_LOCK,
    *_LOGS,
    *(
        (table, right)
        for table in ("sl_event", "sl_confirm", "sl_seqlog", "sl_log_script", "sl_nodelock")
        for right in ("SELECT", "DELETE")
    ),
    ("sl_node", "SELECT"),
    ("sl_registry", "SELECT"),
    ("sl_log_status", "SELECT"),
)
_LOG_SWITCH: Final = (
    *_LOCK,
    *_LOGS,
    *((table, "TRUNCATE") for table in LOG_TABLES),
    *((table, "SELECT") for table in ("sl_node", "sl_event", "sl_confirm")),
    *(("sl_registry", right) for right in ("SELECT", "INSERT", "UPDATE")),
    ("sl_log_status", "SELECT"),
    ("sl_log_status", "UPDATE"),
)
_OWNED: Final = tuple((table, "OWNER") for table in LOG_TABLES)
RIGHTS: Final[dict[Ability, tuple[tuple[str, str], ...]]] = {
    "READ": (
        *((table, "SELECT") for table in ("sl_node", "sl_path", "sl_event", "sl_confirm", "sl_registry")),
        *_LOGS,
        ("sl_local_node_id", "SELECT"),
        ("sl_log_status", "SELECT"),
    ),
    # The function runs with the caller's rights; it notes the sequences' values beside a SYNC.
    "CREATE_SYNC": (
        ("createevent", "EXECUTE"),
        ("seqtrack", "EXECUTE"),
        ("sl_event_lock", "LOCK"),
        ("sl_event", "SELECT"),
        ("sl_event", "INSERT"),
        ("sl_event_seq", "USAGE"),
        ("sl_local_node_id", "SELECT"),
        ("sl_seqlog", "INSERT"),
        ("sl_seqlastvalue", "SELECT"),
    ),
    "CONFIRM": (("sl_confirm", "SELECT"), ("sl_confirm", "INSERT")),
    "CLEANUP": _CLEANUP,
    # killBackend, by which it asks for stale rows of sl_nodelock, refuses everybody but a superuser.
    "CLEANUP_NATIVE": (("cleanupevent", "EXECUTE"), ("", "SUPERUSER")),
    "LOG_SWITCH": _LOG_SWITCH,
    "LOG_INDICES": (("addpartiallogindices", "EXECUTE"), *_OWNED),
}
_RIGHTS = """
    select w.ability, w.name, w.required, case
        when w.required = 'SUPERUSER' then (select rolsuper from pg_catalog.pg_roles
                                            where rolname = current_user)
        when w.required = 'EXECUTE' then exists (
            select from pg_catalog.pg_proc p where p.pronamespace = n.oid and lower(p.proname) = w.name
                and pg_catalog.has_function_privilege(p.oid, 'EXECUTE'))
        when c.oid is null then false
        when w.required = 'OWNER' then pg_catalog.pg_has_role(c.relowner, 'USAGE')
        when w.required = 'LOCK' then pg_catalog.has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE')
        when c.relkind = 'S' then pg_catalog.has_sequence_privilege(c.oid, w.required)
        else pg_catalog.has_table_privilege(c.oid, w.required) end
    from unnest(cast(:abilities as text[]), cast(:names as text[]), cast(:rights as text[]))
        with ordinality w(ability, name, required, place)
    cross join pg_catalog.pg_namespace n
    left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.name
        and c.relkind in ('r', 'p', 'S', 'v')
    where n.nspname = :schema order by w.place
"""
_SEQUENCES = """
    select s.seq_nspname || '.' || s.seq_relname
    from {sequences} s join {sets} t on t.set_id = s.seq_set join {local} o on o.last_value = t.set_origin
    join pg_catalog.pg_namespace n on n.nspname = s.seq_nspname
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = s.seq_relname and c.relkind = 'S'
    where not (pg_catalog.has_schema_privilege(n.oid, 'USAGE')
               and pg_catalog.has_sequence_privilege(c.oid, 'SELECT'))
    order by 1 limit :limit
"""
SEQUENCES_MAX: Final = 10
"""So many replicated sequences are named."""


def missing_rights(conn: Connection, cluster: str) -> tuple[MissingRight, ...]:
    """What the role of this connection lacks, in the order of RIGHTS; what is not named is had in full.

    Without USAGE of the schema everything is lacking, and only that is told, once for each ability.
    """
    schema = schema_of(cluster)
    [(role, is_usable)] = conn.execute(
        "select current_user::text, has_schema_privilege(:schema, 'USAGE')", {"schema": schema}
    )
    if not is_usable:
        return tuple(MissingRight(ability, schema, "USAGE") for ability in RIGHTS)
    wanted = [(ability, name, right) for ability, pairs in RIGHTS.items() for name, right in pairs]
    abilities, names, rights = (list(column) for column in zip(*wanted, strict=True))
    rows = conn.execute(_RIGHTS, {"schema": schema, "abilities": abilities, "names": names, "rights": rights})
    missing = [MissingRight(ability, name or role, right) for ability, name, right, had in rows if not had]
    order = list(RIGHTS)
    return tuple(sorted((*missing, *_sequences(conn, schema)), key=lambda one: order.index(one.ability)))


def is_able(conn: Connection, cluster: str, ability: Ability) -> bool:
    """Whether the role of this connection lacks nothing for something."""
    return all(one.ability != ability for one in missing_rights(conn, cluster))


def _sequences(conn: Connection, schema: str) -> list[MissingRight]:
    """The sequences that this node replicates to others: a SYNC is made by reading each of them."""
    names = [conn.dialect.qualify(schema, name) for name in ("sl_sequence", "sl_set", "sl_local_node_id")]
    found = conn.execute(
        "select count(*) from unnest(cast(:names as text[])) w(name)"
        " join pg_catalog.pg_class c on c.oid = to_regclass(w.name)"
        " where case when c.relkind = 'S' then pg_catalog.has_sequence_privilege(c.oid, 'SELECT')"
        " else pg_catalog.has_table_privilege(c.oid, 'SELECT') end",
        {"names": names},
    )
    if found[0][0] != len(names):
        return []
    sequences, sets, local = names
    rows = conn.execute(
        _SEQUENCES.format(sequences=sequences, sets=sets, local=local), {"limit": SEQUENCES_MAX}
    )
    return [MissingRight("CREATE_SYNC", name, "SELECT") for (name,) in rows]
