"""What waits at a SymmetricDS store: what each word means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "BACKLOG_GROWS",
        (Seen.FINDING,),
        "More and more outgoing batches wait: even the least of the last third of `backlog.window` is more"
        " than all that waited before, the day before too.",
        "`lethe symmetricds backlog STORE` names the nodes and channels that grow, and why their oldest"
        " batches wait.",
        Passes.MAYBE,
    ),
    Entry(
        "BACKLOG_HOLDS_PURGE",
        (Seen.FINDING,),
        "Batches that are older than the retention still wait, so a purge keeps their rows of sym_data, and"
        " the tables do not shrink.",
        "`lethe symmetricds backlog STORE` says for each node why, and what to do.",
        Passes.MAYBE,
    ),
    Entry(
        "BACKLOG_UNREAD",
        (Seen.FINDING,),
        "What waits to be delivered could not be read at the last look; the code of the fault is with it.",
        "Look at the code. Where a statement took too long, see whether idx_ob_status and idx_de_batchid of"
        " SymmetricDS are there; `backlog.period` PT0S switches these looks off.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_NOT_FOUND",
        (Seen.HTTP,),
        "The node that was asked for is not in sym_node, and no batch waited for it at the last look.",
        "Correct the name in `--node`; `detail` names up to ten that are known, `SELECT node_id FROM"
        " sym_node` all. Where it is new, wait for the next look (`backlog.period`), or run"
        " `lethe store check STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "CHANNEL_NOT_FOUND",
        (Seen.HTTP,),
        "The channel that was asked for is not in sym_channel, and no batch of it waited at the last look.",
        "Correct the name in `--channel`; `detail` names up to ten that are known, `SELECT channel_id FROM"
        " sym_channel` all. Where it is new, wait for the next look (`backlog.period`), or run"
        " `lethe store check STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_UNKNOWN",
        (Seen.ANSWER,),
        "Batches wait for a node that is not in sym_node, or for -1: rows that were routed to nobody.",
        "Nobody will fetch them. A purge with `stranded` MARK turns them to OK, and their rows may go.",
        Passes.NO,
    ),
    Entry(
        "NODE_DISABLED",
        (Seen.ANSWER,),
        "Batches wait for a node that is disabled in SymmetricDS (sync_enabled is 0).",
        "Enable it, or give its backlog up: a purge with `stranded` MARK turns its batches to OK.",
        Passes.NO,
    ),
    Entry(
        "BATCH_IN_ERROR",
        (Seen.ANSWER,),
        "The oldest batch of a node and channel is in error: nothing behind it goes on this channel.",
        "Look at its error in SymmetricDS (sym_outgoing_batch, and sym_incoming_error at the node), and mend"
        " or ignore it there.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_SILENT",
        (Seen.ANSWER,),
        "The node has sent no heartbeat for `backlog.node.silent`: it is offline.",
        "Start SymmetricDS at the node, or mend the way to it. One that is gone for good is disabled in"
        " SymmetricDS; then a purge with `stranded` MARK frees its rows.",
        Passes.MAYBE,
    ),
    Entry(
        "STUCK",
        (Seen.ANSWER,),
        "The oldest batch of a node and channel has been the same for the whole `backlog.window`.",
        "Look whether the node runs and fetches, and whether the channel is suspended for it.",
        Passes.MAYBE,
    ),
    Entry(
        "UNDER_WAY",
        (Seen.ANSWER,),
        "Batches of the node wait, and no other cause is seen: its oldest batch has moved in the window, or"
        " there are too few looks.",
        "Look again later: while the oldest batch changes, it is delivered in its order.",
        Passes.MAYBE,
    ),
)
