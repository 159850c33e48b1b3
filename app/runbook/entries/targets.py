"""Targets: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "TARGET_ERROR",
        (Seen.TARGET,),
        "The target's database answered with an error that has no name here; `detail` has its words.",
        "Look it up in the database's documentation, and mend it there.",
        Passes.NO,
    ),
    Entry(
        "TARGET_URL_INVALID",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        "The target's URL cannot be used; `detail` says why.",
        "Correct the URL on the store.",
        Passes.NO,
    ),
    Entry(
        "TARGET_UNREACHABLE",
        (Seen.TARGET,),
        (
            "The target does not answer, or the connection was lost. What the job did there stays done,"
            " and nothing is lost."
        ),
        (
            "`lethe store check STORE` asks it from the service's machine, `lethe store show STORE` has"
            " the address: start the database, or mend the network. A job tries again by itself for "
            "about a quarter of an hour without progress. After that it is FAILED: `lethe job retry "
            "JOB` goes on where it was."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TARGET_AUTH_FAILED",
        (Seen.TARGET,),
        "The target refuses the user or the password; `detail` has its words.",
        (
            "Correct the secret (`lethe secret update NAME`) or the user in the URL, then `lethe store check "
            "STORE`. A job that failed by it: `lethe job retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "TARGET_CERTIFICATE_INVALID",
        (Seen.TARGET,),
        (
            "The TLS certificate of the target does not verify, the file of its authority cannot be read, or "
            "the server has no TLS; `detail` says which. Nothing was sent to it."
        ),
        (
            "Let `sslrootcert` (PostgreSQL) or `ssl_ca` (MariaDB, MySQL) in the store's URL name the file of "
            "the authority that signed it (`lethe store update STORE --target-url URL`), or renew the "
            "certificate. Then `lethe store check STORE`, and `lethe job retry JOB`."
        ),
        Passes.NO,
    ),
    Entry(
        "TARGET_FULL",
        (Seen.TARGET,),
        "The target's disk, quota or table space has no room left. What was under way there was rolled back.",
        (
            "Make room at the database server. A job tries again by itself for about a quarter of an hour; "
            "after that `lethe job retry JOB`. A purge needs room too, for the log of its own deletes: a "
            "smaller `max_rows_in_tx` needs less."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "TARGET_DATABASE_MISSING",
        (Seen.TARGET,),
        "The database or file that the URL names is not there.",
        "Correct the URL; check that the file's directory is mounted.",
        Passes.NO,
    ),
    Entry(
        "TARGET_IS_ANOTHER",
        (
            Seen.HTTP,
            Seen.TARGET,
        ),
        (
            "The target is not the one that the store was given: it was restored, exchanged, or its "
            "name leads elsewhere."
        ),
        (
            "Make sure which database this is, before anything else. If it is the wrong one: `lethe "
            "store update STORE --target-url URL`. Only if it is the right one: `lethe store check "
            "STORE` binds the store to it."
        ),
        Passes.NO,
    ),
    Entry(
        "TARGET_OF_OTHER_STORES",
        (Seen.HTTP,),
        "The target belongs to stores that the token may not see.",
        "Ask an admin to register it.",
        Passes.NO,
    ),
    Entry(
        "TARGET_TABLES_MISSING",
        (Seen.TARGET,),
        "A table that is needed is not there; `detail` names it.",
        "Check the database, `schema` and `table_prefix` of the store; names are case-sensitive.",
        Passes.NO,
    ),
    Entry(
        "TARGET_TABLES_ELSEWHERE",
        (Seen.TARGET,),
        "The tables are in another schema, or have another prefix; `detail` says where.",
        "Set them right: `lethe store update STORE --schema NAME --table-prefix PREFIX`.",
        Passes.NO,
    ),
    Entry(
        "TARGET_READ_ONLY",
        (Seen.HTTP, Seen.TARGET, Seen.FINDING),
        "The role may not write where it must, or the database takes no writes.",
        (
            "`lethe store check STORE` lists what is missing, `lethe store grants KIND --role ROLE` "
            "prints the SQL. A standby: name the primary by `lethe store update STORE --target-url "
            "URL`."
        ),
        Passes.NO,
    ),
    Entry(
        "TARGET_SCHEMA_UNSUPPORTED",
        (Seen.TARGET,),
        "The target's tables are not of a form that is worked on; `detail` says why.",
        (
            "`lethe store check STORE` shows the version and the layout that were found. Upgrade what made "
            "the tables, or leave the store out: there is no way around it."
        ),
        Passes.NO,
    ),
    Entry(
        "MIXED_TIME_TYPES",
        (Seen.TARGET,),
        "Columns of times that are compared have different types, or hold values that do not compare.",
        "Bring them to one type, or mend the values that `detail` counts.",
        Passes.NO,
    ),
    Entry(
        "TARGET_LOCK_TIMEOUT",
        (Seen.TARGET,),
        "Another session holds locks at the target for long, or a deadlock was resolved.",
        "Nothing to do for a while; if it lasts, find the idle transaction at the database and end it.",
        Passes.YES,
    ),
    Entry(
        "TARGET_STATEMENT_TIMEOUT",
        (Seen.TARGET,),
        "A statement took longer than its limit at the target.",
        "Look at the load and the indexes at the target; a smaller piece of work may do.",
        Passes.MAYBE,
    ),
    Entry(
        "TARGET_CANCELLED",
        (Seen.TARGET,),
        "Lethe cancelled its own statement, because the job was to stop.",
        "Nothing to do; resume or retry the job when it is wanted.",
        Passes.MAYBE,
    ),
    Entry(
        "TARGET_ROW_CONFLICT",
        (Seen.TARGET,),
        "A constraint of the target refused a row.",
        "`detail` names the constraint; mend the row or what it refers to.",
        Passes.NO,
    ),
    Entry(
        "FENCE_RAISED",
        (Seen.TARGET,),
        (
            "Another job, or another Lethe, has taken over what this one was writing; nothing more was "
            "written."
        ),
        (
            "See by `lethe job list` who works there. If nobody does, look for a second Lethe on the "
            "target, then `lethe job retry JOB`."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "EXPRESSION_INVALID",
        (Seen.TARGET,),
        "The condition is no expression, or compares what does not compare; `detail` says where.",
        "Correct the condition.",
        Passes.NO,
    ),
)
