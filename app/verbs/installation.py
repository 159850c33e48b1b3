"""Whether what a job would load is the Lethe that this process began as.

What runs a job is loaded with the first job of its kind. Where another version was installed over a process,
it would load that one's code beside its own.
"""

from datetime import timedelta
from typing import Final

from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.kit.texts.distribution import installed_version, version_on_disk

INSTALLATION_REPLACED: Final = "INSTALLATION_REPLACED"
LOOK_AGAIN: Final = timedelta(seconds=60)


def require_installation(context: JobContext) -> None:
    """Let a job begin only while the version of this process is the one that is installed.

    Raises: JobWaiting: it goes on at a process that was started since.
    """
    began_as, found = installed_version(), version_on_disk()
    if found == began_as:
        return
    shown = "none" if found is None else found
    raise JobWaiting(
        [WaitingOn(kind=INSTALLATION_REPLACED, ref=shown)],
        not_before=context.clock.now() + LOOK_AGAIN,
        detail=f"this process is Lethe {began_as}, and installed is {shown}: restart it",
        gives_back=True,
    )
