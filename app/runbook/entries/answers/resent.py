"""Why a batch that waits has lost what it would deliver: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "DATA_REMOVED",
        (Seen.ANSWER,),
        "The batch was sent again after a purge removed the data of some of its events.",
        (
            "Reload the node's table in SymmetricDS, or restore the rows from the archive: `lethe archive"
            " restore JOB --into NAME`."
        ),
        Passes.NO,
    ),
    Entry(
        "EVENTS_REMOVED",
        (Seen.ANSWER,),
        "The batch was sent again after a purge removed all of its events: it would deliver nothing.",
        (
            "Reload the node's table in SymmetricDS, or restore the rows from the archive: `lethe archive"
            " restore JOB --into NAME`."
        ),
        Passes.NO,
    ),
)
