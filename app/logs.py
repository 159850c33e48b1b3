"""The log: one JSON line per event on standard error, whoever speaks (Lethe, uvicorn, a library)."""

import logging
import sys
from contextlib import suppress
from typing import Final, TextIO, cast

import structlog
from structlog.typing import Processor

from app.kit.log_bounds import LogBounds


def _left_out(kind: str, lines: int) -> None:
    structlog.get_logger("lethe.log").warning("lines left out", kind=kind, left_out=lines)


BOUNDS: Final = LogBounds(say=_left_out)
"""Of this process."""


class LossyStream:
    """A stream that loses lines where they cannot be written: a full disk must not stop the work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose it."""
        with suppress(OSError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, or lose it."""
        with suppress(OSError):
            self._stream.flush()


_SHARED: Final[tuple[Processor, ...]] = (
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
)


def configure_logging() -> None:
    """Send Lethe's events from INFO on, and warnings of everything else, through the same renderer."""
    structlog.configure(
        processors=[
            BOUNDS.processor,
            structlog.contextvars.merge_contextvars,
            *_SHARED,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, LossyStream(sys.stderr))),
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *_SHARED],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(BOUNDS.filter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
