"""From the request of a backup tool to its 201: protection, the proof of silence, the promise."""

from functools import partial

from fastapi import Request
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from app.auth.access import database_of, owner_of
from app.auth.mutation import Answer, Begun, Conclude, problem_answer
from app.auth.service import Caller
from app.backups.errors import LogFilesVanished, TooManyFiles
from app.backups.looking import Seen, growing_file, look
from app.backups.models import BackupCreate
from app.backups.queries import get_session, read_created
from app.backups.rows import BackupSession, BackupState
from app.backups.service import activate_session, begin_session, fail_session
from app.errors import ServiceError, Unavailable
from app.kit.conditional import etag
from app.protection.access import Place, wait_until_quiet
from app.protection.control import log_files
from app.protection.errors import (
    EnvironmentUnusable,
    EraseAbortTimeout,
    ProtectionEnded,
    ProtectionExpired,
    ServiceStopping,
    some_names,
)
from app.protection.files import name_of
from app.protection.models import FILES_MAX
from app.protection.queries import get_protection
from app.protection.service import require_active
from app.protection.waiting import Silence
from spark.erase.errors import LogFileNotRegular


class PreparationFailed(Unavailable):
    """What a session FAILED of, told again."""


class Preparation:
    """One session from PREPARING to ACTIVE or FAILED."""

    def __init__(self, request: Request, caller: Caller, place: Place, body: BackupCreate) -> None:
        self._request = request
        self._caller = caller
        self._place = place
        self._body = body
        self._timeout = body.erase_abort_timeout or place.abort_timeout
        self._numbers = place.numbers_of(body.files)
        if len(self._numbers) > FILES_MAX:
            raise TooManyFiles(len(self._numbers), FILES_MAX)

    def begin(self, db: Session) -> Begun:
        """Write session and protection."""
        row = begin_session(
            db,
            self._place.store.id,
            self._body,
            self._numbers,
            timeout=self._timeout,
            caller=self._caller,
            owner=owner_of(self._request),
            now=database_of(self._request).now(db),
        )
        audit = {"files": len(self._numbers), "mode": row.mode, "tool": row.tool}
        return Begun(row.id, row.prepare_until, audit=audit)

    async def wait(self, begun: Begun) -> Conclude:
        """Wait for the round in work; an error ends the session, a stop of the service does not."""
        session_id = begun.subject_id
        failure = await run_in_threadpool(self._read_failure, session_id)
        if failure is not None:  # its time was over before this request took it up
            return lambda _db: problem_answer(self._request, failure)
        try:
            return await self._prove(begun)
        except ServiceStopping:
            raise
        except ServiceError as error:
            return partial(self._fail, session_id=session_id, error=error)

    async def _prove(self, begun: Begun) -> Conclude:
        session, numbers = await run_in_threadpool(self._read_files, begun.subject_id)
        silence = await wait_until_quiet(
            self._request, self._place.environment, session.protection_id, numbers, until=begun.until
        )
        if not silence.is_proved:
            raise EraseAbortTimeout.after(self._timeout)
        seen, growing = await run_in_threadpool(self._look, numbers)
        return partial(
            self._activate, session_id=begun.subject_id, seen=seen, growing=growing, silence=silence
        )

    def _read_failure(self, session_id: str) -> ServiceError | None:
        with database_of(self._request).reading() as db:
            row = get_session(db, self._place.store.id, session_id)
        return _failure_of(row) if row.state == BackupState.FAILED else None

    def _read_files(self, session_id: str) -> tuple[BackupSession, list[int]]:
        """The session and its files, as they were when it began."""
        with database_of(self._request).reading() as db:
            row = get_session(db, self._place.store.id, session_id)
            return row, list(get_protection(db, row.store, row.protection_id).files or [])

    def _look(self, numbers: list[int]) -> tuple[dict[int, Seen], int | None]:
        """The files as they are promised, and the one that grows.

        Raises: EnvironmentUnusable: LOG_FILE_NOT_REGULAR; LogFilesVanished.
        """
        environment = self._place.environment
        seen, there = look(environment.directory, numbers), log_files(environment)
        missing = [number for number in numbers if number not in seen]
        if missing:
            self._judge_missing(missing, there, last=numbers[-1])
        return seen, growing_file(environment, there)

    def _judge_missing(self, missing: list[int], there: list[int], *, last: int) -> None:
        """Let a file go that JE's cleaner has deleted, if what was live in it stands in the others.

        It may stand in a file that has begun since: the session does not have that one. A link is a file to
        JE, and none that can be promised.

        Raises: EnvironmentUnusable, LogFilesVanished.
        """
        if links := sorted({*missing} & {*there}):
            detail = f"no regular files: {some_names([name_of(number) for number in links])}"
            raise EnvironmentUnusable(detail, code=LogFileNotRegular.code)
        gone = f"gone meanwhile: {some_names([name_of(number) for number in missing])}"
        if self._body.files is not None:
            raise LogFilesVanished(gone)
        if there[-1] > last:
            raise LogFilesVanished(f"{gone}; what was live in them may stand in {name_of(there[-1])}")

    def _activate(
        self, db: Session, *, session_id: str, seen: dict[int, Seen], growing: int | None, silence: Silence
    ) -> Answer:
        row = get_session(db, self._place.store.id, session_id, lock=True)
        if row.state != BackupState.PREPARING:  # housekeeping was faster: its timeout had passed
            return problem_answer(self._request, _failure_of(row))
        now = database_of(self._request).now(db)
        try:
            require_active(get_protection(db, row.store, row.protection_id, lock=True), now=now)
        except (ProtectionEnded, ProtectionExpired) as error:  # taken up long after its process died
            fail_session(db, row, error, now=now)
            return problem_answer(self._request, error)
        activate_session(db, row, seen, growing=growing, silence=silence, now=now)
        return Answer(
            body=read_created(db, row, self._place.environment.directory),
            status=201,
            headers={
                "Location": f"/v1/stores/{row.store}/backup-sessions/{row.id}",
                "ETag": etag(row.version),
            },
        )

    def _fail(self, db: Session, *, session_id: str, error: ServiceError) -> Answer:
        row = get_session(db, self._place.store.id, session_id, lock=True)
        if row.state == BackupState.PREPARING:
            fail_session(db, row, error, now=database_of(self._request).now(db))
        return problem_answer(self._request, error)


def _failure_of(row: BackupSession) -> ServiceError:
    failure = row.failure or {}
    detail = str(failure.get("detail", "it failed"))
    if failure.get("code") == "ERASE_ABORT_TIMEOUT":
        return EraseAbortTimeout(detail)
    return PreparationFailed(
        detail, code=str(failure.get("code", "BACKUP_SESSION_FAILED")), headers={"Retry-After": "5"}
    )
