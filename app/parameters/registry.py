"""The seeds' parameters by their own names, with the aliases of other versions, and Lethe's own.

Sources: symmetricds-purge (facts 3), je-data-eraser (eraser-behaviour 1), slony-events-confirmations (4).
"""

from app.auth.scopes import Scope
from app.parameters.health import HEALTH
from app.parameters.spec import ParameterScope, ParameterSpec, ParameterType

_GLOBAL = (ParameterScope.GLOBAL,)
_STORE = (ParameterScope.STORE,)
_SYM = ("SYMMETRICDS",)
_JE = ("JE",)
_REPLICA = ("REPLICA",)
_SLONY = ("SLONY",)
_ALL = (*_SYM, *_JE, *_REPLICA, *_SLONY, "SQL")
_INT_MAX = 2_147_483_647


def _minutes(name: str, default: int, description: str, *, minimum: int = 0, **more: object) -> ParameterSpec:
    return ParameterSpec(
        name,
        ParameterType.INTEGER,
        default,
        description,
        unit="minutes",
        minimum=minimum,
        maximum=5_256_000,
        kinds=_SYM,
        **more,  # type: ignore[arg-type]
    )


def _tx(name: str, default: int, description: str, unit: str, *aliases: str) -> ParameterSpec:
    return ParameterSpec(
        name,
        ParameterType.INTEGER,
        default,
        description + " A value that nobody set leaves the size to Lethe: about 20,000 rows, 0.3 s.",
        unit=unit,
        minimum=1,
        maximum=10_000_000,
        kinds=_SYM,
        aliases=aliases,
    )


def _switch(name: str, default: bool, description: str, **more: object) -> ParameterSpec:
    return ParameterSpec(name, ParameterType.BOOLEAN, default, description, **more)  # type: ignore[arg-type]


def _start(name: str, what: str, cadence: str) -> ParameterSpec:
    return _switch(
        name,
        False,
        f"Lethe itself submits {what} of this store, {cadence}. On by default in SymmetricDS, off here:"
        " what cannot be brought back is never removed unasked. Set on a store, never for all, and not taken"
        " from the target's own parameters.",
        kinds=_SYM,
        scopes=_STORE,
        needs=Scope.PURGES_WRITE,
    )


def _cron(job: str) -> ParameterSpec:
    return ParameterSpec(
        f"job.purge.{job}.cron",
        ParameterType.CRON,
        "0 0 0 * * *",
        "When the tick of this purge comes, in the store's time zone. Left at its default it is every four"
        " hours (0 0 */4 * * *, as 3.x does) for stores with one of the two switches of 3.x on.",
        unit="six fields, seconds first",
        kinds=_SYM,
    )


def _own_retention(what: str, default: str, description: str) -> ParameterSpec:
    return ParameterSpec(
        f"lethe.retention.{what}",
        ParameterType.DURATION,
        default,
        description,
        unit="ISO 8601",
        minimum="PT1H",
        maximum="P3650D",
        scopes=_GLOBAL,
    )


_WAIT_MAX = """How long a job may wait for one thing. Where nobody set it: an hour for plans, audits and \
verifications, a day for others. Windows, pace, confirmations and the jobs of a batch have no such end."""
_WAIT_FAILS = """Whether a job that waits for longer than job.wait.max FAILS (WAITED_TOO_LONG), its claims \
given back. Off: it waits on, and the overview and webhooks show it. Suspended stores never fail jobs so."""
_EVENTS_TX = "job.purge.max.num.data.events.to.delete.in.tx"
_EVENTS_TX_ALIAS = "job.purge.max.num.data.event.batches.to.delete.in.tx"

