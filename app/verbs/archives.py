"""Archives: read again, and brought back."""

from functools import partial

from app.archives.models import ArchiveVerifyRequest, RestoreInto, RestoreRequest
from app.archives.results import (
    ArchiveRestoreParams,
    ArchiveRestoreResult,
    ArchiveVerifyParams,
    ArchiveVerifyResult,
)
from app.archives.submitting import JOB_RESTORE, JOB_VERIFY, submit_newest_verify
from app.auth.scopes import Scope
from app.jobs.running.deadlines import AN_HOUR
from app.jobs.running.sql_target import prove_silence
from app.verbs.verb import NOWHERE, Limits, Params, Scopes, Task, Tools, Verb


def _of_the_place(params: Params) -> Scopes:
    """Who restores into the live tables is an admin; who names a file may name paths."""
    into = RestoreInto.model_validate(params["into"])
    if into.live:
        return frozenset({Scope.ADMIN})
    return frozenset({Scope.STORES_WRITE} if into.file is not None else ())


# -- what runs: its modules are loaded with the first job of the kind


def _verify(tools: Tools) -> Task:
    from app.archives.task import run_verify

    return partial(run_verify, engines=tools.engines)


def _restore(_tools: Tools) -> Task:
    from app.archives.task import run_restore

    return run_restore


# -- the rows

VERIFY = Verb(
    kind=JOB_VERIFY,
    stores=NOWHERE,
    scope=Scope.EVIDENCE_VERIFY,
    request=ArchiveVerifyRequest,
    params=ArchiveVerifyParams,
    result=ArchiveVerifyResult,
    task=_verify,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
    scheduled=submit_newest_verify,
    wait_max=AN_HOUR,
)
RESTORE = Verb(
    kind=JOB_RESTORE,
    stores=NOWHERE,
    scope=Scope.PURGES_WRITE,
    more_scopes=_of_the_place,
    request=RestoreRequest,
    params=ArchiveRestoreParams,
    result=ArchiveRestoreResult,
    task=_restore,
    proof=prove_silence,
    limits=Limits.REMOVES_NOTHING,
    throttled_at=NOWHERE,
)
VERBS = (VERIFY, RESTORE)
"""All of the domain."""
