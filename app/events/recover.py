"""A node whose target has seen a greater epoch than our metadata: found, and recovered."""

from app.archives.adopting import Adopting
from app.db import Database
from app.events.cleanup.models import JOB_CLEANUP
from app.events.cleanup.service import cleanup_resource
from app.events.cleanup.switch.service import switch_resource
from app.events.syncs.models import JOB_SYNC
from app.events.syncs.service import sync_resource
from app.jobs.running.recovery import is_target_ahead, recover_target
from app.settings import Settings
from app.stores.checks.models import RecoveryRead
from app.stores.rows import Store
from spark.events.syncing import STEP


def recover_node(database: Database, settings: Settings, store: Store, actor: str) -> RecoveryRead:
    """Raise our epoch above the target's fences and mark the jobs that only the target remembers.

    Raises: ServiceError: the target cannot be asked.
    """
    return recover_target(
        database,
        settings,
        store,
        actor,
        kind=JOB_CLEANUP,
        kinds={STEP: JOB_SYNC},
        resources=node_resources(store),
        archives=Adopting(lambda _: cleanup_resource(store)),  # log switches and SYNCs keep nothing
    )


def is_node_ahead(database: Database, store: Store, settings: Settings) -> bool | None:
    """Whether a node has seen a greater epoch than ours; None: it cannot be asked."""
    return is_target_ahead(database, settings, store, node_resources(store))


def node_resources(store: Store) -> tuple[str, str, str]:
    """What jobs there claim."""
    return cleanup_resource(store), switch_resource(store), sync_resource(store)
