"""What a new store looks like, one of each kind."""

from typing import Any, Final

_EXAMPLE: dict[str, Any] = {
    "id": "shop",
    "kind": "SYMMETRICDS",
    "url": "postgresql+psycopg://lethe@127.0.0.1:5432/shop",
    "password": "secret:shop",
    "schema": "public",
    "time_zone": "Europe/Berlin",
    "labels": {"region": "eu"},
    "limits": {"max_rows": 50_000_000, "max_fraction": 0.95},
}
_JE_EXAMPLE: dict[str, Any] = {
    "id": "orders-je",
    "kind": "JE",
    "path": "/var/lib/orders/je",
    "mode": "CLOSED",
    "parameters": {"je.env.runEraser": True, "je.erase.period": "P25D"},
}
_REPLICA_EXAMPLE: dict[str, Any] = {
    "id": "orders",
    "kind": "REPLICA",
    "url": "sqlite:////var/lib/orders/replica.db",
    "rid": 1,
}
_SLONY_EXAMPLE: dict[str, Any] = {
    "id": "lab-1",
    "kind": "SLONY",
    "url": "postgresql+psycopg://slony@127.0.0.1:5432/node1",
    "cluster": "lab",
}
EXAMPLES: Final = (_EXAMPLE, _JE_EXAMPLE, _REPLICA_EXAMPLE, _SLONY_EXAMPLE)
