"""A replica of Lethe's own protocol."""

from app.auth.scopes import Scope
from app.kinds.parameter import STORE, ParameterSpec, ParameterType
from app.kinds.rules import SQL_FIELDS, KindRules
from spark.formats.replica import PREFIX_DEFAULT

_INT_MAX = 2_147_483_647

PARAMETERS = (
    ParameterSpec(
        "je.cleaner.extinctScanBatchSize",
        ParameterType.INTEGER,
        10_000,
        "How many entries a scan for extinct ones looks at before it pauses, at a replica; on PostgreSQL in"
        " one transaction, on SQLite in transactions of 200 at most.",
        unit="rows",
        minimum=1,
        maximum=100_000,
    ),
    ParameterSpec(
        "je.cleaner.extinctScanBatchDelay",
        ParameterType.DURATION,
        "PT0.002S",
        "How long a scan for extinct entries pauses after each batch, at a replica.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="PT60S",
    ),
    ParameterSpec(
        "nsslapd-changelogmaxage",
        ParameterType.DURATION,
        "P7D",
        "How long records stay in the changelog of a replica, counted from when they were logged here; PT0S:"
        " no bound. What a consumer has not acknowledged stays however old it is.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P36500D",
    ),
    ParameterSpec(
        "nsslapd-changelogmaxentries",
        ParameterType.INTEGER,
        0,
        "How many records stay in the changelog of a replica, the newest ones; 0: no bound.",
        unit="records",
        minimum=0,
        maximum=_INT_MAX,
    ),
    ParameterSpec(
        "nsslapd-changelogtrim-interval",
        ParameterType.DURATION,
        "PT0S",
        "How often Lethe itself trims the changelog of this replica; PT0S: never. Five minutes in 389, off"
        " here: nothing is removed unasked. Set on a store, never for all.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P30D",
        scopes=STORE,
        needs=Scope.PURGES_WRITE,
    ),
    ParameterSpec(
        "nsds5ReplicaPurgeDelay",
        ParameterType.DURATION,
        "P7D",
        "How old the tombstone of a deleted key must be before a purge TOMBSTONES may remove it, by the time"
        " in its CSN; PT0S: all stay. Below P1D a purge needs `force`: a write that is under way"
        " at a consumer may be older than a delete that it knows. What a consumer or a replica id still needs"
        " stays however old it is.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P36500D",
    ),
    ParameterSpec(
        "nsds5ReplicaTombstonePurgeInterval",
        ParameterType.DURATION,
        "PT0S",
        "How often Lethe itself purges the tombstones of this replica; PT0S: never. A day in 389, off here:"
        " nothing is removed unasked. Set on a store, never for all.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P30D",
        scopes=STORE,
        needs=Scope.PURGES_WRITE,
    ),
    ParameterSpec(
        "replication.clock.ahead.max",
        ParameterType.DURATION,
        "PT5M",
        "How far ahead of this service's clock a CSN of a peer may be: a supplier's or consumer's clock, an"
        " element of its RUV, a change. What is further ahead is refused (CLOCK_SKEW; a change is a dead"
        " letter, CSN_FROM_THE_FUTURE), and the replica's own CSNs do not follow it.",
        unit="ISO 8601",
        minimum="PT1S",
        maximum="P1D",
    ),
)
RULES = KindRules(
    fields=SQL_FIELDS | {"rid", "generation"},
    needs=("url", "rid"),
    dialects=frozenset({"postgresql", "sqlite"}),
    lies_on="a replica lies on PostgreSQL or SQLite",
    defaults={"table_prefix": PREFIX_DEFAULT},
    example={"id": "orders", "kind": "REPLICA", "url": "sqlite:////var/lib/orders/replica.db", "rid": 1},
    parameters=PARAMETERS,
)
