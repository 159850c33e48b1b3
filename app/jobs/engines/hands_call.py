"""One call of hands in a job that looks: it ends with the job's stop, and with the hands."""

from collections.abc import Callable
from typing import TypeVar

from app.jobs.errors import JobWaiting
from app.jobs.running.context import JobContext
from spark.erase.hands.hands import Hands, HandsLost

Answer = TypeVar("Answer")


def ask_hands(context: JobContext, hands: Hands, ask: Callable[[Hands], Answer]) -> Answer:
    """Ask hands that were taken for this call alone, and close them.

    Raises: JobStopped; JobWaiting: they were lost, and others are asked later.
    """
    forget = context.on_cancel(hands.kill)
    try:
        return ask(hands)
    except HandsLost as lost:
        context.check()
        raise JobWaiting([], not_before=None, transient=True, code="HANDS_LOST", detail=str(lost)) from lost
    finally:
        forget()
        hands.close()
