"""From when on something is found at a replica of 389 Directory Server."""

from typing import Final

from app.kinds.parameter import ParameterSpec, ParameterType


def _age(name: str, default: str, what: str) -> ParameterSpec:
    return ParameterSpec(
        f"ds389.{name}",
        ParameterType.DURATION,
        default,
        f"{what} PT0S: no limit.",
        unit="ISO 8601",
        minimum="PT0S",
        maximum="P365D",
    )


HEALTH: Final = (
    _age("lag.warning", "PT10M", "A replica so long behind in a RID is a WARNING (RID_LAGS)."),
    _age("lag.critical", "PT30M", "The same, from when on it is CRITICAL."),
    _age(
        "clock.skew",
        "PT1M",
        "How far a server's clock may be from ours, how far its CSNs may be in the future, and how far its"
        " CSN generator may run ahead of its clock (SERVER_CLOCK_WRONG, CSN_AHEAD, CSN_OFFSET).",
    ),
)
