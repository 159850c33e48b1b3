"""Made by `make client` from lethe_client/backups.py: change that, not this."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.backup_results import BackupEnd, BackupFile, BackupSession, EraseAbort, Protection
from lethe_client.backups import ABORT_TIMEOUT_S, WAIT_MARGIN_S, _given
from lethe_client.decoding import decode
from lethe_client.paths import resource
from lethe_client.transport import Call


class Backups:
    """`/v1/stores/{store}/backup-sessions`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def begin(
        self,
        store_id: str,
        *,
        mode: str | None = None,
        files: Sequence[str] | None = None,
        lease: str | None = None,
        erase_abort_timeout: str | None = None,
        tool: str | None = None,
        label: str | None = None,
        wait_s: float = ABORT_TIMEOUT_S,
        idempotency_key: str | None = None,
    ) -> BackupSession:
        """Protect the files and wait until nobody writes to them any more; None is left to the service.

        Args:
            files: such as `00000003.jdb`; None: all that are there.
            lease, erase_abort_timeout: ISO 8601 durations.
            wait_s: how long the answer may take, about the same as erase_abort_timeout.
        Raises: ServiceUnavailable: ERASE_ABORT_TIMEOUT; nothing is promised, and nothing stays protected.
        """
        body = _given(
            mode=mode,
            files=None if files is None else list(files),
            lease=lease,
            erase_abort_timeout=erase_abort_timeout,
            tool=tool,
            label=label,
        )
        call = Call(
            method="POST",
            path=resource("stores", store_id, "backup-sessions"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
            timeout_s=wait_s + WAIT_MARGIN_S,
        )
        return decode(BackupSession, (await self._transport.request(call)).body)

    async def get(self, store_id: str, session_id: str) -> BackupSession:
        call = Call(method="GET", path=self._path(store_id, session_id), repeatable=True)
        return decode(BackupSession, (await self._transport.request(call)).body)

    def list(self, store_id: str, *, states: Sequence[str] = ()) -> AsyncIterator[BackupSession]:
        path = resource("stores", store_id, "backup-sessions")
        return pages.items(self._transport, path, BackupSession, params={"state": list(states)})

    def files(self, store_id: str, session_id: str) -> AsyncIterator[BackupFile]:
        """The files in the order in which to copy them."""
        return pages.items(self._transport, self._path(store_id, session_id, "files"), BackupFile)

    async def renew(self, store_id: str, session_id: str, *, lease: str | None = None) -> BackupSession:
        """Hold the files for longer, from now on.

        Raises: Gone: the lease has run out, and the copy is no backup.
        """
        return decode(BackupSession, await self._act(store_id, session_id, "renew", _given(lease=lease)))

    async def release_files(self, store_id: str, session_id: str, files: Sequence[str]) -> BackupSession:
        """Give back files that are copied."""
        body = {"files": list(files)}
        return decode(BackupSession, await self._act(store_id, session_id, "release-files", body))

    async def end(self, store_id: str, session_id: str) -> BackupEnd:
        """End it and learn whether each file stayed what it was; asked again it answers the same.

        Raises: Gone: the lease has run out, and the copy is no backup.
        """
        return decode(BackupEnd, await self._act(store_id, session_id, "end", None))

    def _path(self, store_id: str, session_id: str, *below: str, verb: str = "") -> str:
        return resource("stores", store_id, "backup-sessions", session_id, *below, verb=verb)

    async def _act(self, store_id: str, session_id: str, verb: str, body: Any) -> Any:
        path = self._path(store_id, session_id, verb=verb)
        return (await self._transport.request(Call(method="POST", path=path, json=body, creates=True))).body


class Protections:
    """`/v1/stores/{store}/protections` and `erasure:abort`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        store_id: str,
        *,
        kind: str,
        name: str,
        files: Sequence[str] | None = None,
        ranges: Sequence[tuple[str, str | None]] | None = None,
        lease: str | None = None,
        idempotency_key: str | None = None,
    ) -> Protection:
        """Protect files or ranges; from the answer on no eraser begins a round in them."""
        body = _given(
            kind=kind,
            name=name,
            files=None if files is None else list(files),
            ranges=None if ranges is None else [{"first": first, "last": last} for first, last in ranges],
            lease=lease,
        )
        path = resource("stores", store_id, "protections")
        call = Call(method="POST", path=path, json=body, creates=True, idempotency_key=idempotency_key)
        return decode(Protection, (await self._transport.request(call)).body)

    async def get(self, store_id: str, protection_id: str) -> Protection:
        path = resource("stores", store_id, "protections", protection_id)
        return decode(
            Protection, (await self._transport.request(Call(method="GET", path=path, repeatable=True))).body
        )

    def list(self, store_id: str, *, states: Sequence[str] = ()) -> AsyncIterator[Protection]:
        path = resource("stores", store_id, "protections")
        return pages.items(self._transport, path, Protection, params={"state": list(states)})

    async def renew(self, store_id: str, protection_id: str, *, lease: str | None = None) -> Protection:
        """Hold it for longer, from now on."""
        return decode(Protection, await self._act(store_id, protection_id, "renew", _given(lease=lease)))

    async def release_files(self, store_id: str, protection_id: str, files: Sequence[str]) -> Protection:
        """Give back single files; a set never grows again."""
        return decode(
            Protection, await self._act(store_id, protection_id, "release-files", {"files": list(files)})
        )

    async def end(self, store_id: str, protection_id: str) -> Protection:
        return decode(Protection, await self._act(store_id, protection_id, "end", None))

    async def abort_erasure(
        self,
        store_id: str,
        protection_id: str,
        *,
        files: Sequence[str] | None = None,
        timeout: str | None = None,
        wait_s: float = ABORT_TIMEOUT_S,
        idempotency_key: str | None = None,
    ) -> EraseAbort:
        """Wait until no write to the protected files happens any more.

        Raises: ServiceUnavailable: ERASE_ABORT_TIMEOUT; Conflict: NOT_PROTECTED.
        """
        body = _given(
            protection_id=protection_id, files=None if files is None else list(files), timeout=timeout
        )
        call = Call(
            method="POST",
            path=resource("stores", store_id, "erasure", verb="abort"),
            json=body,
            creates=True,
            idempotency_key=idempotency_key,
            timeout_s=wait_s + WAIT_MARGIN_S,
        )
        return decode(EraseAbort, (await self._transport.request(call)).body)

    async def _act(self, store_id: str, protection_id: str, verb: str, body: Any) -> Any:
        path = resource("stores", store_id, "protections", protection_id, verb=verb)
        return (await self._transport.request(Call(method="POST", path=path, json=body, creates=True))).body
