"""Where the service lives."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_DATA_DIR",
        "lethe-data",
        (
            "Folder for SQLite metadata, `admin.token`, the instance id, signing keys, and archives "
            "where no other root is named."
        ),
        (
            "A wrong folder looks like a new, empty service: stores and jobs are missing. Stop it, "
            "and start it with the right folder."
        ),
    ),
    Setting(
        "LETHE_METADATA_URL",
        "none",
        (
            "Database of the metadata: `postgresql+psycopg://user@host/db` in production. None: a "
            "SQLite file in the data directory."
        ),
        (
            "Another scheme or no URL ends the start with exit 78. A database that does not answer "
            "shows in `/readyz`. Another database looks like a new service."
        ),
    ),
    Setting(
        "LETHE_ARCHIVE_ROOT",
        "none",
        (
            "Folder for archives. None: `archive` in the data directory. Several instances, or a "
            "Spark cluster, need one that all of them share."
        ),
        (
            "Archives that another machine wrote are not found (ARCHIVE_NOT_FOUND), or purges on a "
            "cluster run inline (ARCHIVE_NOT_SHARED)."
        ),
    ),
    Setting(
        "LETHE_ARCHIVE_FREE_MIN_MB",
        "64",
        "Room in MB that must stay free where archives are written.",
        (
            "Too small: an archive fills the disk. Larger than what is free: purges with an archive "
            "fail with ARCHIVE_FULL."
        ),
    ),
    Setting(
        "LETHE_DATA_FREE_MIN_MB",
        "16",
        (
            "Less free than this, and less than a twentieth of the file system, counts as no room in "
            "the data directory."
        ),
        "Too small: `/readyz` warns too late. Too large: it reports no room while there is some.",
    ),
    Setting(
        "LETHE_HOST",
        "127.0.0.1",
        "Address that the service listens on.",
        (
            "An address other than this machine's own ends the start with exit 78, unless TLS or "
            "LETHE_BEHIND_PROXY is set."
        ),
    ),
    Setting(
        "LETHE_PORT",
        "8765",
        "Port that the service listens on.",
        "A port in use ends the start. Clients with another port get SERVICE_UNREACHABLE.",
    ),
    Setting(
        "LETHE_API_PROCESSES",
        "1",
        (
            "Processes that answer the API, on PostgreSQL metadata. More than 1: these beside the first one, "
            "which runs jobs, schedules and webhooks."
        ),
        (
            "Too small: one core answers all requests. Too large: memory, and connections to the metadata "
            "(LETHE_METADATA_POOL_SIZE and 5 for each). With SQLite the start ends with exit 78."
        ),
    ),
    Setting(
        "LETHE_TLS_CERT",
        "none",
        "PEM file with the service's certificate. A new file is taken within a second.",
        (
            "A file that cannot be read, or does not fit the key, ends the start with exit 78. A "
            "later one leaves the former in use and writes a line to the log."
        ),
    ),
    Setting(
        "LETHE_TLS_KEY",
        "none",
        "PEM file with the key of LETHE_TLS_CERT.",
        "As for LETHE_TLS_CERT: both are needed, and must fit each other.",
    ),
    Setting(
        "LETHE_BEHIND_PROXY",
        "false",
        "Whether a proxy in front ends TLS and limits connections per client.",
        (
            "True without a proxy: tokens travel in clear text, and connections are not limited per "
            "address. False behind one: all clients share one address's limits."
        ),
    ),
    Setting(
        "LETHE_PROXY_ADDRESSES",
        "127.0.0.1, ::1",
        (
            "With LETHE_BEHIND_PROXY: addresses and networks whose X-Forwarded-Proto and X-Forwarded-For "
            "are believed. `*` is refused: whoever reaches the port could say who he is, and that TLS lies "
            "between."
        ),
        (
            "Without the proxy's address: the scheme stays http, the console's cookie is not Secure, and "
            "each client counts as the proxy. Too wide: clients from within can pass for others."
        ),
    ),
    Setting(
        "LETHE_MIGRATE",
        "false",
        "Whether the start brings the metadata to this version.",
        (
            "False with older metadata: the start ends and names `lethe migrate`. True: the first "
            "process that starts migrates, so make a backup before."
        ),
    ),
    Setting(
        "LETHE_LABELS",
        "none",
        (
            "Labels of this runner, by commas. Jobs of a store with `runs_on` run only where all of "
            "its labels are."
        ),
        "A label that is missing: jobs of such stores stay QUEUED until a runner has it.",
    ),
    Setting(
        "LETHE_OTEL",
        "false",
        "Whether spans are sent by OpenTelemetry.",
        (
            "True without the extra `lethe-control-plane[otel]` ends the start with exit 78. A collector "
            "that is away loses spans and nothing else."
        ),
    ),
    Setting(
        "LETHE_CONSOLE",
        "ON",
        "The console in the browser. READ_ONLY: it shows, and changes nothing. OFF: there are no pages.",
        (
            "READ_ONLY: no page has a button, and a form that is sent gets CONSOLE_READ_ONLY. Any other "
            "word ends the start with exit 78."
        ),
    ),
    Setting(
        "LETHE_CORS_ORIGINS",
        "none",
        "Origins whose pages a browser lets call the API, by commas.",
        (
            "An origin that is missing: browsers refuse the answers. One too many: pages from there "
            "may call the API with a token that they hold."
        ),
    ),
    Setting(
        "LETHE_STOP_GRACE_S",
        "12.0",
        "Seconds that a stop gives requests and jobs to reach a safe point.",
        (
            "Too small: jobs are cut and begin again by their lease. Longer than the supervisor's own "
            "limit: it kills the process."
        ),
    ),
)
