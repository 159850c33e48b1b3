"""The HTTP server of a process: uvicorn that drains, takes new certificates, and counts who comes in."""

import asyncio
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from app.kit.door import Door
from app.kit.http.protocol import timed_by
from app.logs import BOUNDS
from app.settings import Settings
from app.starting import CannotStart, check_certificate, door_limits

EXIT_OK = 0
NO_SIGNAL = 0
"""The process ends by itself."""
TURN_S = 1.0
TICKS_A_TURN = 10
"""uvicorn counts tenths of a second, and writes the date of its answers anew at each tenth of them."""
logger = structlog.get_logger("lethe.server")


class CertificateFiles:
    """Certificate and key of the service, taken anew when their files are replaced.

    Connections that are open keep the former one; files that do not fit are told, and change nothing.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        self._seen = self._marks()

    def look(self, context: ssl.SSLContext) -> None:
        """Load them where they are others than before."""
        marks = self._marks()
        if marks == self._seen:
            return
        self._seen = marks
        try:
            check_certificate(*self._files)
            context.load_cert_chain(*self._files, password="")
        except (CannotStart, OSError) as error:
            logger.error("the new certificate is not used, the former one stays", error=str(error))
        else:
            logger.info("certificate replaced", file=str(self._files[0]))

    def _marks(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for file in self._files:
            try:
                at = file.stat()
            except OSError:  # in the middle of its replacement
                found.append(None)
            else:
                found.append((at.st_ino, at.st_mtime_ns, at.st_size))
        return found


class Server(uvicorn.Server):
    """uvicorn that drains: on SIGTERM it answers 503 on /readyz until the jobs have stopped, then ends.

    uvicorn's own loop wakes ten times a second to see whether it shall end. This one turns once a second, and
    is woken by whoever ends it.
    """

    def __init__(self, config: uvicorn.Config, *, drain: Callable[[], None], door: Door) -> None:
        super().__init__(config)
        self._certificates: CertificateFiles | None = None
        if config.ssl_certfile is not None and config.ssl_keyfile is not None:
            self._certificates = CertificateFiles(Path(config.ssl_certfile), Path(config.ssl_keyfile))
        self._drain = drain
        self._draining: threading.Thread | None = None
        self._ends = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.door = door
        self.exit_code = EXIT_OK

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: drain; second: leave at once."""
        if self._draining is not None:
            self.force_exit = True
            self.end()
            return
        self._draining = threading.Thread(
            target=self._drain_and_exit, args=(sig,), name="lethe-drain", daemon=True
        )
        self._draining.start()

    def _drain_and_exit(self, sig: int) -> None:
        try:
            tell_stopping(sig)  # not in the signal's handler: it may have interrupted a line
            self._drain()
        finally:
            self.end()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where it listens as soon as it does."""
        await super().startup(sockets)
        for listener in sockets or ():
            if listener.family == socket.AF_UNIX:  # it is for the processes of this service alone
                continue
            host, port, *_scope = listener.getsockname()
            scheme = "https" if self.config.is_ssl else "http"
            address = f"[{host}]" if ":" in host else host
            logger.info("listening", url=f"{scheme}://{address}:{port}")

    async def main_loop(self) -> None:
        """Turn until it shall end."""
        self._loop = asyncio.get_running_loop()
        turns = 0
        while not await self.on_tick(turns):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), TURN_S)
            turns += 1

    async def on_tick(self, counter: int) -> bool:
        """Once a second: what is late is looked for, and uvicorn's own."""
        self.door.sweep()
        BOUNDS.sum_up()
        if self._certificates is not None and self.config.ssl is not None:
            self._certificates.look(self.config.ssl)
        return await super().on_tick(counter * TICKS_A_TURN)

    def end(self) -> None:
        """Take no more connections and leave the loop; from any thread, and from a signal's handler."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._ends.set)

    def leave(self, code: int) -> None:
        """End with a code; from any thread."""
        self.exit_code = code
        self.handle_exit(NO_SIGNAL, None)


def tell_stopping(sig: int) -> None:
    """Say in the log that the process ends, and by what."""
    logger.info("stopping", signal=None if sig == NO_SIGNAL else signal.Signals(sig).name)


def server_of(
    app: FastAPI,
    settings: Settings,
    drain: Callable[[], None],
    *,
    kind: type[Server] = Server,
    is_inner: bool = False,
) -> Server:
    """The server of an application.

    Args:
        is_inner: for the processes of this service alone, whose word on who asks is taken.
    """
    door = Door(door_limits(settings))
    return kind(
        uvicorn.Config(
            app,
            http=timed_by(door),
            ssl_certfile=None if is_inner else settings.tls_cert,
            ssl_keyfile=None if is_inner else settings.tls_key,
            proxy_headers=is_inner or settings.behind_proxy,
            forwarded_allow_ips="*" if is_inner else settings.proxy_addresses,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        ),
        drain=drain,
        door=door,
    )
