"""All parameters by their own names, with the aliases of other versions: of kinds of stores, and Lethe's own.

Sources: symmetricds-purge (facts 3), je-data-eraser (eraser-behaviour 1), slony-events-confirmations (4).
"""

from dataclasses import replace

from app.kinds.parameter import GLOBAL, ParameterSpec, ParameterType, switch
from app.kinds.table import RULES

_ALL = tuple(kind.value for kind in RULES)
_WAIT_MAX = """How long a job may wait for one thing. Where nobody set it: an hour for plans, audits and \
verifications, a day for others. Windows, pace, confirmations and the jobs of a batch have no such end."""
_WAIT_FAILS = """Whether a job that waits for longer than job.wait.max FAILS (WAITED_TOO_LONG), its claims \
given back. Off: it waits on, and the overview and webhooks show it. Suspended stores never fail jobs so."""


def _own_retention(what: str, default: str, description: str) -> ParameterSpec:
    return ParameterSpec(
        f"lethe.retention.{what}",
        ParameterType.DURATION,
        default,
        description,
        unit="ISO 8601",
        minimum="PT1H",
        maximum="P3650D",
        scopes=GLOBAL,
    )


_OF_KINDS = tuple(
    replace(spec, kinds=(kind.value,)) for kind, rules in RULES.items() for spec in rules.parameters
)
_OF_ALL_KINDS = (
    ParameterSpec(
        "store.check.period",
        ParameterType.DURATION,
        "PT5M",
        "How often Lethe looks at this store by itself, as `:check` does, for the overview; PT0S: never."
        " Where nobody set it, LETHE_STORE_CHECK_S decides. A change is noticed within five minutes.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P7D",
    ),
    ParameterSpec(
        "job.wait.max", ParameterType.DURATION, "P1D", _WAIT_MAX, "ISO 8601", "PT1M", "P3650D", kinds=_ALL
    ),
    switch("job.wait.fails", False, _WAIT_FAILS),
)
_OWN = (
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
REGISTRY: tuple[ParameterSpec, ...] = (
    *_OF_KINDS,
    *(replace(spec, kinds=_ALL) for spec in _OF_ALL_KINDS),
    *_OWN,
)

_BY_NAME = {name: spec for spec in REGISTRY for name in (spec.name, *spec.aliases)}


def find_parameter(name: str) -> ParameterSpec | None:
    """The parameter of a name or an alias."""
    return _BY_NAME.get(name)
