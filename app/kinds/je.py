"""An environment of Berkeley DB JE."""

from app.auth.scopes import Scope
from app.kinds.parameter import ParameterSpec, ParameterType, switch
from app.kinds.rules import ExtinctionFilterMode, KindRules, StoreMode

PARAMETERS = (
    switch(
        "je.env.runEraser",
        False,
        "Whether erasure cycles follow one another by themselves; je.erase.period must be above PT0S too.",
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
        needs=Scope.ERASURE_WRITE,
    ),
    switch("je.erase.deletedDatabases", True, "Erase entries of deleted databases."),
    switch("je.erase.extinctRecords", True, "Erase extinct records."),
    switch("je.erase.knownObsoleteEntries", True, "Erase known obsolete entries."),
    switch(
        "je.erase.eraseAllObsoleteEntries",
        True,
        "Erase everything obsolete; brings the three others with it.",
    ),
    ParameterSpec(
        "je.erase.abortTimeout",
        ParameterType.DURATION,
        "PT30S",
        "How long a backup waits for the eraser.",
        unit="ISO 8601",
        minimum="PT1S",
        maximum="PT1H",
    ),
)
RULES = KindRules(
    fields=frozenset(
        {
            "path",
            "mode",
            "extinction_filter",
            "backups",
            "accept_medium",
            "delete_reserved_files",
            "erase_expired",
            "node_grace",
            "backup_grace",
        }
    ),
    needs=("path",),
    defaults={"mode": StoreMode.CLOSED, "extinction_filter": ExtinctionFilterMode.NONE},
    counts_bytes=True,
    example={
        "id": "orders-je",
        "kind": "JE",
        "path": "/var/lib/orders/je",
        "mode": "CLOSED",
        "parameters": {"je.env.runEraser": True, "je.erase.period": "P25D"},
    },
    parameters=PARAMETERS,
)
