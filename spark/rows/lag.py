"""How far the replicas of a target are behind it: what it knows of them, and what they say themselves."""

from dataclasses import dataclass

from spark.targets.connection import Connection

# Places in SHOW REPLICA STATUS, which no statement names; MariaDB shows two columns before them.
IO_RUNNING, SQL_RUNNING, SECONDS_BEHIND = 10, 11, 32
MARIADB_MORE = 2
# Told without a lag: all is replayed, or nothing was yet since it connected.
_STANDBYS = """
    select coalesce(nullif(application_name, ''), host(client_addr), pid::text), state,
        case when replay_lag is not null then extract(epoch from replay_lag)
            when replay_lsn >= pg_current_wal_flush_lsn() then 0 end::float8
    from pg_catalog.pg_stat_replication where pid <> pg_backend_pid() order by 1"""
# A standby that nobody sends anything has replayed all that it has: near is only one that receives. A role
# without pg_read_all_stats sees that there is a receiver, and not its status.
_STANDBY = """
    select case when not pg_is_in_recovery() then null
        when pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() and exists (
            select 1 from pg_catalog.pg_stat_wal_receiver where coalesce(status, 'streaming') = 'streaming'
        ) then 0
        else extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()) end::float8"""


@dataclass(frozen=True, slots=True)
class Lag:
    """One replica; `seconds` None: it does not replicate, the role may not know, or (`reason`) it is away."""

    replica: str
    seconds: float | None
    reason: str | None = None


def lags_of_primary(conn: Connection) -> tuple[Lag, ...]:
    """What the target knows of its replicas; MariaDB and MySQL do not know how far theirs are."""
    if conn.dialect.name != "postgresql":
        return ()
    found = []
    for name, state, seconds in conn.execute(_STANDBYS):
        if state == "backup":
            continue
        # One that has just come back measures only from then on: it may be hours behind.
        is_known = state == "streaming" and seconds is not None
        found.append(Lag(str(name), float(seconds) if is_known else None))
    return tuple(found)


def lag_of_replica(conn: Connection, name: str) -> Lag:
    """What a replica says of itself."""
    if conn.dialect.name == "postgresql":
        [(seconds,)] = conn.execute(_STANDBY)
        return Lag(name, None if seconds is None else float(seconds))
    if conn.dialect.name == "mysql":
        return Lag(name, _mysql_lag(conn))
    return Lag(name, None)


def _mysql_lag(conn: Connection) -> float | None:
    """The greatest delay of all its sources; None: it has none, or does not follow one of them."""
    is_mariadb = "mariadb" in str(conn.execute("select version()")[0][0]).lower()
    shift = MARIADB_MORE if is_mariadb else 0
    rows = conn.execute("show all slaves status" if is_mariadb else "show replica status")
    lags = []
    for row in rows:
        is_followed = str(row[IO_RUNNING + shift]) == "Yes" and str(row[SQL_RUNNING + shift]) == "Yes"
        behind = row[SECONDS_BEHIND + shift]
        if not is_followed or behind is None:
            return None
        lags.append(float(behind))
    return max(lags, default=None)
