"""A database of SymmetricDS."""

from app.auth.scopes import Scope
from app.kinds.parameter import STORE, ParameterSpec, ParameterType, switch
from app.kinds.rules import SQL_FIELDS, KindRules
from app.kinds.symmetricds_backlog import BACKLOG

_EVENTS_TX = "job.purge.max.num.data.events.to.delete.in.tx"
_EVENTS_TX_ALIAS = "job.purge.max.num.data.event.batches.to.delete.in.tx"


def _minutes(name: str, default: int, description: str, *, minimum: int = 0, **more: object) -> ParameterSpec:
    return ParameterSpec(
        name,
        ParameterType.INTEGER,
        default,
        description,
        unit="minutes",
        minimum=minimum,
        maximum=5_256_000,
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
        aliases=aliases,
    )


def _start(name: str, what: str, cadence: str) -> ParameterSpec:
    return switch(
        name,
        False,
        f"Lethe itself submits {what} of this store, {cadence}. On by default in SymmetricDS, off here:"
        " what cannot be brought back is never removed unasked. Set on a store, never for all, and not taken"
        " from the target's own parameters.",
        scopes=STORE,
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
    )


PARAMETERS = (
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
    _minutes(
        "purge.extract.request.retention.minutes",
        14_400,
        "How long finished requests of initial loads stay, and what is known of their state.",
    ),
    _minutes("purge.registration.request.retention.minutes", 7200, "How long answered registrations stay."),
    _minutes("purge.stats.retention.minutes", 14_400, "How long statistics of hosts and jobs stay."),
    _minutes(
        "purge.trigger.hist.retention.minutes",
        86_400,
        "How long inactive trigger histories stay; longer where captured rows still name them.",
    ),
    switch(
        "purge.mark.stranded",
        False,
        "Purges OUTGOING of this store that do not say `stranded` begin with the first step of SymmetricDS's"
        " SQL: batches of nodes that are absent or disabled become OK, and those nodes never get them. Set on"
        " a store, never for all.",
        scopes=STORE,
        needs=Scope.PURGES_WRITE,
    ),
    *BACKLOG,
)
RULES = KindRules(
    fields=SQL_FIELDS,
    needs=("url",),
    example={
        "id": "shop",
        "kind": "SYMMETRICDS",
        "url": "postgresql+psycopg://lethe@127.0.0.1:5432/shop",
        "password": "secret:shop",
        "schema": "public",
        "time_zone": "Europe/Berlin",
        "labels": {"region": "eu"},
        "limits": {"max_rows": 50_000_000, "max_fraction": 0.95},
    },
    parameters=PARAMETERS,
)
