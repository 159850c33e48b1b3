"""Stores and batches: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "STORE_NOT_FOUND",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        "There is no store of this id, or it was removed.",
        "`lethe store list` shows those that the token may see.",
        Passes.NO,
    ),
    Entry(
        "STORE_EXISTS",
        (Seen.HTTP,),
        "A store of this id exists.",
        "Choose another id, or look at it by `lethe store show STORE`.",
        Passes.NO,
    ),
    Entry(
        "STORE_IN_USE",
        (Seen.HTTP,),
        "Jobs or protections of the store have not ended.",
        "`lethe job list` and `lethe protection list STORE` show them; wait for their end, or end them.",
        Passes.MAYBE,
    ),
    Entry(
        "STORE_KIND_WRONG",
        (Seen.HTTP,),
        "The store is of another kind than this is for; `detail` names both.",
        (
            "Name a store of the right kind (`lethe store list`). Rows of a store of kind SQL go by "
            "`lethe purge rows STORE --table TABLE`."
        ),
        Passes.NO,
    ),
    Entry(
        "STORE_REMOVED",
        (Seen.HTTP,),
        "The store that the archive belongs to is no longer registered.",
        (
            "Register a store of the same id and target, or restore into a file or a schema of your own "
            "(`lethe archive restore JOB --into FILE`)."
        ),
        Passes.NO,
    ),
    Entry(
        "STORE_SUSPENDED",
        (
            Seen.HTTP,
            Seen.WAIT,
        ),
        (
            "Somebody suspended the store; nothing is begun at its target until it is resumed. Or the"
            " metadata is an older copy of itself, and the store rests until it is recovered (its reason"
            " says so)."
        ),
        (
            "Find out why (`lethe store show STORE`), then `lethe store resume STORE`, or `lethe recover"
            " STORE` where the reason names that. A job that waits for it goes on by itself then, or at"
            " `until`."
        ),
        Passes.NO,
    ),
    Entry(
        "STORE_CHANGED",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        (
            "The store names another target or directory than when the job or cycle was made; or the tables"
            " of a purge ROWS have other keys, or go in another order, than when it began."
        ),
        "Check that the new target is the one that is meant, and submit the work again.",
        Passes.NO,
    ),
    Entry(
        "OWN_METADATA",
        (Seen.HTTP,),
        "The target is Lethe's own metadata database or data directory.",
        "Name the target that is to be worked on.",
        Passes.NO,
    ),
    Entry(
        "HOST_NOT_ALLOWED",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        (
            "The host leads to an address that is not among LETHE_ALLOWED_HOSTS, or that nothing may be "
            "sent to."
        ),
        "Check the name and its address; an admin can allow the host or network.",
        Passes.NO,
    ),
    Entry(
        "CLEAR_TEXT_REFUSED",
        (Seen.HTTP,),
        "The receiver's URL is not https, and it is not on this machine.",
        "Use an https:// URL.",
        Passes.NO,
    ),
    Entry(
        "PATH_NOT_ALLOWED",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "The path leads outside of LETHE_ALLOWED_ROOTS, by itself or through a link.",
        "Name a path below one of the roots, or have an admin add a root.",
        Passes.NO,
    ),
    Entry(
        "NO_STORES_SELECTED",
        (Seen.HTTP,),
        "No store has the labels that were asked for.",
        "Compare the labels with `lethe store list`.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_STORES",
        (Seen.HTTP,),
        "The selection has more stores than one batch takes.",
        "Narrow the labels, and make several batches.",
        Passes.NO,
    ),
    Entry(
        "KIND_NOT_SUPPORTED",
        (Seen.HTTP,),
        "The kind that was named is none, or not one of this operation; `errors` names those that are.",
        "Name one of these kinds.",
        Passes.NO,
    ),
    Entry(
        "KIND_NOT_BATCHED",
        (Seen.HTTP,),
        "Jobs of this kind are not made for many stores at once.",
        "Use a kind that `detail` names, or submit it for each store.",
        Passes.NO,
    ),
    Entry(
        "BACKUPS_UNDECLARED",
        (Seen.HTTP,),
        "LIVE erases in an open environment, and Lethe does not know whether backups run beside it.",
        (
            "Have every backup announce itself (`lethe backup run --store STORE -- COMMAND`), then "
            "declare it: PATCH /v1/stores/STORE "
            "with `backups: VIA_LETHE`."
        ),
        Passes.NO,
    ),
    Entry(
        "EXTINCTIONS_KEPT",
        (Seen.HTTP,),
        (
            "The store has extinctions, and what they say of its keys is kept here alone: without it the "
            "keys would count as alive."
        ),
        "Keep the store and its path. `lethe extinction list STORE` shows them.",
        Passes.NO,
    ),
)
