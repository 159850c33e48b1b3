"""Findings of the health of Slony-I nodes: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "RECEIVER_LAGS",
        (Seen.FINDING,),
        "A node has not confirmed events of another node for longer than `health.lag.warning`, so neither"
        " events nor log rows go away.",
        "Start or restart its slon, and look at its log. A node that is gone for good is removed by slonik"
        " (`drop node`).",
        Passes.MAYBE,
    ),
    Entry(
        "CONFIRMATIONS_STALE",
        (Seen.FINDING,),
        "Confirmations of a node do not come back, though it has processed the events, or are older than"
        " `health.confirmation.age`.",
        "Look at the listen paths back from that node, at the slons on the way, and at the clocks of both.",
        Passes.MAYBE,
    ),
    Entry(
        "EVENTS_STALE",
        (Seen.FINDING,),
        "The newest event of a node that has come here is older than `health.event.age`.",
        "Look whether the slon of that node runs and makes SYNCs, then at the paths between both.",
        Passes.MAYBE,
    ),
    Entry(
        "SYNC_OVERDUE",
        (Seen.FINDING,),
        "The node has made no SYNC for `health.sync.age`: what is written meanwhile reaches its subscribers"
        " as one large piece.",
        "Start its slon. Until it runs, `lethe slony sync STORE --if-older-than PT5M`, or a schedule of"
        " EVENT_SYNC, cuts the work into pieces.",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_TABLE_LARGE",
        (Seen.FINDING,),
        "A log table, or `sl_seqlog`, has more rows than `health.log.rows`.",
        "`lethe slony status STORE` shows who is behind and what holds the log switch back.",
        Passes.MAYBE,
    ),
    Entry(
        "LISTEN_MISSING",
        (Seen.FINDING,),
        "By `sl_listen` a node hears nothing of another one, or not directly of its provider.",
        "Store the missing path by slonik (`store path`); Slony-I then makes the listen paths by itself.",
        Passes.NO,
    ),
    Entry(
        "PATH_MISSING",
        (Seen.FINDING,),
        "A node is to listen at another one, and the connection string of that path has not come yet.",
        "Store the path by slonik (`store path`).",
        Passes.NO,
    ),
    Entry(
        "COMPONENT_SILENT",
        (Seen.FINDING,),
        "A thread of a slon is connected and has said nothing for longer than `health.component.age`.",
        "Look at the log of that slon. Where no long copy or SYNC is under way, restart it.",
        Passes.MAYBE,
    ),
    Entry(
        "TRANSACTION_OLD",
        (Seen.FINDING,),
        "A transaction at the node's server is open for longer than `health.transaction.age`; it holds back"
        " cleanup and log switch.",
        "End the session that `detail` names, or the prepared transaction, if nobody needs it.",
        Passes.MAYBE,
    ),
    Entry(
        "DDL_PENDING",
        (Seen.FINDING,),
        "Statements of EXECUTE SCRIPT have not been confirmed by a subscriber for `health.ddl.age`.",
        "Look at the log of the subscriber's slon: a statement that fails there stops its replication.",
        Passes.MAYBE,
    ),
    Entry(
        "SUBSCRIPTION_INACTIVE",
        (Seen.FINDING,),
        "A subscription was asked for and has not become active for `health.subscription.age`, or for longer"
        " than events are kept.",
        "Look at the log of the receiver's slon: the copy of the set runs, fails again and again, or was"
        " never begun. Where nobody wants it any more, end it by slonik (`unsubscribe set`).",
        Passes.MAYBE,
    ),
    Entry(
        "LOG_SWITCH_STUCK",
        (Seen.FINDING,),
        "A switch of the log tables is under way for longer than `health.log_switch.age`; `detail` says who"
        " holds it back.",
        "See to the nodes and end the sessions that are named; then `lethe slony switch-log STORE`.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_FORGOTTEN",
        (Seen.FINDING,),
        "Events or confirmations are left of a node that is no node of the cluster any more.",
        "`lethe slony cleanup STORE` removes its confirmations. Its events stay until somebody deletes them"
        " by hand, once no node needs them.",
        Passes.NO,
    ),
    Entry(
        "HEALTH_UNREAD",
        (Seen.FINDING,),
        "The role may not read all tables that tell whether the node is well.",
        "Grant SELECT on them: `lethe store grants SLONY --role ROLE --schema _CLUSTER` prints the SQL.",
        Passes.NO,
    ),
    Entry(
        "NODE_AWAY",
        (Seen.FINDING,),
        "The server of a node does not answer. CRITICAL where other nodes of its cluster do.",
        "Start the server, or mend the way to it; `lethe store check STORE` tells more.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_NOT_ASKED",
        (Seen.FINDING,),
        "A node could not be asked how it is; `detail` has the code of the reason.",
        "`lethe explain CODE` of that code says what to do.",
        Passes.MAYBE,
    ),
    Entry(
        "NODE_WITHOUT_STORE",
        (Seen.FINDING,),
        "A node of the cluster is no registered store, so it is not looked at itself.",
        "Register it: `lethe store add STORE URL --kind SLONY --cluster NAME`.",
        Passes.NO,
    ),
    Entry(
        "CLUSTER_NOT_FOUND",
        (Seen.HTTP,),
        "No store that the token may see is a node of a Slony-I cluster of that name.",
        "`lethe store list` shows the stores; the name is the one without the underscore of its schema.",
        Passes.NO,
    ),
)
