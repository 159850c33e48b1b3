"""The limits that a store's health is held against, by its parameters."""

from app.events.cleanup.models import CLEANUP_INTERVAL
from app.kinds.parameter import as_timedelta
from app.kinds.slony_health import ROWS
from app.parameters.service import GlobalValues, effective_among
from app.stores.rows import Store
from spark.events.health.records import Thresholds


def limits_of(values: GlobalValues, store: Store) -> Thresholds:
    """The limits in effect; `values` as `global_values` has them."""
    ages = {
        field: as_timedelta(effective_among(values, name, store.parameters))
        for field, name in {
            "lag_warning": "health.lag.warning",
            "lag_critical": "health.lag.critical",
            "events": "health.event.age",
            "confirmations": "health.confirmation.age",
            "syncs": "health.sync.age",
            "transactions": "health.transaction.age",
            "components": "health.component.age",
            "cleanup_interval": CLEANUP_INTERVAL,
            "ddl": "health.ddl.age",
            "subscriptions": "health.subscription.age",
            "log_switch": "health.log_switch.age",
        }.items()
    }
    return Thresholds(log_rows=int(effective_among(values, ROWS, store.parameters)), **ages)
