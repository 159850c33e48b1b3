"""Why a change feed does not go on, or a conditional write was not done: what it means, what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

_ANEW: Final = (
    "Begin anew: take a cursor with `starting=latest`, read all entries (`lethe entries list STORE`), then"
    " follow from that cursor. A change that the entries have already comes again; its CSN says so."
)

ENTRIES: Final = (
    Entry(
        "WITHHELD",
        (Seen.ANSWER,),
        "A change of keys that this partial replica does not hold: it has its CSN, no key and no value.",
        "Nothing is wrong: read those keys at the replica that supplies it.",
        Passes.NO,
    ),
    Entry(
        "CURSOR_TRIMMED",
        (Seen.TARGET,),
        "Changes behind the cursor have left the changelog, or came in a total initialisation.",
        f"{_ANEW} Keep the changelog for longer than readers stay away.",
        Passes.NO,
    ),
    Entry(
        "CURSOR_PARTED",
        (Seen.TARGET,),
        "The reader has changes that this replica never had: it was restored from a backup and written to.",
        f"{_ANEW} What only the reader has is lost here: compare before it is overwritten.",
        Passes.NO,
    ),
    Entry(
        "CURSOR_GENERATION",
        (Seen.TARGET,),
        "The cursor is of another generation: the replica was made anew, or it is another topology's.",
        _ANEW,
        Passes.NO,
    ),
    Entry(
        "CURSOR_AHEAD",
        (Seen.TARGET,),
        "The reader has changes that this replica lacks: it was restored, or is behind the one before.",
        (
            "Wait until a replication session has brought them, and use the same cursor again; or read at the"
            " replica that gave it. Where they are given up (`lethe recover STORE`), begin anew."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "CURSOR_REFUSED",
        (Seen.TARGET,),
        "The change feed does not go on from this cursor; `detail` says why.",
        _ANEW,
        Passes.NO,
    ),
    Entry(
        "FEED_TOO_WIDE",
        (Seen.TARGET,),
        "The replica knows more than 500 replica ids: no cursor holds them.",
        "List the changelog by replica id instead: `lethe changes list STORE --rid RID`.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_FEEDS",
        (Seen.HTTP,),
        "As many change feeds are open as may be, in all or of this token.",
        (
            "Close feeds that nobody needs; `lethe_change_feeds_open` tells how many there are. Or raise"
            " LETHE_CHANGE_FEEDS_MAX or LETHE_CHANGE_FEEDS_PER_TOKEN_MAX."
        ),
        Passes.YES,
    ),
    Entry(
        "CONCURRENT",
        (Seen.ANSWER,),
        "A change lost against one whose replica did not have it: it came here later than the winner.",
        "See what was lost: `lethe entries history STORE DATABASE KEY`. Write it again if it should stay.",
        Passes.NO,
    ),
    Entry(
        "UNCERTAIN",
        (Seen.ANSWER,),
        "A change lost, and the changelog does not say whether the winner's replica had it.",
        "Look at the replica that made the winner: there it is known, while its changelog holds both.",
        Passes.NO,
    ),
    Entry(
        "SEEN",
        (Seen.ANSWER,),
        "A change was overwritten here when it was here already.",
        "Nothing. Who wants to overwrite only what was read writes with `if_csn`.",
        Passes.FINE,
    ),
    Entry(
        "WON",
        (Seen.ANSWER,),
        "The entry is at this change: it has the greatest CSN of its key.",
        "Nothing.",
        Passes.FINE,
    ),
    Entry(
        "OVERWRITTEN",
        (Seen.ANSWER,),
        "A greater CSN of the key has won against this change.",
        "Nothing, where that was meant; `lethe changes overwritten STORE` tells which were concurrent.",
        Passes.FINE,
    ),
    Entry(
        "CSN_MISMATCH",
        (Seen.HTTP,),
        "The entry is not at the CSN that `if_csn` names; nothing of the request was written.",
        "Read the entry again, decide anew, and send the change with its CSN (`current_csn`).",
        Passes.NO,
    ),
)
