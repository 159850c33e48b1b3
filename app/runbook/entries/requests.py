"""Requests: what each code means, and what to do next."""

from typing import Final

from app.runbook.entry import Entry, Passes, Seen

ENTRIES: Final = (
    Entry(
        "BAD_REQUEST",
        (Seen.HTTP,),
        "The request cannot be understood.",
        "Correct the request by `detail`; it fails again as it is.",
        Passes.NO,
    ),
    Entry(
        "INVALID_JSON",
        (Seen.HTTP,),
        "The body is not valid JSON.",
        "Send one JSON document in UTF-8.",
        Passes.NO,
    ),
    Entry(
        "INVALID_HEADER",
        (Seen.HTTP,),
        "A header's value has a form that is not allowed; `detail` says which header and what it takes.",
        "Correct the header and send the request again.",
        Passes.NO,
    ),
    Entry(
        "INVALID_PAGE_TOKEN",
        (Seen.HTTP,),
        "The page token was not given for this list and these filters.",
        "Read the list again from its first page.",
        Passes.NO,
    ),
    Entry(
        "INVALID_REQUEST",
        (Seen.HTTP,),
        "A field or parameter of the request is not valid; `errors` names each.",
        "Correct the fields that `errors` points to.",
        Passes.NO,
    ),
    Entry(
        "REQUEST_CUT_OFF",
        (Seen.HTTP,),
        "The connection ended before the whole body had come.",
        "Send the request again; look for a proxy or client that ends the connection early.",
        Passes.NO,
    ),
    Entry(
        "BODY_TOO_SLOW",
        (Seen.HTTP,),
        "No part of the body came for too long.",
        "Send the request again over a working connection; a proxy between may hold the body back.",
        Passes.NO,
    ),
    Entry(
        "BODY_TOO_LARGE",
        (Seen.TARGET,),
        "The body is larger than the service takes; `detail` names the bound.",
        "Send less at once, or have the bound of the service raised where it is too small for your work.",
        Passes.NO,
    ),
    Entry(
        "TOO_LARGE",
        (Seen.HTTP,),
        "The body is larger than the service takes.",
        "Send less at once.",
        Passes.NO,
    ),
    Entry(
        "UNSUPPORTED_MEDIA_TYPE",
        (Seen.HTTP,),
        "The body is of a media type that this operation does not take.",
        "Send one of the types that `detail` names, with its Content-Type.",
        Passes.NO,
    ),
    Entry(
        "NOT_FOUND",
        (Seen.HTTP,),
        "There is nothing at this path.",
        "Check the path against `/openapi.json` of the service, or `docs/reference/api.md`.",
        Passes.NO,
    ),
    Entry(
        "PEER_RID_NOT_FOUND",
        (Seen.HTTP,),
        "The path has a replica id that nothing can have.",
        "Check the replica id in the path.",
        Passes.NO,
    ),
    Entry(
        "NAME_NOT_FOUND",
        (Seen.HTTP,),
        "The path has a name that nothing can have.",
        "Check the name in the path.",
        Passes.NO,
    ),
    Entry(
        "DATABASE_NOT_FOUND",
        (Seen.HTTP,),
        "The path has a database that nothing can have.",
        "Check the database in the path.",
        Passes.NO,
    ),
    Entry(
        "FILE_NOT_FOUND",
        (Seen.HTTP,),
        "The path has a file that nothing can have.",
        "Check the file in the path.",
        Passes.NO,
    ),
    Entry(
        "OFFSET_NOT_FOUND",
        (Seen.HTTP,),
        "The path has an offset that nothing can have.",
        "Check the offset in the path.",
        Passes.NO,
    ),
    Entry(
        "ORIGIN_NOT_FOUND",
        (Seen.HTTP,),
        "The path has an origin that nothing can have.",
        "Check the origin in the path.",
        Passes.NO,
    ),
    Entry(
        "SEQNO_NOT_FOUND",
        (Seen.HTTP,),
        "The path has an event number that nothing can have.",
        "Check the event number in the path.",
        Passes.NO,
    ),
    Entry(
        "METHOD_NOT_ALLOWED",
        (Seen.HTTP,),
        "The path exists, but not with this method.",
        "Use a method that `/openapi.json` of the service lists for the path, or `docs/reference/api.md`.",
        Passes.NO,
    ),
    Entry(
        "PRECONDITION_MISSING",
        (Seen.HTTP,),
        "A change of configuration needs the version that it changes.",
        "Read the resource, and send its ETag in If-Match.",
        Passes.NO,
    ),
    Entry(
        "ETAG_MISMATCH",
        (Seen.HTTP,),
        "Somebody has changed the resource since you read it.",
        "Read it again, decide again, and send the new ETag in If-Match.",
        Passes.NO,
    ),
    Entry(
        "IDEMPOTENCY_KEY_IN_FLIGHT",
        (Seen.HTTP,),
        "A request with the same Idempotency-Key is still being worked on.",
        "Send the same request again after `Retry-After`; you get the answer of the first.",
        Passes.YES,
    ),
    Entry(
        "IDEMPOTENCY_KEY_REUSED",
        (Seen.HTTP,),
        "The Idempotency-Key was used before, by a request with another content.",
        "Use a new key for a new request.",
        Passes.NO,
    ),
    Entry(
        "TOO_MANY_REQUESTS",
        (Seen.HTTP,),
        "The caller, or callers that fail to log in from its address, send more requests than are taken.",
        "Wait as `Retry-After` says, and look for a client that retries without a pause.",
        Passes.YES,
    ),
    Entry(
        "TOO_MANY_WAITERS",
        (Seen.HTTP,),
        "Too many requests wait for events or results already.",
        "Try again later, or ask without waiting; end clients that nobody needs.",
        Passes.YES,
    ),
    Entry(
        "METADATA_BUSY",
        (Seen.HTTP,),
        "The metadata database has no free place for this request.",
        (
            "Send it again after `Retry-After`. If it lasts, look at the load and locks of the metadata "
            "database."
        ),
        Passes.YES,
    ),
    Entry(
        "METADATA_UNAVAILABLE",
        (Seen.HTTP,),
        "The metadata database cannot be reached or used.",
        "Look at that database, and at `/readyz` of the service. Requests succeed again when it is back.",
        Passes.MAYBE,
    ),
    Entry(
        "FIRST_PROCESS_AWAY",
        (Seen.HTTP,),
        "Of a service with LETHE_API_PROCESSES, the process that runs the jobs does not answer the others.",
        (
            "Send it again after `Retry-After`. If it lasts, look at the log of the service, and restart it: "
            "jobs and schedules stand still as well."
        ),
        Passes.MAYBE,
    ),
    Entry(
        "INTERNAL",
        (
            Seen.HTTP,
            Seen.JOB,
        ),
        "Something happened that Lethe does not expect; the log of the service has the trace.",
        (
            "Search the log for the time or the job's id, and report it. A job may be retried by `lethe job"
            " retry JOB` when the cause is known."
        ),
        Passes.NO,
    ),
)
