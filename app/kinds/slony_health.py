"""From when on the health of a Slony-I node is told as a finding: the limits of Slony-I's own tools."""

from typing import Final

from app.kinds.parameter import ParameterSpec, ParameterType

ROWS: Final = "health.log.rows"


def _age(name: str, default: str, what: str) -> ParameterSpec:
    return ParameterSpec(
        f"health.{name}",
        ParameterType.DURATION,
        default,
        f"{what} PT0S: no limit.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P365D",
    )


HEALTH: Final = (
    _age(
        "lag.warning",
        "PT10M",
        "A receiver with an older event that it has not confirmed is a WARNING (RECEIVER_LAGS), as in"
        " check-slony-cluster.",
    ),
    _age("lag.critical", "PT30M", "The same, from when on it is CRITICAL."),
    _age(
        "event.age",
        "PT30M",
        "How old the newest event of another node may be (EVENTS_STALE), as in test_slony_state; and how long"
        " rows of a node that was dropped may stay (NODE_FORGOTTEN).",
    ),
    _age(
        "confirmation.age",
        "PT30M",
        "How old the newest confirmation of a pair may be (CONFIRMATIONS_STALE), as in test_slony_state.",
    ),
    _age(
        "sync.age",
        "PT10M",
        "How old the node's own newest SYNC may be (SYNC_OVERDUE), as in generate_syncs.",
    ),
    ParameterSpec(
        ROWS,
        ParameterType.INTEGER,
        200_000,
        "How many rows, by the server's estimate, sl_log_1, sl_log_2 and sl_seqlog may each have"
        " (LOG_TABLE_LARGE), as in test_slony_state. 0: no limit.",
        unit="rows",
        minimum=0,
        maximum=2_147_483_647,
    ),
    _age(
        "transaction.age",
        "PT1H30M",
        "How long a transaction may be open (TRANSACTION_OLD), as in test_slony_state.",
    ),
    _age(
        "component.age",
        "PT5M",
        "How long a thread of a connected slon may be silent (COMPONENT_SILENT), as in test_slony_state. The"
        " cleanup thread speaks once each cleanup_interval, and may miss one.",
    ),
    _age(
        "subscription.age",
        "PT1H",
        "How long a subscription may be asked for and not active (SUBSCRIPTION_INACTIVE); the copy of a large"
        " set may take longer.",
    ),
    _age("ddl.age", "PT5M", "How long DDL may be on its way to a subscriber (DDL_PENDING)."),
    _age(
        "log_switch.age",
        "PT1H",
        "How long a switch of the log tables may be under way (LOG_SWITCH_STUCK). Under load two cleanups are"
        " needed to end one.",
    ),
)
