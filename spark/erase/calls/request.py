"""What a plan is asked for: a value that travels, and needs nothing of what makes a plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark.erase.reasons import Switches


class FilterMode(StrEnum):
    """What the application's own extinction filter is declared to say of extinct records."""

    NONE = "NONE"
    ALWAYS_MAYBE = "ALWAYS_MAYBE"
    INSTALLED = "INSTALLED"


@dataclass(frozen=True, slots=True)
class HoldingExtinction:
    """An extinction that is committed.

    Attributes:
        payload: its record (`formats.extinction`), databases by name.
        attested: an admin has said that the application's filter is installed and says EXTINCT.
    """

    payload: bytes
    attested: bool = False


@dataclass(frozen=True, slots=True)
class LogExtinction:
    """An extinction that JE has noted.

    Attributes:
        lsn: of the newest LN that says so.
        payload: its record (`formats.extinction`), of this log's databases by name; the id is made of what it
            says, and is the same whenever the log is read.
        has_filter: a Java object filters its keys: which ones, nobody here can tell.
        secondary: those of its databases that have duplicates: JE walks its range over their own keys, while
            an ExtinctionFilter is asked for the primary keys, which are their data.
    """

    lsn: int
    payload: bytes
    has_filter: bool
    secondary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtinctionTerms:
    """Extinctions as a plan takes them.

    Attributes:
        mode: NONE: there are none, whatever else is said here.
        holding: those that are committed.
        reserved: payloads of those of which that is not known.
    """

    mode: FilterMode = FilterMode.NONE
    holding: tuple[HoldingExtinction, ...] = ()
    reserved: tuple[bytes, ...] = ()

    @property
    def is_asked(self) -> bool:
        """Whether any record can be extinct."""
        return self.mode is not FilterMode.NONE


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is asked for.

    Attributes:
        switches: the kinds that are erased.
        created_before_ms: only files created at or before it; the cut-off of a cycle.
        protected: file number -> the name of the set that protects it.
        now_ms: the time by which records have expired; without it nothing has.
        erase_expired: also erase expired records that no slot names.
        extinctions: of the store; those that the log itself has are added.
    """

    switches: Switches = field(default_factory=Switches)
    created_before_ms: int | None = None
    protected: Mapping[int, str] = field(default_factory=dict)
    now_ms: int | None = None
    erase_expired: bool = False
    extinctions: ExtinctionTerms = field(default_factory=ExtinctionTerms)
