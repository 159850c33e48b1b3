"""An environment of Berkeley DB JE."""

from app.kinds.rules import ExtinctionFilterMode, KindRules, StoreKind, StoreMode

RULES = KindRules(
    kind=StoreKind.JE,
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
)
