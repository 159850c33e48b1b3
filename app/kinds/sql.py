"""A database of anybody's: rows of any of its tables can go."""

from app.kinds.rules import SQL_FIELDS, KindRules

RULES = KindRules(
    fields=SQL_FIELDS - {"table_prefix"},
    needs=("url",),
    defaults={"table_prefix": ""},
    example={
        "id": "tickets",
        "kind": "SQL",
        "url": "mysql+pymysql://lethe@127.0.0.1:3306/tickets",
        "password": "secret:tickets",
        "limits": {"max_rows": 5_000_000},
    },
)
