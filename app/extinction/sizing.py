"""Whether an extinction is worth its while (je-extinction-filter, performance)."""

from typing import Final

SMALL_RECORDS: Final = 100


def hint_of(records: int) -> str | None:
    """What is to be said of an extinction of so many records; None: nothing."""
    if records > SMALL_RECORDS:
        return None
    return (
        f"{records} records: using record extinction is not recommended for discarding many, very small sets"
        f" of records (for example, millions of sets of {SMALL_RECORDS} records or less)"
    )
