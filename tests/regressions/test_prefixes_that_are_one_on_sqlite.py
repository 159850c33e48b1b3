"""Two stores named the same SQLite tables, one as `sym_` and one as `SYM_`. SQLite takes them for one;
claim and fence did not, and let two purges write to the same tables at once.
"""

from __future__ import annotations

from datetime import UTC, datetime

from app.purge.rules import fence_resource
from app.stores.rows import Store


def _resource(url: str, prefix: str) -> str:
    now = datetime.now(UTC)
    store = Store(id="s", kind="SYMMETRICDS", url=url, table_prefix=prefix, created_at=now, updated_at=now)
    return fence_resource(store)


def test_case_of_a_prefix_tells_tables_apart_only_where_it_does() -> None:
    assert _resource("sqlite:////a.db", "SYM_") == _resource("sqlite:////a.db", "sym_")
    postgresql = "postgresql+psycopg://lethe@127.0.0.1/shop"
    assert _resource(postgresql, "SYM_") != _resource(postgresql, "sym_")
