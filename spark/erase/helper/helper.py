"""What only JE itself can do for an erasure: a Java source file that runs with the JE of the environment.

From outside the VLSN index cannot be truncated, and no checkpoint be made. `LetheJe.java` does both, with the
jar that the application uses and no build: `java -cp JARS LetheJe.java ENVIRONMENT`.
Source: je-data-eraser; facts eraser-behaviour, 3.
"""

import shlex
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Final

NAME: Final = "LetheJe.java"


class Act(StrEnum):
    """What the helper does."""

    TRUNCATE = "truncate"
    CHECKPOINT = "checkpoint"
    SHOW = "show"
    VERIFY = "verify"


def source() -> str:
    """The Java source."""
    return files("spark.erase.helper").joinpath(NAME).read_text(encoding="utf-8")


def command(directory: Path | str, act: Act) -> str:
    """The lines of a shell that do an act; JE_JARS holds the jars of the application."""
    place = shlex.quote(str(directory))
    return f'lethe je helper --write {NAME} && java -cp "$JE_JARS" {NAME} {place} {act}'
