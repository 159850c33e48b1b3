"""A replica of Lethe's own protocol."""

from app.kinds.rules import SQL_FIELDS, KindRules, StoreKind
from spark.formats.replica import PREFIX_DEFAULT

RULES = KindRules(
    kind=StoreKind.REPLICA,
    fields=SQL_FIELDS | {"rid", "generation"},
    needs=("url", "rid"),
    dialects=frozenset({"postgresql", "sqlite"}),
    lies_on="a replica lies on PostgreSQL or SQLite",
    defaults={"table_prefix": PREFIX_DEFAULT},
    example={"id": "orders", "kind": "REPLICA", "url": "sqlite:////var/lib/orders/replica.db", "rid": 1},
)
