"""Extinctions: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "CONFIRMATION_MISSING",
        (Seen.HTTP,),
        "An extinction needs your word that its keys are never used again.",
        "Stop the application's use of the keys for good, then send `confirm_keys_never_reused: true`.",
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_NOT_FOUND",
        (Seen.HTTP,),
        "There is no extinction of this id at the store.",
        "`lethe extinction list STORE` shows those that exist.",
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_NOT_AVAILABLE",
        (Seen.HTTP,),
        (
            "A peer of the replica does not know extinctions: it would go on using the keys, and send them "
            "back."
        ),
        (
            "`lethe extinction availability STORE` names the peers; upgrade them, or forget those that "
            "are gone "
            "for good (`lethe extinction forget-supplier STORE SUPPLIER --reason WHY`)."
        ),
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_NOT_HOLDING",
        (Seen.HTTP,),
        "The extinction is not committed, or has been aborted.",
        (
            "Look at it by `lethe extinction show STORE EXTINCTION`, and wait until it is committed or "
            "discard the keys again."
        ),
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_NOT_SUPPORTED",
        (Seen.JOB,),
        "The consumer does not take extinctions.",
        "Upgrade the consumer, then retry the session.",
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_UNREADABLE",
        (Seen.TARGET,),
        "An extinction at the target was written by a later version of Lethe, so no key can be judged.",
        "Upgrade this Lethe to that version.",
        Passes.NO,
    ),
    Entry(
        "EXTINCTION_FILTER_MISSING",
        (Seen.HTTP,),
        "The store is declared to have no extinction filter in its application.",
        (
            "Install the filter in the application first. Only then `lethe store update STORE "
            "--extinction-filter INSTALLED`: a false word there makes JE fail."
        ),
        Passes.NO,
    ),
    Entry(
        "FILTER_NOT_INSTALLED",
        (Seen.HTTP,),
        (
            "The store does not say that the application's extinction filter is installed, so nothing can "
            "be attested."
        ),
        "Install the filter, set `extinction_filter: INSTALLED` on the store, and attest again.",
        Passes.NO,
    ),
    Entry(
        "FILTER_REFUSED",
        (Seen.HTTP,),
        "The filter of the request is none, or too large; `detail` says which.",
        "Correct the filter.",
        Passes.NO,
    ),
    Entry(
        "FILTER_UNREADABLE",
        (Seen.HTTP,),
        "The extinction's filter is a Java object in JE's log; which keys it lets pass is not known here.",
        "There is nothing to attest here; ask the application's developers which keys it covers.",
        Passes.NO,
    ),
    Entry(
        "START_AFTER_END",
        (Seen.HTTP,),
        "The first key of the range comes after the last one.",
        "Exchange the two.",
        Passes.NO,
    ),
    Entry(
        "UNKNOWN_DATABASE",
        (Seen.HTTP,),
        "The store has no database of this name.",
        "Take the name from the store; names are case-sensitive.",
        Passes.NO,
    ),
    Entry(
        "PEER_IS_CONSUMER",
        (Seen.HTTP,),
        "The peer is the consumer of an agreement, and counts as long as there is one.",
        "Remove the agreement first, if the peer is gone for good.",
        Passes.NO,
    ),
    Entry(
        "SUPPLIER_NOT_FOUND",
        (Seen.HTTP,),
        "No supplier of this name has brought anything to the replica, or it was forgotten.",
        "`lethe extinction availability STORE` names the peers.",
        Passes.NO,
    ),
    Entry(
        "KEY_EXTINCT",
        (Seen.HTTP, Seen.TARGET),
        "A change names a key that was discarded for good; nothing of the request was written.",
        "Take the change out, and find the application that still uses the key.",
        Passes.NO,
    ),
    Entry(
        "ENTRY_NOT_FOUND",
        (Seen.HTTP,),
        "The replica has no entry of this key, or one that was deleted.",
        "Check the key; deleted entries are shown only when they are asked for.",
        Passes.NO,
    ),
)
