"""Replicas of 389 Directory Server: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "SERVER_AWAY",
        (Seen.FINDING,),
        "A server of 389 Directory Server does not answer, and others of its suffix do.",
        "Start it: `dsctl INSTANCE start`. Its peers send what it missed, while their changelogs still"
        " have it.",
        Passes.MAYBE,
    ),
    Entry(
        "SERVER_NOT_ASKED",
        (Seen.FINDING,),
        "A server could not be asked: its password, its certificate, a host that is not allowed, or this"
        " service runs elsewhere.",
        "`lethe store check STORE` names the reason.",
        Passes.NO,
    ),
    Entry(
        "SERVER_CLOCK_WRONG",
        (Seen.FINDING,),
        "The clock of a server is further from ours than `ds389.clock.skew`. At a day 389 refuses sessions.",
        "Set it by NTP, and look at our own clock too.",
        Passes.NO,
    ),
    Entry(
        "CSN_AHEAD",
        (Seen.FINDING,),
        "A server has made changes whose time lies in the future: its clock is or was ahead. Older"
        " changes of others lose against them.",
        "Set the clock by NTP. The CSNs stay; all peers follow the greatest, until time has caught up.",
        Passes.MAYBE,
    ),
    Entry(
        "CSN_OFFSET",
        (Seen.FINDING,),
        "The CSN generator of a server runs ahead of its clock, by what nsState says: it follows a peer"
        " that was ahead, or its clock went back.",
        "Find the server whose clock is wrong (SERVER_CLOCK_WRONG, CSN_AHEAD), and keep the clocks by NTP."
        " What peers follow does not wear off: each wrong clock adds to it; at a day 389 refuses sessions."
        " Below that it does no harm; `ds389.clock.skew` says from when on it is a finding.",
        Passes.NO,
    ),
    Entry(
        "SERVER_RESTORED",
        (Seen.FINDING,),
        "Others have more of a server's own changes than the server itself: it was restored from a"
        " backup. What is written there now can hide what is missing.",
        "Let nobody write there until its peers have sent its own changes back. If somebody wrote, `lethe"
        " ds389 lost` tells what is missing; initialise it anew.",
        Passes.MAYBE,
    ),
    Entry(
        "RID_DANGLING",
        (Seen.FINDING,),
        "A replica id stands in RUVs, and no registered server has it: a server that was removed, or that"
        " is not registered.",
        "Register it, or clean its RID: `dsconf INSTANCE repl-tasks cleanallruv --suffix SUFFIX"
        " --replica-id RID`.",
        Passes.NO,
    ),
    Entry(
        "RID_TWICE",
        (Seen.FINDING,),
        "Two servers have the same replica id: changes of one are taken for the other's.",
        "Give one of them a RID that was never used, and initialise it anew.",
        Passes.NO,
    ),
    Entry(
        "RID_LAGS",
        (Seen.FINDING,),
        "A server is behind in the changes of a replica for longer than `ds389.lag.warning`.",
        "`lethe ds389 topology --suffix SUFFIX` shows the agreements that lead to it, and what their"
        " servers say.",
        Passes.MAYBE,
    ),
    Entry(
        "GENERATIONS_DIFFER",
        (Seen.FINDING,),
        "Servers of one suffix have data of different generations: one was imported anew. Nothing is"
        " exchanged between them.",
        "Initialise the wrong one from a good one: `dsconf INSTANCE repl-agmt init --suffix SUFFIX"
        " AGREEMENT`.",
        Passes.NO,
    ),
    Entry(
        "AGREEMENT_UNKNOWN",
        (Seen.FINDING,),
        "An agreement leads to a server that is no registered store.",
        "Register it with `lethe store add STORE URL --kind DS389`, or remove the agreement of a server"
        " that is gone.",
        Passes.NO,
    ),
    Entry(
        "AGREEMENT_OFF",
        (Seen.FINDING,),
        "An agreement is disabled: it sends nothing.",
        "`dsconf INSTANCE repl-agmt enable --suffix SUFFIX AGREEMENT`, unless that is meant so.",
        Passes.NO,
    ),
    Entry(
        "AGREEMENT_FAILED",
        (Seen.FINDING,),
        "The last session of an agreement has failed, in the server's own words.",
        "Look at the consumer and its error log. After a fatal error only a change of the agreement moves"
        " it: `dsconf INSTANCE repl-agmt poke`.",
        Passes.MAYBE,
    ),
    Entry(
        "AGREEMENT_WAITS",
        (Seen.FINDING,),
        "An agreement tries again and again: its server calls the cause passing.",
        "It goes on by itself when the consumer takes it again. Look at the consumer if it lasts.",
        Passes.MAYBE,
    ),
    Entry(
        "AGREEMENT_MISSING",
        (Seen.FINDING,),
        "No way of enabled agreements leads from one server to another: its changes never arrive there.",
        "Add or enable an agreement: `dsconf INSTANCE repl-agmt create`, `repl-agmt enable`.",
        Passes.NO,
    ),
    Entry(
        "INIT_FAILED",
        (Seen.FINDING,),
        "The last total update of an agreement has failed: the consumer may be empty.",
        "Look into the error log of the consumer, and initialise it again.",
        Passes.NO,
    ),
    Entry(
        "CHANGELOG_TRIMMED",
        (Seen.FINDING,),
        "A server does not find in its changelog what a consumer lacks: it was trimmed. 389 tries again"
        " for ever and tells only a warning.",
        "Initialise the consumer from a server that has all: `dsconf INSTANCE repl-agmt init --suffix"
        " SUFFIX AGREEMENT`.",
        Passes.NO,
    ),
    Entry(
        "CHANGELOG_SHORT",
        (Seen.FINDING,),
        "A server may have been behind for longer than any changelog keeps changes.",
        "Look whether sessions go on (CHANGELOG_TRIMMED). `lethe ds389 lost` with the exports of the"
        " changelogs tells whether anything is missing.",
        Passes.MAYBE,
    ),
    Entry(
        "SUFFIX_NOT_FOUND",
        (Seen.HTTP,),
        "No store that the token may see is a replica of that suffix.",
        "`lethe store list` shows the stores; the suffix is written as the stores have it.",
        Passes.NO,
    ),
    Entry(
        "DS389_REPLICA_NOT_SHOWN",
        (Seen.TARGET,),
        "The server shows no replica of the suffix: there is none, or the account may not read `cn=config`.",
        "Look at the suffix, and give `bind_dn` the rights of the guide on 389 Directory Server.",
        Passes.NO,
    ),
    Entry(
        "DS389_ANSWER_UNREADABLE",
        (Seen.TARGET,),
        "What a directory server tells of its replica cannot be understood.",
        "Look at `nsds50ruv` of `cn=replica` with ldapsearch; a version that writes another form is not"
        " read.",
        Passes.NO,
    ),
    Entry(
        "LDAP_NOT_INSTALLED",
        (Seen.TARGET,),
        "A process that should ask a directory server lacks the extra `ldap`.",
        "`pip install 'lethe-control-plane[ldap]'` in its environment, and start it again.",
        Passes.NO,
    ),
    Entry(
        "HUB",
        (Seen.ANSWER,),
        "Of a replica of 389 Directory Server: it passes changes on, and takes none of its own.",
        "Nothing to do.",
        Passes.FINE,
    ),
    Entry(
        "JUMPED",
        (Seen.ANSWER,),
        "Of a lost change: a session sent a later change of the same replica without it, so the server's"
        " RUV covers what it lacks.",
        "Initialise the server anew, from one that has the change.",
        Passes.NO,
    ),
    Entry(
        "HOLE",
        (Seen.ANSWER,),
        "Of a change that may be lost: a changelog has changes before and behind it. A total update"
        " leaves such holes too.",
        "Compare the entry on both servers, and give more evidence to `lethe ds389 lost`.",
        Passes.MAYBE,
    ),
    Entry(
        "EVIDENCE_UNREADABLE",
        (Seen.COMMAND,),
        "A file that was given to `lethe ds389 lost` is no export of a changelog, no log of sessions, or"
        " damaged.",
        "Give it under the option that it belongs to; an error log tells of sessions with nsslapd-"
        " errorlog-level 8192.",
        Passes.NO,
    ),
)
