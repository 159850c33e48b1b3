"""The value of a secret, read at the moment that it is needed; what costs a process or a request is kept for
some seconds, the rest nowhere.

Invariants:
- a variable is one that was named for it, LETHE_SECRET_*;
- a file lies below LETHE_SECRETS_DIR and not below the data directory, by what was opened: the kernel tells
  the path of the descriptor, so no link of today or of a moment ago leads out;
- it is a regular file, has one name, is not everybody's to read, and is small;
- a command is one of the settings', and so is the Vault that is asked.
"""

import os
import stat
from functools import partial
from pathlib import Path
from typing import Final

from app.secrets.commands import output_of
from app.secrets.errors import SecretUnavailable
from app.secrets.fresh import Fresh
from app.secrets.rows import check_form
from app.secrets.vault import vault_of
from app.settings import Settings

SECRET_MAX_BYTES: Final = 4_096
SLOW: Final = frozenset({"exec", "vault"})
"""Sources that take their time: they are asked for a use, never for a list, and nobody holds a session."""
_FRESH = Fresh()


def read_reference(reference: str, *, name: str, settings: Settings) -> str:
    """The value that a reference names.

    Args:
        name: of the secret, for the message, which never has anything of the content.
    Raises: SecretUnavailable.
    """
    try:
        value = _value(reference, settings)
    except (ValueError, OSError) as error:
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if isinstance(error, UnicodeDecodeError):
            detail = "what it holds is not UTF-8"
        raise SecretUnavailable(
            f"the secret {name} ({reference}): {detail}{_advice(name, reference, settings)}"
        ) from None
    return value


def problem_of(reference: str, *, name: str, settings: Settings) -> str | None:
    """Why a reference gives no value now; None: it does. Of a slow source what its last use has met."""
    if _source(reference) in SLOW:
        try:
            check_place(reference, settings)
        except ValueError as error:
            return f"the secret {name} ({reference}): {error}"
        fault = _FRESH.fault(_key(reference, settings))
        return None if fault is None else f"the secret {name} ({reference}): {fault}"
    try:
        read_reference(reference, name=name, settings=settings)
    except SecretUnavailable as error:
        return error.detail
    return None


def check_place(reference: str, settings: Settings) -> None:
    """Refuse by its name alone: a file outside of the folder for secrets, a command or a Vault that the
    settings do not know. Raises: ValueError.
    """
    source, _, named = reference.partition(":")
    if source == "exec" and named not in settings.exec_secrets:
        raise ValueError(f"LETHE_EXEC_SECRETS names no command {named}: the operator of the service adds it")
    if source == "vault" and settings.vault.url is None:
        raise ValueError("LETHE_VAULT__URL is not set: the service knows no Vault")
    if source != "file":
        return
    if settings.secrets_dir is None:
        raise ValueError("LETHE_SECRETS_DIR is not set: the service has no folder for files with secrets")
    path = Path(os.path.normpath(_path(named, settings.secrets_dir)))
    if not path.is_relative_to(os.path.normpath(settings.secrets_dir.absolute())):
        raise ValueError(f"the file is not below LETHE_SECRETS_DIR ({settings.secrets_dir})")
    if path.is_relative_to(os.path.normpath(settings.data_dir.absolute())):
        raise ValueError("the file is below the data directory")


def _advice(name: str, reference: str, settings: Settings) -> str:
    """How to mend a reference that is no place for secrets; what else is wrong says it by itself."""
    try:
        check_form(reference)
        check_place(reference, settings)
    except ValueError:
        command = f"lethe secret update {name} --reference env:LETHE_SECRET_NAME (or file:PATH below"
        return f"; an admin names a place for secrets by: {command} LETHE_SECRETS_DIR)"
    return ""


def _value(reference: str, settings: Settings) -> str:
    check_form(reference)
    source, _, named = reference.partition(":")
    if source in SLOW:
        check_place(reference, settings)
        key = _key(reference, settings)
        return _FRESH.get(key, partial(_slowly, reference, settings), fresh_s=settings.secrets_fresh_s)
    if source == "env":
        found = os.environ.get(named)
        if found is None:
            raise ValueError(f"the environment variable {named} is not set")
    else:
        check_place(reference, settings)
        assert settings.secrets_dir is not None, "looked at before"
        found = _content(_path(named, settings.secrets_dir), settings).decode()
    return _trimmed(found)


def _trimmed(found: str) -> str:
    found = found.rstrip("\r\n")
    if not found:
        raise ValueError("it is empty")
    return found


def forget_reading(reference: str, settings: Settings) -> None:
    """Whoever was shown the value has refused it: read it anew."""
    _FRESH.forget(_key(reference, settings))


def _source(reference: str) -> str:
    return reference.partition(":")[0]


def _key(reference: str, settings: Settings) -> tuple[str, ...]:
    """What makes two readings the same."""
    source, _, named = reference.partition(":")
    if source == "exec":
        return (reference, *settings.exec_secrets.get(named, ()))
    return (reference, settings.vault.model_dump_json()) if source == "vault" else (reference,)


def _slowly(reference: str, settings: Settings) -> str:
    source, _, named = reference.partition(":")
    if source == "vault":
        found = vault_of(settings.vault).read(named)
    else:
        argv, timeout_s = settings.exec_secrets[named], settings.exec_secret_timeout_s
        try:
            found = output_of(argv, timeout_s=timeout_s, max_bytes=SECRET_MAX_BYTES).decode()
        except UnicodeDecodeError as error:
            raise ValueError("what the command prints is not UTF-8") from error
    if len(found.encode()) > SECRET_MAX_BYTES:
        raise ValueError(f"it has more than {SECRET_MAX_BYTES} bytes")
    return _trimmed(found)


def _path(named: str, folder: Path) -> Path:
    return folder.absolute() / named


def _content(path: Path, settings: Settings) -> bytes:
    # O_PATH opens nothing yet: no device is touched, no pipe waited for, until it is known what it is.
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _check_opened(place, settings)
        # By the descriptor: what was looked at is what is read.
        descriptor = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(place)
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(SECRET_MAX_BYTES + 1)
    if len(content) > SECRET_MAX_BYTES:
        raise ValueError(f"it has more than {SECRET_MAX_BYTES} bytes")
    return content


def _check_opened(place: int, settings: Settings) -> None:
    """Refuse what is no secret's file. Raises: ValueError."""
    assert settings.secrets_dir is not None, "looked at before"
    folder = settings.secrets_dir.resolve()
    real = Path(os.readlink(f"/proc/self/fd/{place}"))
    if not real.is_relative_to(folder):
        raise ValueError("a link leads out of LETHE_SECRETS_DIR")
    if real.is_relative_to(settings.data_dir.resolve()):
        raise ValueError("the file is below the data directory")
    found = os.fstat(place)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is not a regular file")
    if found.st_nlink != 1:
        raise ValueError("the file has another name elsewhere (a hard link)")
    if found.st_mode & (stat.S_IROTH | stat.S_IWOTH) and folder.stat().st_mode & stat.S_IXOTH:
        raise ValueError("everybody on this machine can read or write it: chmod o= the file or its folder")
