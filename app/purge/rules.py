"""What must hold before a purge touches its target."""

from app.purge.errors import PermissionMissing
from app.stores.rows import Store
from spark.purge.reading.inspect import Inspection
from spark.targets.target import validate_url


def fence_resource(store: Store, tables: str = "outgoing") -> str:
    """The tables that a purge writes: the name of claim and fence, equal for all stores on them.

    Args:
        tables: a kind's `resource`.
    """
    prefix = store.table_prefix
    assert store.url is not None, "only a store on a database is purged"
    if validate_url(store.url) != "postgresql":  # there SYM_data and sym_data are one table, or may be
        prefix = prefix.lower()
    return f"{store.schema_name or 'public'}.{prefix}{tables}"


def check_permissions(inspection: Inspection) -> None:
    """Raise PermissionMissing when the role or the file cannot be written."""
    missing = ", ".join(f"{right} on {table}" for table, right in inspection.permissions_missing)
    if missing or inspection.read_only:
        raise PermissionMissing(missing or "the target is read-only", code="TARGET_READ_ONLY")
