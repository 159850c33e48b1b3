"""A replica of Lethe's own protocol."""

from app.db import Database
from app.kinds.replica import RULES
from app.replication.check import check_replica, recover_replica
from app.settings import Settings
from app.stores.rows import Store
from app.verbs.stores.kind import KindOfStore


def _never_ahead(_database: Database, _store: Store, _settings: Settings) -> bool:
    """One that was put back, or is newer than the metadata, is known by its incarnation."""
    return False


REPLICA = KindOfStore(rules=RULES, check=check_replica, recover=recover_replica, is_ahead=_never_ahead)
