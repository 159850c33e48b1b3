"""A store whose target has seen a greater epoch than our metadata: found, and recovered."""

from collections.abc import Collection

from app.archives.adopting import Adopting
from app.db import Database
from app.jobs.running.recovery import is_target_ahead, recover_target
from app.purge.kinds.table import KINDS
from app.purge.models import PurgeKind
from app.purge.rules import fence_resource
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import JOB_PURGE


def recover_store(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above the target's fences and mark the purges that only the target remembers.

    Raises: ServiceError: the target cannot be asked.
    """

    def resource_of(names: Collection[str]) -> str:
        lowered = {name.lower() for name in names}
        prefix = store.table_prefix.lower()
        tables = next(
            (
                kind.resource
                for kind in KINDS.values()
                if lowered & {f"{prefix}{table}".lower() for table in kind.tables.values()}
            ),
            KINDS[PurgeKind.OUTGOING].resource,
        )
        return fence_resource(store, tables)

    return recover_target(
        database,
        settings,
        store,
        actor,
        kind=JOB_PURGE,
        resources=fence_resources(store),
        archives=Adopting(resource_of),
    )


def is_epoch_ahead(database: Database, store: Store, settings: Settings) -> bool | None:
    """Whether a store's target has seen a greater epoch than ours; None: it cannot be asked."""
    if store.kind != StoreKind.SYMMETRICDS:
        return False
    return is_target_ahead(database, settings, store, fence_resources(store))


def fence_resources(store: Store) -> list[str]:
    """What purges there claim."""
    return [
        fence_resource(store, tables) for tables in dict.fromkeys(kind.resource for kind in KINDS.values())
    ]
