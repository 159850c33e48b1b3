"""What a store's own parameters ask of its eraser, by the document's names."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlmodel import Session

from app.erase.rows import EraseKind
from app.parameters.service import effective_among, global_values
from app.parameters.spec import ParameterValue, as_timedelta
from app.stores.rows import Store
from spark.erase.reasons import Switches

RUN_ERASER: Final = "je.env.runEraser"
PERIOD: Final = "je.erase.period"
SWITCHES: Final = {
    EraseKind.DELETED_DATABASES: "je.erase.deletedDatabases",
    EraseKind.EXTINCT_RECORDS: "je.erase.extinctRecords",
    EraseKind.KNOWN_OBSOLETE_ENTRIES: "je.erase.knownObsoleteEntries",
    EraseKind.ALL_OBSOLETE_ENTRIES: "je.erase.eraseAllObsoleteEntries",
}
RESOURCE: Final = "erasure"
"""Of the claim of an environment: two jobs never erase in one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the parameters in effect say."""

    runs: bool
    period: timedelta
    kinds: tuple[EraseKind, ...]

    @property
    def enabled(self) -> bool:
        """Whether cycles follow one another by themselves."""
        return self.runs and self.period > timedelta(0) and bool(self.kinds)


def wanted(db: Session, store: Store) -> Wanted:
    """Read the parameters in effect for a store."""
    return wanted_among(global_values(db), store)


def wanted_among(values: Mapping[str, ParameterValue], store: Store) -> Wanted:
    """The same by global values that are known."""

    def value(name: str) -> ParameterValue:
        return effective_among(values, name, store.parameters)

    kinds = tuple(kind for kind, name in SWITCHES.items() if value(name) is True)
    return Wanted(
        runs=value(RUN_ERASER) is True,
        period=as_timedelta(str(value(PERIOD))),
        kinds=kinds,
    )


def switches_of(kinds: list[str]) -> Switches:
    """The kinds as the plan takes them."""
    return Switches(
        deleted_databases=EraseKind.DELETED_DATABASES in kinds,
        extinct_records=EraseKind.EXTINCT_RECORDS in kinds,
        known_obsolete_entries=EraseKind.KNOWN_OBSOLETE_ENTRIES in kinds,
        erase_all_obsolete_entries=EraseKind.ALL_OBSOLETE_ENTRIES in kinds,
    )


def eraser_key(store: str) -> str:
    """The event "the eraser of this store was switched on"."""
    return f"eraser:{store}"
