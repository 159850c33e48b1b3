"""`:check` of a JE store: what its environment is, and what stands in the way of an erasure.

Nothing is made here: neither a control file nor JE's lock file.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

from app.db import Database
from app.erase.cycle.attempt import MEDIUM_KEEPS_COPIES
from app.erase.place import place_of
from app.jobs.running.claims import current_epoch
from app.protection.errors import EpochAhead
from app.settings import Settings
from app.stores.checks.models import Finding, FindingSeverity, MissingPermission, StoreCheck, TableSize
from app.stores.errors import StoreUrlRefused
from app.stores.models import StoreMode
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.erase.errors import LogRefused
from spark.erase.helper.helper import Act, command
from spark.erase.overwrite.environment_lock import is_in_use
from spark.erase.reading.directory import file_names, opened, read_file_header
from spark.erase.reading.properties import refuse_own_eraser
from spark.erase.reading.replicated import has_vlsns
from spark.erase.reasons import Cause
from spark.extras import JE
from spark.formats.je import log as je_log
from spark.targets.files.control_errors import ControlError, ControlFileInvalid, ControlFileMissing
from spark.targets.files.control_file import ControlFile
from spark.targets.files.log_place import log_folders, log_paths, medium_of_log
from spark.targets.files.mode_bits import may

LAYOUT: Final = f"JE log version {je_log.VERSION}"
LOCK_NAME: Final = "je.lck"


def check_environment(database: Database, store: Store, settings: Settings, _now: datetime) -> StoreCheck:
    """Look at the environment; whatever is wrong with it is a finding."""
    if not set(store.runs_on) <= set(settings.labels):
        detail = f"only runners labelled {', '.join(store.runs_on)} reach it; this service does not try"
        return StoreCheck(ok=True, reachable=False, findings=[_info("RUNS_ON_ELSEWHERE", detail)])
    try:
        directory = environment_directory(store, settings)
        version, sizes = _versions(directory)
    except StoreUrlRefused as error:
        return _refused(error.code, error.detail)
    except LogRefused as error:
        return _refused(error.code, str(error))
    missing = _permissions(directory)
    findings = [*_medium(store, directory), *_use(store, directory), *_control(database, store, directory)]
    findings += _replication(directory)
    if missing:
        detail = ", ".join(f"{item.right} on {item.table}" for item in missing)
        findings.append(_error("PERMISSION", detail))
    if not JE.is_installed:
        findings.append(_error("JE_NOT_INSTALLED", f"its log cannot be read here: {JE.command}"))
    conflicts = _conflicts(directory)
    findings += [_error("OWN_ERASER", conflict) for conflict in conflicts]
    is_ok = all(item.severity is not FindingSeverity.ERROR for item in findings)
    return StoreCheck(
        ok=is_ok,
        reachable=True,
        identity=place_of(directory),
        server_version=version,
        layout=LAYOUT,
        permissions_missing=missing,
        sizes=sizes,
        conflicts=conflicts,
        findings=findings,
        can=_can(is_ok=is_ok),
    )


def _can(*, is_ok: bool) -> list[str]:
    if not JE.is_installed:
        return []
    return ["PLAN_ERASURE", "ERASE"] if is_ok else ["PLAN_ERASURE"]


def _versions(directory: Path) -> tuple[int, list[TableSize]]:
    """The log's version, asked of every file's header, and the size of each.

    Raises: LogRefused.
    """
    sizes = []
    for name in file_names(directory):
        with opened(directory, [name]) as [file]:
            read_file_header(file)
            sizes.append(TableSize(table=name, rows_estimate=None, bytes=file.identity.size))
    return je_log.VERSION, sizes


def _permissions(directory: Path) -> list[MissingPermission]:
    wanted = [(directory, "read, write and search", os.R_OK | os.W_OK | os.X_OK)]
    wanted += [
        (folder, "read, write and search", os.R_OK | os.W_OK | os.X_OK)
        for folder in log_folders(directory)
        if folder != directory
    ]
    paths = log_paths(directory, file_names(directory))
    wanted += [(path, "read and write", os.R_OK | os.W_OK) for path in paths]
    if (directory / LOCK_NAME).exists():
        wanted.append((directory / LOCK_NAME, "read and write", os.R_OK | os.W_OK))
    return [
        MissingPermission(table=path.name, right=right) for path, right, mode in wanted if not may(path, mode)
    ]


def _medium(store: Store, directory: Path) -> list[Finding]:
    try:
        medium = medium_of_log(directory)
    except OSError as error:
        return [_error("ENVIRONMENT_UNREADABLE", error.strerror or str(error))]
    found = [_info("MEDIUM", f"{medium.file_system} on {medium.device}")]
    if medium.is_network:
        found.append(_error("MEDIUM_REFUSED", f"{medium.file_system}: locks and writes go through a network"))
    detail = "; ".join(medium.notes)
    if medium.is_copy_on_write and not store.accept_medium:
        found.append(_error(MEDIUM_KEEPS_COPIES, f"{detail}; `accept_medium` erases all the same"))
    elif detail:
        found.append(_warn("MEDIUM_NOTES", detail))
    return found


def _use(store: Store, directory: Path) -> list[Finding]:
    try:
        in_use = is_in_use(directory)
    except ControlError as error:
        return [_error(error.code, error.detail)]
    if not in_use:
        return []
    detail = "a process has the environment open"
    if store.mode == StoreMode.LIVE:
        return [_info("ENVIRONMENT_IN_USE", f"{detail}; LIVE works beside it")]
    return [_warn("ENVIRONMENT_IN_USE", f"{detail}; a cycle in mode CLOSED waits until it is free")]


def _control(database: Database, store: Store, directory: Path) -> list[Finding]:
    try:
        with ControlFile.open(directory, create=False) as control:
            record = control.read()
    except ControlFileMissing:
        return [_info("CONTROL_FILE_MISSING", "there is no control file yet; the first cycle makes one")]
    except ControlFileInvalid as error:
        detail = f"{error.detail}; the next cycle or backup makes it anew from what Lethe remembers"
        return [_warn(error.code, detail)]
    except ControlError as error:
        return [_error(error.code, error.detail)]
    found = [_info("CONTROL_FILE", f"epoch {record.epoch}, {len(record.ranges)} protected range(s)")]
    # Read after the control file: a job of ours that claims it at this moment has its token from before.
    with database.reading() as db:
        ours = current_epoch(db)
    if record.epoch > ours:
        ahead = EpochAhead(record.epoch, ours=ours, store=store.id)
        found.append(_error("EPOCH_AHEAD", ahead.detail))
    return found


def _replication(directory: Path) -> list[Finding]:
    """Say how the VLSN index of a replicated environment is truncated, which nobody can do from outside."""
    try:
        if not has_vlsns(directory):
            return []
    except LogRefused as error:
        return [_error(error.code, str(error))]
    how = command(directory, Act.TRUNCATE)
    detail = (
        f"it is replicated: files in its VLSN index stay until JE truncates it; application closed: {how}"
    )
    return [_info(str(Cause.VLSN_INDEX), detail)]


def _conflicts(directory: Path) -> list[str]:
    try:
        refuse_own_eraser(directory)
    except LogRefused as error:
        return [str(error)]
    return []


def _refused(code: str, detail: str) -> StoreCheck:
    return StoreCheck(ok=False, reachable=False, findings=[_error(code, detail)])


def _error(code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity.ERROR, detail=detail)


def _warn(code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity.WARNING, detail=detail)


def _info(code: str, detail: str) -> Finding:
    return Finding(code=code, severity=FindingSeverity.INFO, detail=detail)
