"""How often what waits at a SymmetricDS store is looked at, and from when on it grows."""

from typing import Final

from app.kinds.parameter import ParameterSpec, ParameterType

PERIOD: Final = "backlog.period"
WINDOW: Final = "backlog.window"
LEAST: Final = "backlog.growth.min"
SILENT: Final = "backlog.node.silent"

BACKLOG: Final = (
    ParameterSpec(
        PERIOD,
        ParameterType.DURATION,
        "PT5M",
        "How often a check of this store also looks at what waits to be delivered, by node and channel; PT0S:"
        " never. A check that comes earlier leaves it out, so `store.check.period` must not be longer.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="PT4H",
    ),
    ParameterSpec(
        WINDOW,
        ParameterType.DURATION,
        "PT2H",
        "Over what time the growth of a backlog is judged (BACKLOG_GROWS); at least six looks.",
        unit="ISO 8601",
        minimum="PT10M",
        maximum="P1D",
    ),
    ParameterSpec(
        LEAST,
        ParameterType.INTEGER,
        10,
        "How many batches more than before must wait at the least, that a backlog grows.",
        unit="batches",
        minimum=1,
        maximum=10_000_000,
    ),
    ParameterSpec(
        SILENT,
        ParameterType.DURATION,
        "P1D",
        "How old the heartbeat of a node may be; one that is older is NODE_SILENT, as by SymmetricDS's"
        " offline.node.detection.period.minutes. PT0S: no limit.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P365D",
    ),
)