REGISTRY: tuple[ParameterSpec, ...] = (
    _minutes("purge.retention.minutes", 7200, "How long delivered data stays.", minimum=0),
    _tx("job.purge.max.num.data.to.delete.in.tx", 5000, "Rows of sym_data in one transaction.", "rows"),
    _tx(_EVENTS_TX, 5, "Batches whose events go in one transaction.", "batches", _EVENTS_TX_ALIAS),
    _tx("job.purge.max.num.batches.to.delete.in.tx", 5000, "Batches in one transaction.", "batches"),
    _start("start.purge.job", "all three purges", "daily at midnight"),
    _start("start.purge.outgoing.job", "the purges OUTGOING and DATA_GAP", "every four hours"),
    _start("start.purge.incoming.job", "the purge INCOMING", "every four hours"),
    _cron("outgoing"),
    _cron("incoming"),
    _cron("datagaps"),
    _minutes(
        "routing.data.reader.type.gap.retention.period.minutes",
        1440,
        "How long closed data gaps stay.",
        aliases=("purge.expired.data.gap.retention.minutes",),
    ),
    _switch(
        "purge.mark.stranded",
        False,
        "Purges OUTGOING of this store that do not say `stranded` begin with the first step of SymmetricDS's"
        " SQL: batches of nodes that are absent or disabled become OK, and those nodes never get them. Set on"
        " a store, never for all.",
        kinds=_SYM,
        scopes=_STORE,
        needs=Scope.PURGES_WRITE,
    ),
    _switch(
        "je.env.runEraser",
        False,
        "Whether erasure cycles follow one another by themselves; je.erase.period must be above PT0S too.",
        kinds=_JE,
        needs=Scope.ERASURE_WRITE,
    ),
    ParameterSpec(
        "je.erase.period",
        ParameterType.DURATION,
        "PT0S",
        "Age of the files that are erased, and length of a cycle; PT0S: off. A change drops the cycle.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P36500D",
        kinds=_JE,
        needs=Scope.ERASURE_WRITE,
    ),
    _switch("je.erase.deletedDatabases", True, "Erase entries of deleted databases.", kinds=_JE),
    _switch("je.erase.extinctRecords", True, "Erase extinct records.", kinds=_JE),
    _switch("je.erase.knownObsoleteEntries", True, "Erase known obsolete entries.", kinds=_JE),
    _switch(
        "je.erase.eraseAllObsoleteEntries",
        True,
        "Erase everything obsolete; brings the three others with it.",
        kinds=_JE,
    ),
    ParameterSpec(
        "je.erase.abortTimeout",
        ParameterType.DURATION,
        "PT30S",
        "How long a backup waits for the eraser.",
        unit="ISO 8601",
        minimum="PT1S",
        maximum="PT1H",
        kinds=_JE,
    ),
    ParameterSpec(
        "je.cleaner.extinctScanBatchSize",
        ParameterType.INTEGER,
        10_000,
        "How many entries a scan for extinct ones looks at before it pauses, at a replica; on PostgreSQL in"
        " one transaction, on SQLite in transactions of 200 at most.",
        unit="rows",
        minimum=1,
        maximum=100_000,
        kinds=_REPLICA,
    ),
    ParameterSpec(
        "je.cleaner.extinctScanBatchDelay",
        ParameterType.DURATION,
        "PT0.002S",
        "How long a scan for extinct entries pauses after each batch, at a replica.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="PT60S",
        kinds=_REPLICA,
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
        kinds=_REPLICA,
    ),
    ParameterSpec(
        "nsslapd-changelogmaxentries",
        ParameterType.INTEGER,
        0,
        "How many records stay in the changelog of a replica, the newest ones; 0: no bound.",
        unit="records",
        minimum=0,
        maximum=_INT_MAX,
        kinds=_REPLICA,
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
        kinds=_REPLICA,
        scopes=_STORE,
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
        kinds=_REPLICA,
    ),
    ParameterSpec(
        "cleanup_interval",
        ParameterType.DURATION,
        "PT10M",
        "How old a confirmation must be for cleanup to go by it; and, as in slon, the time between two"
        " cleanups where start.cleanup_thread is on (there at least a minute).",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P365D",
        kinds=_SLONY,
    ),
    _switch(
        "start.cleanup_thread",
        False,
        "Lethe itself submits an event cleanup of this store every cleanup_interval, the first one an"
        " interval after it was switched on. slon's own cleanup thread does the same where one runs for this"
        " node: both may run, one of them then finds little to do. Set on a store, never for all.",
        kinds=_SLONY,
        scopes=_STORE,
        needs=Scope.EVENTS_WRITE,
    ),
    *HEALTH,
    ParameterSpec(
        "store.check.period",
        ParameterType.DURATION,
        "PT5M",
        "How often Lethe looks at this store by itself, as `:check` does, for the overview; PT0S: never."
        " Where nobody set it, LETHE_STORE_CHECK_S decides. A change is noticed within five minutes.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P7D",
        kinds=_ALL,
    ),
    ParameterSpec(
        "job.wait.max", ParameterType.DURATION, "P1D", _WAIT_MAX, "ISO 8601", "PT1M", "P3650D", kinds=_ALL
    ),
    _switch("job.wait.fails", False, _WAIT_FAILS, kinds=_ALL),
    _own_retention("jobs", "P90D", "How long ended jobs stay, with their events and checkpoints."),
    _own_retention("events", "P14D", "How long progress events of ended jobs stay; transitions stay."),
    _own_retention("audit", "P730D", "How long audit rows stay."),
    _own_retention("idempotency", "P7D", "How long the answer to an Idempotency-Key stays."),
    _own_retention("ledgers", "P90D", "How long ledger rows of ended jobs stay at the target."),
    _own_retention("archives", "P365D", "How long archives stay on disk."),
    _own_retention("webhooks", "P14D", "How long deliveries to webhooks stay once they have ended."),
    _own_retention("feed", "P1D", "How long events of /v1/events can be asked for again by Last-Event-ID."),
    _own_retention("certificates", "P3650D", "How long certificates stay once their cycle is gone."),
)

_BY_NAME = {name: spec for spec in REGISTRY for name in (spec.name, *spec.aliases)}


def find_parameter(name: str) -> ParameterSpec | None:
    """The parameter of a name or an alias."""
    return _BY_NAME.get(name)
