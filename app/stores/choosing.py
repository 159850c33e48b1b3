"""A target as a caller chooses it: asked who it is before the transaction that decides."""

from collections.abc import Mapping
from typing import Any

from app.auth.service import Caller
from app.db import Database
from app.errors import ServiceError
from app.kinds.table import fields_of_other_kinds
from app.settings import Settings
from app.stores.borders import Choice, ask_target
from app.stores.models import StoreKind, StorePatch
from app.stores.rows import Store
from app.stores.service import NULLABLE_FIELDS, PLACE_FIELDS, check_target_allowed, takes_secret_by_label


def choice_of(caller: Caller, database: Database, settings: Settings, store: Store) -> Choice:
    """A target as the caller chooses it; what it says of itself is asked for outside of any transaction.

    Raises: StoreUrlRefused: where this service may not connect, nothing is asked.
    """
    with database.reading() as db:
        check_target_allowed(db, store, settings=settings, database=database)
        is_anothers = caller.stores is not None and takes_secret_by_label(db, store, {})
    # A secret that the caller may not take is told to nobody for it.
    proof = None if is_anothers else ask_target(database, settings, store)
    return Choice(caller.visible_stores(), proof)


def choice_of_patch(
    caller: Caller, database: Database, settings: Settings, store_id: str, patch: StorePatch
) -> tuple[Choice, Mapping[str, Any]]:
    """The target as it would be, and its fields; none where the patch does not speak of it, or is wrong."""
    changes = patch.model_dump(by_alias=False, exclude_unset=True)
    with database.reading() as db:
        row = db.get(Store, store_id)
    if row is None or not PLACE_FIELDS & set(changes):
        return Choice(caller.visible_stores()), {}
    emptied = {name for name, value in changes.items() if value is None} - NULLABLE_FIELDS
    if emptied or fields_of_other_kinds(StoreKind(row.kind)) & set(changes):  # refused by `change_store`
        return Choice(caller.visible_stores()), {}
    fields = {name: changes.get(name, getattr(row, name)) for name in (*PLACE_FIELDS, "password", "runs_on")}
    row.sqlmodel_update(fields)
    try:
        return choice_of(caller, database, settings, row), {name: fields[name] for name in PLACE_FIELDS}
    except ServiceError as error:
        if error.code == "OWN_METADATA":
            raise
        return Choice(caller.visible_stores()), {}  # said again where If-Match and the rest are looked at
