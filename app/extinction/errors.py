"""Errors of extinctions.

ServiceError
 +- NotFound 404       ExtinctionNotFound, SupplierNotFound
 +- Conflict 409       ExtinctionNotAvailable, StoreSuspended, EnvironmentUnreadable, FilterNotInstalled,
                       ExtinctionNotHolding, FilterUnreadable, PeerIsConsumer, LimitsNotCounted
 +- Unprocessable 422  ConfirmationMissing, UnknownDatabase, FilterRefused, StartAfterEnd,
                       ExtinctionFilterMissing
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.errors import Conflict, NotFound, Unprocessable

STEPS: Final = (
    "1. the application stops using the keys of the extinct records, for good;"
    " 2. its ExtinctionFilter.getExtinctionStatus returns EXTINCT (or MAYBE_EXTINCT) for them;"
    " 3. only then they are discarded here"
)
"""The order of je-extinction-filter."""


class ExtinctionNotFound(NotFound):
    """There is no extinction of this id at the store."""


class SupplierNotFound(NotFound):
    """No supplier of this name has acquired at the replica, or it has been forgotten."""

    def __init__(self) -> None:
        super().__init__(
            "no supplier of this name is known here; their names, such as orders-a/1, are in"
            " `extinction-availability`"
        )


class ExtinctionNotAvailable(Conflict):
    """A peer does not know extinctions: it would go on using the keys, and send them back."""

    def __init__(self, lacking: Sequence[Mapping[str, Any]]) -> None:
        names = ", ".join(str(each["peer"]) for each in lacking)
        detail = f"{len(lacking)} peer(s) have not announced that they know extinctions: {names}"
        super().__init__(detail, extra={"lacking": list(lacking)})


class StoreSuspended(Conflict):
    """Nothing is begun at the store's target until it is resumed."""


class EnvironmentUnreadable(Conflict):
    """The log of the environment cannot be read as it is."""


class FilterNotInstalled(Conflict):
    """The store does not say that the application's filter is installed: nothing can be attested."""


class ExtinctionNotHolding(Conflict):
    """It is not committed, so no filter can rightly say EXTINCT of its keys."""


class FilterUnreadable(Conflict):
    """What its Java filter lets pass is not known here: an attestation would reach nothing."""


class LimitsNotCounted(Conflict):
    """The store has limits, or a plan is executed, and what goes cannot be counted from here."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__(
            "the store has limits or a plan is executed, and only runners with the labels"
            f" {', '.join(labels)} reach its environment: send this to an instance with them, or do it"
            " without limits and plan"
        )


class PeerIsConsumer(Conflict):
    """A consumer is known by its agreement, and as long as there is one."""

    def __init__(self, agreement_id: str) -> None:
        super().__init__(
            f"{agreement_id} is an agreement with a consumer, and no supplier: a consumer is forgotten when"
            " its agreement is removed",
            extra={"agreement_id": agreement_id},
        )


class ConfirmationMissing(Unprocessable):
    """The caller has not said that the keys will never be used again."""

    def __init__(self) -> None:
        detail = (
            "`confirm_keys_never_reused: true` is the word of the application that the keys of these"
            " records will never be used again; without it nothing is discarded"
        )
        fault = {"pointer": "/confirm_keys_never_reused", "detail": "true is needed"}
        super().__init__(detail, errors=[fault])


class UnknownDatabase(Unprocessable):
    """A database that the store has not."""

    def __init__(self, unknown: Mapping[int, str]) -> None:
        faults = [
            {"pointer": f"/databases/{place}", "detail": f"the store has no database {name[:100]!r}"}
            for place, name in unknown.items()
        ]
        super().__init__(f"{len(faults)} database(s) are not known at the store", errors=faults)


class FilterRefused(Unprocessable):
    """The filter is none, or beyond its bounds."""

    def __init__(self, detail: str, *, pointer: str) -> None:
        fault = {"pointer": f"/filter{pointer}", "detail": detail}
        super().__init__(f"the filter cannot be read at {fault['pointer']}: {detail}", errors=[fault])


class StartAfterEnd(Unprocessable):
    """The range ends before it begins."""

    def __init__(self) -> None:
        fault = {"pointer": "/start_key", "detail": "lies after end_key, byte by byte"}
        super().__init__("start_key (inclusive) lies after end_key (exclusive)", errors=[fault])


class ExtinctionFilterMissing(Unprocessable):
    """The environment is declared to have no extinction filter."""

    def __init__(self) -> None:
        super().__init__(
            "the store says `extinction_filter: NONE`: JE refuses to discard records while no extinction"
            f" filter is set. The order: {STEPS}. Then declare the store INSTALLED, or ALWAYS_MAYBE for a"
            " filter that always returns MAYBE_EXTINCT"
        )
