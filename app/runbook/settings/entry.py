"""One setting, for somebody who has to choose its value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable of the environment.

    Attributes:
        default: as it would be written; `none` where there is no value.
        meaning: what it says, with its unit.
        wrong: what somebody sees where its value does not fit.
    """

    name: str
    default: str
    meaning: str
    wrong: str
