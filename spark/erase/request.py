"""What a plan is asked for: a value that travels, and needs nothing of what makes a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark.erase.reasons import Switches


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is asked for.

    Attributes:
        switches: the kinds that are erased.
        created_before_ms: only files created at or before it; the cut-off of a cycle.
        protected: file number -> the name of the set that protects it.
        now_ms: the time by which records have expired; without it nothing has.
        erase_expired: also erase expired records that no slot names.
    """

    switches: Switches = field(default_factory=Switches)
    created_before_ms: int | None = None
    protected: Mapping[int, str] = field(default_factory=dict)
    now_ms: int | None = None
    erase_expired: bool = False
