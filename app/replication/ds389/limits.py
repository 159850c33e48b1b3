"""The limits that a replica's health is held against, by the store's parameters."""

from app.kinds.parameter import as_timedelta
from app.parameters.service import GlobalValues, effective_among
from app.stores.rows import Store
from spark.replication.ds389.records import Limits


def limits_of(values: GlobalValues, store: Store) -> Limits:
    """The limits in effect; `values` as `global_values` has them."""

    def seconds(name: str) -> float:
        return as_timedelta(effective_among(values, name, store.parameters)).total_seconds()

    return Limits(
        lag_warning_s=seconds("ds389.lag.warning"),
        lag_critical_s=seconds("ds389.lag.critical"),
        clock_s=seconds("ds389.clock.skew"),
    )
