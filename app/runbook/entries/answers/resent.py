"""Why a batch that waits has lost what it would deliver: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "DATA_REMOVED",
        (Seen.ANSWER,),
        "The batch was sent again after a purge removed the data of some of its events.",
        (
            "Before the batch is delivered, an admin brings the rows back: `lethe archive restore JOB "
            "--live`. Else, or without an archive, reload the node's table in SymmetricDS."
        ),
        Passes.NO,
    ),
    Entry(
        "EVENTS_REMOVED",
        (Seen.ANSWER,),
        "The batch was sent again after a purge removed all of its events: it would deliver nothing.",
        (
            "Before the batch is delivered, an admin brings the rows back: `lethe archive restore JOB "
            "--live`. Else, or without an archive, reload the node's table in SymmetricDS."
        ),
        Passes.NO,
    ),
)
