"""Kinds of jobs, stores, purges, erasures and protections: what each is, and how it is seen."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "PURGE",
        (Seen.ANSWER,),
        "A kind of job: it removes rows that are old or named, such as what SymmetricDS has delivered.",
        "`lethe purge plan STORE` shows what would go, `lethe job list --kind PURGE` what ran.",
        Passes.FINE,
    ),
    Entry(
        "PLAN",
        (Seen.ANSWER,),
        "A kind of job: it counts what another one would remove, and writes nothing at the target.",
        "`lethe job show JOB` has the plan; run exactly it by its `--plan-id`.",
        Passes.FINE,
    ),
    Entry(
        "ERASURE",
        (Seen.ANSWER,),
        "A kind of job: one cycle that overwrites obsolete data in the log files of a JE environment.",
        "`lethe erasure show STORE` says how far it is.",
        Passes.FINE,
    ),
    Entry(
        "ERASURE_VERIFY",
        (Seen.ANSWER,),
        "A kind of job: it reads again what a cycle has erased, and compares it with the certificate.",
        "`lethe certificate recheck STORE` starts one.",
        Passes.FINE,
    ),
    Entry(
        "EXTINCTION",
        (Seen.ANSWER,),
        (
            "A kind of job: it removes or counts the records of a range of keys that was discarded. Of a "
            "change: the record that discards them at a replica."
        ),
        "`lethe extinction show STORE EXTINCTION` says how far it is.",
        Passes.FINE,
    ),
    Entry(
        "EVENT_CLEANUP",
        (Seen.ANSWER,),
        "A kind of job: it removes events and log rows of Slony-I that every node has confirmed.",
        "`lethe slony cleanup STORE --plan` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "EVENT_SYNC",
        (Seen.ANSWER,),
        "A kind of job: it makes a SYNC at a node of Slony-I that has made none for a while.",
        "`lethe slony sync STORE --if-older-than PT10M` starts one.",
        Passes.FINE,
    ),
    Entry(
        "EVENT_WAIT",
        (Seen.ANSWER,),
        "A kind of job: it waits until nodes of Slony-I have confirmed an event; it writes nothing.",
        "`lethe slony status STORE` shows who is behind.",
        Passes.FINE,
    ),
    Entry(
        "LOG_SWITCH",
        (Seen.ANSWER,),
        "A kind of job: it switches and empties the log tables of a node of Slony-I.",
        "`lethe slony switch-log STORE` starts one.",
        Passes.FINE,
    ),
    Entry(
        "REPLICATION_SESSION",
        (Seen.ANSWER,),
        "A kind of job: one session that brings changes of a replica to a consumer.",
        "`lethe replication session list STORE` shows them.",
        Passes.FINE,
    ),
    Entry(
        "AUDIT",
        (Seen.ANSWER,),
        "A kind of job: it compares two replicas.",
        "`lethe replication audit STORE AGREEMENT` starts one.",
        Passes.FINE,
    ),
    Entry(
        "REPLICA_EXPORT",
        (Seen.ANSWER,),
        "A kind of job: it writes all that a replica holds into a file.",
        "`lethe replica export STORE FILE` starts one.",
        Passes.FINE,
    ),
    Entry(
        "REPLICA_IMPORT",
        (Seen.ANSWER,),
        "A kind of job: it fills a blank replica from such a file.",
        "`lethe replica import STORE FILE` starts one.",
        Passes.FINE,
    ),
    Entry(
        "SLONY_FEED",
        (Seen.ANSWER,),
        "A kind of job: it carries the changes of a Slony-I node into a replica, each SYNC exactly once.",
        "`lethe slony feed STORE NODE` starts one.",
        Passes.FINE,
    ),
    Entry(
        "BATCH",
        (Seen.ANSWER,),
        "A kind of job: one request over many stores, with a job for each.",
        "`lethe job show JOB` names its jobs.",
        Passes.FINE,
    ),
    Entry(
        "ARCHIVE_VERIFY",
        (Seen.ANSWER,),
        "A kind of job: it reads the files of an archive again.",
        "`lethe archive verify JOB` starts one.",
        Passes.FINE,
    ),
    Entry(
        "ARCHIVE_RESTORE",
        (Seen.ANSWER,),
        "A kind of job: it writes archived rows again, beside the live tables or into them.",
        "`lethe archive restore JOB --into NAME` starts one.",
        Passes.FINE,
    ),
    Entry(
        "SYMMETRICDS",
        (Seen.ANSWER,),
        "A kind of store: a database of SymmetricDS, whose delivered data are purged.",
        "`lethe store check STORE` says what may be done there.",
        Passes.FINE,
    ),
    Entry(
        "JE",
        (Seen.ANSWER,),
        "A kind of store: an environment of Berkeley DB Java Edition, in whose log data are erased.",
        "`lethe store add-environment NAME DIRECTORY` registers one.",
        Passes.FINE,
    ),
    Entry(
        "SLONY",
        (Seen.ANSWER,),
        "A kind of store: a node of a Slony-I cluster.",
        "`lethe slony status STORE` shows it.",
        Passes.FINE,
    ),
    Entry(
        "DS389",
        (Seen.ANSWER,),
        "A kind of store: a replica of 389 Directory Server, which is only read.",
        "`lethe ds389 health STORE` tells how it is.",
        Passes.FINE,
    ),
    Entry(
        "SQL",
        (Seen.ANSWER,),
        "A kind of store: any database, of whose tables rows are removed by age or by an expression.",
        (
            "`lethe purge rows STORE --table TABLE --time-column COLUMN --older-than P90D --plan` shows "
            "what would go."
        ),
        Passes.FINE,
    ),
    Entry(
        "OUTGOING",
        (Seen.ANSWER,),
        "A kind of purge: what SymmetricDS has captured and every node has got.",
        "`lethe purge plan STORE --kind outgoing` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "INCOMING",
        (Seen.ANSWER,),
        "A kind of purge: the notes of SymmetricDS on batches that it has loaded.",
        "`lethe purge plan STORE --kind incoming` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "DATA_GAP",
        (Seen.ANSWER,),
        "A kind of purge: gaps in the numbers of captured rows that have expired.",
        "`lethe purge plan STORE --kind data_gap` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "EXTRACT_REQUEST",
        (Seen.ANSWER,),
        "A kind of purge: finished requests of initial loads of SymmetricDS, and the state of these loads.",
        "`lethe purge plan STORE --kind extract_request` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "REGISTRATION_REQUEST",
        (Seen.ANSWER,),
        "A kind of purge: registrations that SymmetricDS has answered.",
        "`lethe purge plan STORE --kind registration_request` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "INCOMING_ERROR",
        (Seen.ANSWER,),
        "A kind of purge: rows that SymmetricDS could not load, of batches that are gone.",
        "`lethe purge plan STORE --kind incoming_error` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "STATISTICS",
        (Seen.ANSWER,),
        "A kind of purge: what SymmetricDS has counted of hosts, channels and jobs.",
        "`lethe purge plan STORE --kind statistics` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "TRIGGER_HIST",
        (Seen.ANSWER,),
        "A kind of purge: inactive trigger histories that no captured row needs.",
        "`lethe purge plan STORE --kind trigger_hist` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "STRANDED",
        (Seen.ANSWER,),
        "A kind of purge: events and captured rows below every batch, which SymmetricDS would capture again.",
        "`lethe purge plan STORE --kind stranded --stranded remove` shows what would go; with"
        " `--stranded recapture` only what was captured again goes.",
        Passes.FINE,
    ),
    Entry(
        "CHANNELS",
        (Seen.ANSWER,),
        "A kind of purge: captured rows of channels that are gone.",
        "`lethe purge plan STORE --kind channels` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "CHANGELOG",
        (Seen.ANSWER,),
        "A kind of purge: changes of a replica that every consumer has got (trimming).",
        "`lethe purge plan STORE --kind changelog` shows what would go.",
        Passes.FINE,
    ),
    Entry(
        "TOMBSTONES",
        (Seen.ANSWER,),
        "A kind of purge: entries of deleted keys of a replica, once no older change of them can come.",
        "`lethe purge plan STORE --kind tombstones` shows what would go, and who holds the rest.",
        Passes.FINE,
    ),
    Entry(
        "DELETED_DATABASES",
        (Seen.ANSWER,),
        "A kind of erasure: entries of databases that the application has removed.",
        "`lethe erasure plan STORE` shows how many.",
        Passes.FINE,
    ),
    Entry(
        "EXTINCT_RECORDS",
        (Seen.ANSWER,),
        (
            "Of a cycle: a kind of erasure, of entries of records that an extinction covers. Of a "
            "certificate: keys and embedded values of such records, which stay readable."
        ),
        (
            "Of a cycle: `lethe erasure plan STORE` shows how many; `lethe extinction list STORE` names "
            "the extinctions. Of a certificate: nothing to do; JE takes them out in time."
        ),
        Passes.FINE,
    ),
    Entry(
        "KNOWN_OBSOLETE_ENTRIES",
        (Seen.ANSWER,),
        "A kind of erasure: entries that JE itself has noted as obsolete.",
        "`lethe erasure plan STORE` shows how many.",
        Passes.FINE,
    ),
    Entry(
        "ALL_OBSOLETE_ENTRIES",
        (Seen.ANSWER,),
        "A kind of erasure: every entry that nothing refers to any more; it includes the others.",
        "`lethe erasure plan STORE` shows how many.",
        Passes.FINE,
    ),
    Entry(
        "FEEDER",
        (Seen.ANSWER,),
        (
            "A kind of protection: a process that sends the log of an environment to a replica reads "
            "these files."
        ),
        "`lethe protection list STORE` shows who holds them.",
        Passes.FINE,
    ),
    Entry(
        "SCAN",
        (Seen.ANSWER,),
        "A kind of protection: somebody reads these files as they are.",
        "`lethe protection list STORE` shows who holds them.",
        Passes.FINE,
    ),
    Entry(
        "NETWORK_RESTORE",
        (Seen.ANSWER,),
        "A kind of protection and of backup: another node copies the log files over the network.",
        "`lethe protection list STORE` shows who holds them.",
        Passes.FINE,
    ),
)
