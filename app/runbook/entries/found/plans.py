"""Warnings of plans and results: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "DATA_TIME_NULL",
        (Seen.FINDING,),
        "Rows of `sym_data` have no `create_time`, so they are never old.",
        "Set the time at the target, or remove the rows there if nobody needs them.",
        Passes.NO,
    ),
    Entry(
        "DATA_TIME_IN_FUTURE",
        (Seen.FINDING,),
        "Rows of `sym_data` are later than the target's clock.",
        "Compare the clocks of the machines that write there with the target's.",
        Passes.MAYBE,
    ),
    Entry(
        "DATA_UNROUTED",
        (Seen.FINDING,),
        "Rows are old, but SymmetricDS has not routed them to anybody yet; they stay.",
        "See that the routing job of SymmetricDS runs.",
        Passes.MAYBE,
    ),
    Entry(
        "DATA_PROTECTED",
        (Seen.FINDING,),
        "Rows are old, but belong to a batch that is not delivered; they stay until it is.",
        "Look at the outgoing batches of SymmetricDS. For nodes that are gone: `--stranded mark`.",
        Passes.MAYBE,
    ),
    Entry(
        "DATA_LEFT_STRANDED",
        (Seen.FINDING,),
        ("Rows stay for their age, but lose all their events: no later purge of this kind can remove them."),
        ("Shorten the retention if they should go with the events; else remove them later by a purge ROWS."),
        Passes.NO,
    ),
    Entry(
        "EVENT_WITHOUT_BATCH",
        (Seen.FINDING,),
        "Events name a batch that is not there; they protect no data, and go with the range.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "BATCH_TIME_NULL",
        (Seen.FINDING,),
        "Batches have no `create_time`; they do not count for the range of ids.",
        "Set the time at the target if they should go.",
        Passes.NO,
    ),
    Entry(
        "BATCH_TIME_IN_FUTURE",
        (Seen.FINDING,),
        "Batches are later than the target's clock.",
        "Compare the clocks of the machines that write there with the target's.",
        Passes.MAYBE,
    ),
    Entry(
        "BATCH_STATUS_NULL",
        (Seen.FINDING,),
        "Batches have no status. `detail` says whether they protect their data.",
        "Look at them in SymmetricDS; `strict` lets them protect.",
        Passes.NO,
    ),
    Entry(
        "BATCH_STATUS_UNKNOWN",
        (Seen.FINDING,),
        "Batches have a status that SymmetricDS does not document; they count as not delivered.",
        "Look at them in SymmetricDS.",
        Passes.NO,
    ),
    Entry(
        "BATCH_IGNORED",
        (Seen.FINDING,),
        "Ignored batches (IG) count as delivered and are removed with their data.",
        "If they should stay, resolve them in SymmetricDS before the purge.",
        Passes.NO,
    ),
    Entry(
        "BATCH_YOUNGER_IN_RANGE",
        (Seen.FINDING,),
        (
            "Batches are younger than the cut-off, but their ids lie between old ones: they go too, "
            "as in SymmetricDS."
        ),
        "Choose an earlier cut-off if they should stay.",
        Passes.NO,
    ),
    Entry(
        "BATCH_COMMON_HELD",
        (Seen.FINDING,),
        "A batch is delivered to one node, and another node still waits for it; it stays.",
        "Look at the node that waits.",
        Passes.MAYBE,
    ),
    Entry(
        "BATCH_OF_DISABLED_NODE",
        (Seen.FINDING,),
        "Batches wait for a node that is disabled or unknown.",
        (
            "With `--stranded skip` they stay as long as the node is so; with `--stranded mark` this "
            "backlog is given up."
        ),
        Passes.NO,
    ),
    Entry(
        "BATCH_OF_UNROUTED_NODE",
        (Seen.FINDING,),
        "A batch holds rows that were routed to nobody (node -1).",
        "Nothing to do; the node counts as unknown.",
        Passes.NO,
    ),
    Entry(
        "BATCH_NOT_ACCEPTED",
        (Seen.FINDING,),
        "An incoming batch is old, but not OK; it stays, whatever its age.",
        "Resolve the batch in SymmetricDS.",
        Passes.MAYBE,
    ),
    Entry(
        "BATCH_DATA_ALREADY_MISSING",
        (Seen.FINDING,),
        (
            "A batch is not delivered, and part of its data was removed before this purge: it cannot "
            "be sent whole."
        ),
        "Load the node anew in SymmetricDS (reload).",
        Passes.NO,
    ),
    Entry(
        "MAX_ID_KEPT",
        (Seen.FINDING,),
        "The row with the greatest id of its table stays, so that no id is used twice.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "GAP_TIME_NULL",
        (Seen.FINDING,),
        "Rows of `sym_data_gap` have no time; they are never removed.",
        "Set the time at the target if they should go.",
        Passes.NO,
    ),
    Entry(
        "GAP_TIME_IN_FUTURE",
        (Seen.FINDING,),
        "Rows of `sym_data_gap` are later than the target's clock.",
        "Compare the clocks of the machines that write there with the target's.",
        Passes.MAYBE,
    ),
    Entry(
        "GAP_STATE_NULL",
        (Seen.FINDING,),
        "Rows of `sym_data_gap` have no state; they are never removed.",
        "Look at them in SymmetricDS.",
        Passes.NO,
    ),
    Entry(
        "GAP_STILL_OPEN",
        (Seen.FINDING,),
        "A gap is old and still open: routing waits for its rows, so it stays.",
        "See that the routing job of SymmetricDS runs.",
        Passes.MAYBE,
    ),
    Entry(
        "GAP_HOLDS_UNROUTED_ROWS",
        (Seen.FINDING,),
        "Rows that came late lie in an expired gap and were never routed; the gap stays.",
        "Run a purge STRANDED with RECAPTURE, or let SymmetricDS's own outgoing purge run once: both capture"
        " such rows again.",
        Passes.NO,
    ),
    Entry(
        "GAP_NOT_BELOW_PURGED_ID",
        (Seen.FINDING,),
        "An expired gap is not below the id up to which SymmetricDS has purged; it stays.",
        "Let SymmetricDS's own outgoing purge run once, or wait for the next one.",
        Passes.MAYBE,
    ),
    Entry(
        "ROW_TIME_NULL",
        (Seen.FINDING,),
        "Rows have no time, so they are never old.",
        "Set the time at the target, or remove the rows there if nobody needs them.",
        Passes.NO,
    ),
    Entry(
        "ROW_TIME_IN_FUTURE",
        (Seen.FINDING,),
        "Rows are later than the target's clock.",
        "Compare the clocks of the machines that write there with the target's.",
        Passes.MAYBE,
    ),
    Entry(
        "LOAD_NOT_OVER",
        (Seen.FINDING,),
        "A finished request of a load is old, but the state of the load is not completed, or not old.",
        "See in SymmetricDS whether the load still goes on.",
        Passes.MAYBE,
    ),
    Entry(
        "BATCH_STILL_THERE",
        (Seen.FINDING,),
        "Errors are old, but a batch of their id is still there; they stay.",
        "Purge INCOMING first; the errors go with the next purge.",
        Passes.MAYBE,
    ),
    Entry(
        "TRIGGER_HIST_STILL_NEEDED",
        (Seen.FINDING,),
        "Inactive trigger histories are old, but captured rows still name them; they stay.",
        "Purge OUTGOING first; they go when the last such row has gone.",
        Passes.MAYBE,
    ),
    Entry(
        "RECAPTURE_NOT_A_ROW",
        (Seen.FINDING,),
        "Stranded rows of `sym_data` are no change of one row (a reload, SQL, DDL), or were routed before"
        " they were captured: there is nothing to capture again. They stay.",
        "Look at them. If no node needs them, `--stranded remove` removes them.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_NO_HISTORY",
        (Seen.FINDING,),
        "The trigger history that stranded rows name is not there, or says no table or no key: nobody can say"
        " which row they speak of. They stay.",
        "`--stranded remove` removes them. If nodes may lack these rows, load the table anew in SymmetricDS.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_NO_TABLE",
        (Seen.FINDING,),
        "The table of stranded rows, or a column of its key, is not there for this role, or lies in another"
        " database: it cannot be updated. They stay.",
        "If the table is there, give the role SELECT and UPDATE on it:"
        " `lethe store grants SYMMETRICDS --role ROLE` says how. If it is gone, `--stranded remove` removes"
        " the rows.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_KEY_UNREADABLE",
        (Seen.FINDING,),
        "The key of stranded rows is not in what was captured, has NULL, or is of a type that Lethe does not"
        " compare: it takes whole numbers, decimals, texts, UUIDs and dates. They stay.",
        "Update these rows of the table by hand, so that they are captured; then `--stranded remove` removes"
        " what is stranded.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_KEY_CHANGED",
        (Seen.FINDING,),
        "Stranded updates changed the key of their rows: each speaks of two keys, and no capture of one of"
        " them says what became of the other. They stay.",
        "Look at both keys at the nodes. Where a node has the old key, delete it there; then"
        " `--stranded remove` removes what is stranded.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_ROW_GONE",
        (Seen.FINDING,),
        "Stranded inserts or updates speak of rows that are not in their table today. There is nothing to"
        " capture, and an old insert would bring the row to the nodes again. They stay.",
        "If the nodes do not need the old values, `--stranded remove` removes them.",
        Passes.NO,
    ),
    Entry(
        "RECAPTURE_NOT_CAPTURED",
        (Seen.FINDING,),
        "The rows that stranded rows speak of were updated, and no trigger captured that: updates are not"
        " captured, only changed values are, a condition leaves them out, or something refuses the update."
        " They stay.",
        "Look at the trigger in SymmetricDS. If the nodes have these rows, `--stranded remove` removes what"
        " is stranded; else send the table by a reload.",
        Passes.NO,
    ),
    Entry(
        "TABLE_NOT_PURGED",
        (Seen.FINDING,),
        "A table of this purge, or a column that it needs, is not in this version of SymmetricDS.",
        "Nothing to do: the other tables are purged. `detail` names what is missing. MySQL and MariaDB show"
        " no table that the role has no right to: compare `lethe store grants SYMMETRICDS --role ROLE`.",
        Passes.NO,
    ),
    Entry(
        "CHANNEL_UNKNOWN",
        (Seen.FINDING,),
        "A retention is for a channel that `sym_channel` does not have, so it may hold for no row at all.",
        "Look at the name in `sample`, then plan again: rows of the channel that was meant"
        " go by the other retention. Leave it so where the channel is gone and only its rows are left.",
        Passes.NO,
    ),
    Entry(
        "NO_CHANNELS",
        (Seen.FINDING,),
        "`sym_channel` has no row, so no channel is taken for gone, and every row stays.",
        "See why the configuration is empty: SymmetricDS always has channels of its own.",
        Passes.NO,
    ),
    Entry(
        "OWN_PURGE_RUNNING",
        (Seen.FINDING,),
        "SymmetricDS seems to purge the same tables just now.",
        "Wait for its end, or go on: both remove the same rows.",
        Passes.MAYBE,
    ),
    Entry(
        "HELD_BY_FOREIGN_KEY",
        (Seen.FINDING,),
        "Rows were chosen, but rows of other tables still refer to them; they stay.",
        "Purge the referring rows first, or name their table as a child of this purge.",
        Passes.MAYBE,
    ),
    Entry(
        "TIME_NULL",
        (Seen.FINDING,),
        "Rows have no time in the column of the cut-off; they never count as older.",
        "Set the time, or choose such rows by `--where`.",
        Passes.NO,
    ),
    Entry(
        "TIME_UNREADABLE",
        (Seen.FINDING,),
        "Values in the column of the cut-off are no times; these rows stay.",
        "Correct the values at the target.",
        Passes.NO,
    ),
)
