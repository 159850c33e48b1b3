"""A database of SymmetricDS."""

from app.kinds.rules import SQL_FIELDS, KindRules, StoreKind

RULES = KindRules(
    kind=StoreKind.SYMMETRICDS,
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
)
