"""Options of the commands that submit a job."""

from enum import StrEnum
from typing import Annotated, Final

import typer

REASON: Final = "asked for on the command line"


class EngineChoice(StrEnum):
    """What runs the units of a job."""

    AUTO = "AUTO"
    INLINE = "INLINE"
    SPARK = "SPARK"


_REASON: Final = typer.Option("--reason", help="Why; it is kept with the job and the audit.")
Reason = Annotated[str, _REASON]
OptionalReason = Annotated[str | None, _REASON]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job to its end.")]
PlanId = Annotated[str | None, typer.Option("--plan-id", help="Run exactly this reviewed plan.")]
MaxDrift = Annotated[
    float | None,
    typer.Option(
        "--max-drift",
        min=0,
        help="With --plan-id: how much of it may be gone or needed by now, a number, or a share below 1.",
    ),
]


def drift(value: float | None) -> float | None:
    """A whole number counts, another one is a share."""
    return int(value) if value is not None and value.is_integer() else value
