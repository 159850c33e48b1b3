"""Requests and connections."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_REQUEST_BODY_MAX_BYTES",
        "1048576",
        ("Bytes that the body of a request may have. Writing changes has LETHE_REPLICATION_BULK_MAX_BYTES."),
        "Too small: BODY_TOO_LARGE. Too large: requests take more memory.",
    ),
    Setting(
        "LETHE_REQUEST_HEADERS_TIMEOUT_S",
        "10.0",
        "Seconds until the headers of a request are here. Then the connection is closed.",
        "Too small: slow clients are cut. Too large: idle connections hold places.",
    ),
    Setting(
        "LETHE_REQUEST_BODY_CHUNK_TIMEOUT_S",
        "15.0",
        "Seconds that nothing of a body may come.",
        "Too small: BODY_TOO_SLOW over slow lines. Too large: stalled uploads hold places.",
    ),
    Setting(
        "LETHE_REQUEST_BODY_TIMEOUT_S",
        "300.0",
        "Seconds that a whole body may take.",
        "Too small: BODY_TOO_SLOW for large uploads. Too large: slow uploads hold places.",
    ),
    Setting(
        "LETHE_CONNECTIONS_MAX",
        "10000",
        "Connections at a time; fewer where the process may open fewer files.",
        (
            "Too small: connections that ask for nothing are ended early. Too large: memory and "
            "descriptors run short."
        ),
    ),
    Setting(
        "LETHE_CONNECTIONS_PER_ADDRESS_MAX",
        "4000",
        "The same for one address, without LETHE_BEHIND_PROXY.",
        (
            "Too small: clients behind one address end each other's idle connections. Too large: one "
            "address takes all of them."
        ),
    ),
    Setting(
        "LETHE_DESCRIPTORS_RESERVED",
        "512",
        "Files that connections leave to metadata, targets and logs; at most half of `ulimit -n`.",
        ("Too small: targets and metadata cannot be opened under load. Too large: fewer connections."),
    ),
    Setting(
        "LETHE_BODIES_PER_TOKEN_MAX",
        "256",
        "Bodies of one token that have begun and not ended.",
        "Too small: 429 for a busy client. Too large: one client takes all places.",
    ),
    Setting(
        "LETHE_BODIES_PER_ADDRESS_MAX",
        "64",
        "The same for an address without a known token.",
        "Too small: 429 for new clients behind one address. Too large: strangers take all places.",
    ),
    Setting(
        "LETHE_TOKEN_REQUESTS_PER_S",
        "500.0",
        "Requests a second of one token, in the long run.",
        "Too small: 429 with Retry-After for scripts. Too large: one client slows all others.",
    ),
    Setting(
        "LETHE_TOKEN_REQUESTS_BURST",
        "5000.0",
        "Requests of one token at once, before LETHE_TOKEN_REQUESTS_PER_S counts.",
        "Too small: 429 at each peak. Too large: one client slows all others.",
    ),
    Setting(
        "LETHE_ADDRESS_FAILURES_PER_S",
        "20.0",
        "Refused requests a second of one address, in the long run.",
        "Too small: clients with a stale token get 429. Too large: tokens may be guessed faster.",
    ),
    Setting(
        "LETHE_ADDRESS_FAILURES_BURST",
        "1000.0",
        "Refused requests of one address at once.",
        "As for LETHE_ADDRESS_FAILURES_PER_S.",
    ),
    Setting(
        "LETHE_REFUSAL_DELAY_MAX_S",
        "1.0",
        "Seconds that an answer 401 or 403 waits after many to one address. 0: never.",
        "0: tokens may be guessed faster. Large: whoever has a stale token waits long.",
    ),
    Setting(
        "LETHE_REFUSALS_WRITTEN_S",
        "60.0",
        "How often refused requests are written to the audit, a row for each address.",
        "Too small: many rows. Too large: a process that is killed loses more of them.",
    ),
    Setting(
        "LETHE_API_THREADS_MAX",
        "24",
        "Threads that answer requests.",
        (
            "Too small: answers are slow under load. Too large: more connections to the metadata than "
            "LETHE_METADATA_POOL_SIZE has, and they wait for each other."
        ),
    ),
    Setting(
        "LETHE_WAITERS_MAX",
        "2000",
        "Requests that wait (`Prefer: wait`) and streams, at a time.",
        "Too small: 429 for those who watch jobs. Too large: memory.",
    ),
    Setting(
        "LETHE_WAIT_MAX_S",
        "60",
        "The longest `Prefer: wait=N` that is granted.",
        ("Longer than a proxy's own limit: the proxy cuts answers. Shorter: clients ask more often."),
    ),
    Setting(
        "LETHE_PLAN_WAIT_DEFAULT_S",
        "10",
        "Seconds that a request for a plan waits for it where it does not say.",
        "Too small: clients get 202 and the job. Too large: slow answers.",
    ),
    Setting(
        "LETHE_PLAN_AWAY_MAX_S",
        "20.0",
        "Seconds that a plan tries a target that does not answer.",
        (
            "Too small: TARGET_UNREACHABLE during a short restart. Too large: plans of a dead target "
            "take long."
        ),
    ),
    Setting(
        "LETHE_WATCH_INTERVAL_S",
        "0.25",
        "Seconds between two looks at the metadata for those who wait.",
        "Too small: load on the metadata. Too large: waits and streams notice changes late.",
    ),
    Setting(
        "LETHE_SSE_KEEPALIVE_S",
        "15.0",
        "Seconds between two comments on a silent stream.",
        (
            "Longer than a proxy's idle limit, or than 50 s of the client library: streams are cut "
            "and opened again."
        ),
    ),
    Setting(
        "LETHE_STREAM_MAX_S",
        "3600.0",
        "Seconds after which a stream of `/v1/events` ends; clients go on by Last-Event-ID.",
        "Too small: clients reconnect often. Too large: a revoked token listens for longer.",
    ),
    Setting(
        "LETHE_CHANGE_FEEDS_MAX",
        "1000",
        "Readers of change feeds at a time, those that wait among them.",
        "Too small: TOO_MANY_FEEDS. Too large: memory.",
    ),
    Setting(
        "LETHE_CHANGE_FEEDS_PER_TOKEN_MAX",
        "250",
        "The same of one token.",
        "Too small: TOO_MANY_FEEDS for its readers. Too large: one token takes the place of others.",
    ),
    Setting(
        "LETHE_STREAM_STALLED_S",
        "30.0",
        "Seconds that the reader of a stream may take nothing.",
        "Too small: slow readers are cut. Too large: dead readers hold memory.",
    ),
)
