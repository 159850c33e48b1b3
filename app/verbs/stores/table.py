"""The table of the kinds of stores."""

from collections.abc import Mapping
from typing import Final

from app.stores.models import StoreKind
from app.stores.rows import Store
from app.verbs.stores.ds389 import DS389
from app.verbs.stores.je import JE
from app.verbs.stores.kind import KindOfStore
from app.verbs.stores.replica import REPLICA
from app.verbs.stores.slony import SLONY
from app.verbs.stores.sql import SQL
from app.verbs.stores.symmetricds import SYMMETRICDS

KINDS: Final[Mapping[StoreKind, KindOfStore]] = {
    StoreKind.SYMMETRICDS: SYMMETRICDS,
    StoreKind.JE: JE,
    StoreKind.REPLICA: REPLICA,
    StoreKind.SLONY: SLONY,
    StoreKind.SQL: SQL,
    StoreKind.DS389: DS389,
}
COLUMNS: Final = {
    "rules": "its fields and an example",
    "check": "what looks at its target",
    "recover": "what raises our epoch above its target's",
    "is_ahead": "what tells whether its target has seen a greater epoch",
}
"""What no kind may lack, and what it is."""


class KindIncomplete(Exception):
    """The table of the kinds of stores lacks something: a fault of this version."""


def check_kinds(kinds: Mapping[StoreKind, KindOfStore]) -> None:
    """Return when every kind of store has all that it needs.

    Raises: KindIncomplete: naming the kind and the column.
    """
    for name in StoreKind:
        if name not in kinds:
            raise KindIncomplete(f"store kind {name} has no row in app/verbs/stores")
        for column, what in COLUMNS.items():
            if getattr(kinds[name], column) is None:
                raise KindIncomplete(f"store kind {name} lacks `{column}` in app/verbs/stores: {what}")


def kind_of(store: Store) -> KindOfStore:
    """The row of a store's kind."""
    return KINDS[StoreKind(store.kind)]
