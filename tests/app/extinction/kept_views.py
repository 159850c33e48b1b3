"""The views of extinctions that a process keeps: a test is a new process."""

from app.extinction import verdicts


def forget_views() -> None:
    """Let the next question put its view together anew."""
    verdicts._views.clear()
