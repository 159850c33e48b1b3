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


Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with the job and the audit.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job to its end.")]
