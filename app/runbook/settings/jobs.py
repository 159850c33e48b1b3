"""Jobs, schedules, webhooks."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_RUNNER_JOBS_MAX",
        "4",
        "Jobs that one process runs inline at a time.",
        "Too small: jobs stay QUEUED. Too large: they slow each other, and the API.",
    ),
    Setting(
        "LETHE_RUNNER_SPARK_JOBS_MAX",
        "28",
        "Jobs on Spark beside them, which only plan and wait in this process.",
        "Too small: Spark's slots stay empty. Too large: memory of this process.",
    ),
    Setting(
        "LETHE_RUNNER_INTERACTIVE_JOBS_MAX",
        "2",
        "Jobs for which somebody waits (plans, checks) beside the others.",
        "Too small: plans wait behind each other. Too large: they slow purges.",
    ),
    Setting(
        "LETHE_RUNNER_POLL_INTERVAL_S",
        "0.5",
        "Seconds between two looks for new jobs.",
        "Too small: load on the metadata. Too large: jobs of other instances begin late.",
    ),
    Setting(
        "LETHE_CRASH_LOOP_MAX",
        "5",
        "Crashes of its process in a row after which a job is FAILED with CRASH_LOOP.",
        (
            "Too small: a job fails by restarts of the machine. Too large: a job that kills its "
            "process goes on doing so."
        ),
    ),
    Setting(
        "LETHE_JOB_RETRIES_MAX",
        "30",
        "How often a job tries again after an error that may pass; RETRIES_EXHAUSTED after it.",
        ("Too small: jobs fail in short outages. Too large: they wait for targets that do not come back."),
    ),
    Setting(
        "LETHE_JOB_RETRY_BACKOFF_MAX_S",
        "30.0",
        "The longest pause between two tries.",
        ("Too small: load on a target that is starting. Too large: jobs notice late that it is back."),
    ),
    Setting(
        "LETHE_PROGRESS_INTERVAL_S",
        "0.5",
        "Seconds between two entries of progress.",
        "Too small: many events. Too large: watchers see old figures.",
    ),
    Setting(
        "LETHE_JOBS_QUEUED_MAX",
        "10000",
        "Jobs that may be QUEUED; then QUEUE_FULL.",
        ("Too small: batches over many stores are refused. Too large: a runaway script fills the queue."),
    ),
    Setting(
        "LETHE_CANCEL_GRACE_S",
        "2.0",
        "Seconds that a statement on a target gets to end before it is cancelled at a stop.",
        "Too small: units are undone and done again. Too large: a stop or abort takes longer.",
    ),
    Setting(
        "LETHE_SCHEDULES_POLL_S",
        "30.0",
        "Seconds between two looks at schedules while none is due.",
        "Large: a schedule that another instance wrote begins so late.",
    ),
    Setting(
        "LETHE_SCHEDULES_LATE_S",
        "3600.0",
        "Seconds for which a schedule is still begun that could not begin in time.",
        ("Too small: runs are left out after an outage. Too large: they begin in the middle of the day."),
    ),
    Setting(
        "LETHE_WEBHOOK_SOURCE",
        "lethe",
        "`source` of the events that webhooks send.",
        "The same for two installations: receivers cannot tell them apart.",
    ),
    Setting(
        "LETHE_WEBHOOK_TIMEOUT_S",
        "15.0",
        "Seconds for one attempt to deliver an event.",
        "Too small: slow receivers get events twice. Too large: they hold senders for longer.",
    ),
    Setting(
        "LETHE_PLAN_VALID_S",
        "86400",
        "Seconds for which a plan may be executed.",
        (
            "Too small: PLAN_NO_LONGER_HOLDS before somebody has reviewed it. Too large: old plans "
            "are executed."
        ),
    ),
)
