"""Erasure."""

from typing import Final

from app.runbook.settings.entry import Setting

ENTRIES: Final = (
    Setting(
        "LETHE_ERASURE_WAIT_IN_JOB_S",
        "5.0",
        ("A pause of a cycle up to this many seconds keeps its thread; a longer one gives it to other jobs."),
        ("Too large: cycles that wait take the places of other jobs. Too small: more claims of jobs."),
    ),
    Setting(
        "LETHE_ERASURE_LOOK_AGAIN_S",
        "60.0",
        "Seconds between two looks whether what stops a cycle has passed.",
        "Too large: cycles go on late. Too small: load on the metadata.",
    ),
    Setting(
        "LETHE_ERASURE_ENVIRONMENT_LOOK_S",
        "5.0",
        "Seconds between two looks whether an environment in use is free.",
        ("Too large: short pauses of the application are missed. Too small: more looks at its lock file."),
    ),
    Setting(
        "LETHE_ERASURE_TICK_S",
        "2.0",
        "Seconds between two looks whether a cycle is due.",
        "Too large: cycles begin late. Too small: load on the metadata.",
    ),
)
