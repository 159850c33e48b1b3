"""Rules of secrets: who may name one, and what a use of it is bound to.

Rules:
- a secret is used by the stores and labels that an admin has named, for hosts that he has named;
- both are looked at again at each use, and the hosts at each connection (spark.targets.hosts);
- a store that may not use a secret is not told whether there is one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from app.db import Database
from app.kit.conditional import require_match, version_of
from app.kit.pagination import Page, read_page
from app.secrets.errors import (
    SecretExists,
    SecretInUse,
    SecretNotAllowed,
    SecretNotFound,
    SecretReferenceRefused,
    SecretUnavailable,
)
from app.secrets.models import SCHEME, SecretCreate, SecretPatch, SecretRead
from app.secrets.reading import check_place, problem_of, read_reference
from app.secrets.renewing import Renewal
from app.secrets.rows import Secret
from app.settings import Settings
from spark.targets.hosts import HostList, may_connect

SHOWN_USERS = 5


@dataclass(frozen=True, slots=True)
class User:
    """Who uses a secret: a store, for itself or for an agreement of its."""

    store: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Credential:
    """A value for one use, and what binds it."""

    value: str = field(repr=False)
    hosts: HostList
    clear_text_on_loopback: bool
    renewal: Renewal


def reference_of(name: str) -> str:
    """How stores and agreements name a secret."""
    return f"{SCHEME}{name}"


def get_secret(db: Session, name: str, *, lock: bool = False) -> Secret:
    """The row of a secret.

    Raises: SecretNotFound.
    """
    row = db.get(Secret, name, with_for_update=lock)
    if row is None:
        raise SecretNotFound("there is no such secret")
    return row


def list_secrets(db: Session, settings: Settings, *, page_size: int, page_token: str) -> Page[SecretRead]:
    """Secrets by name."""
    return read_page(
        db,
        select(Secret),
        col(Secret.name),
        ascending=True,
        filters={"list": "secrets"},
        page_size=page_size,
        page_token=page_token,
        item=lambda row: read_secret(row, settings),
    )


def create_secret(db: Session, request: SecretCreate, *, settings: Settings, now: datetime) -> Secret:
    """Register where a secret lies; its value is not read.

    Raises: SecretExists, SecretReferenceRefused.
    """
    _check_place(request.reference, settings)
    if db.get(Secret, request.name) is not None:
        raise SecretExists("a secret of this name exists")
    row = Secret(**request.model_dump(), created_at=now, updated_at=now)
    db.add(row)
    try:
        db.flush()
    except IntegrityError as error:
        raise SecretExists("a secret of this name exists") from error
    return row


def change_secret(
    db: Session, name: str, patch: SecretPatch, *, if_match: str | None, settings: Settings, now: datetime
) -> Secret:
    """Change what an admin said; whoever uses it goes by it from the next use on.

    Raises: SecretNotFound, EtagMismatch, PreconditionMissing, SecretReferenceRefused.
    """
    row = get_secret(db, name, lock=True)
    require_match(if_match, secret_version(row))
    changes = patch.model_dump(exclude_unset=True)
    if "reference" in changes:
        _check_place(changes["reference"], settings)
    row.sqlmodel_update(changes)
    row.version += 1
    row.updated_at = now
    db.add(row)
    db.flush()
    return row


def remove_secret(db: Session, name: str, *, if_match: str | None, users: Sequence[str]) -> None:
    """Forget a secret that nobody names; the file or variable stays as it is.

    Raises: SecretNotFound, EtagMismatch, PreconditionMissing, SecretInUse.
    """
    row = get_secret(db, name, lock=True)
    require_match(if_match, secret_version(row))
    if users:
        more = f" and {len(users) - SHOWN_USERS} more" if len(users) > SHOWN_USERS else ""
        raise SecretInUse(f"it is named by {', '.join(users[:SHOWN_USERS])}{more}")
    db.delete(row)
    db.flush()


def secret_version(row: Secret) -> str:
    """The version of a secret, as ETags have it."""
    return version_of(row.version, row.created_at)


def read_secret(row: Secret, settings: Settings) -> SecretRead:
    """Show a secret's row to an admin."""
    fields = row.model_dump(warnings=False, exclude={"version"})
    return SecretRead(**fields, problem=problem_of(row.reference, name=row.name, settings=settings))


def may_use(row: Secret, user: User) -> bool:
    """Whether a store may use a secret."""
    return user.store in row.stores or uses_by_label(row, user)


def uses_by_label(row: Secret, user: User) -> bool:
    """Whether a store may use a secret for its labels alone."""
    if user.store in row.stores or not row.labels:
        return False
    return all(user.labels.get(label) == value for label, value in row.labels.items())


def permitted_secret(
    db: Session,
    reference: str | None,
    user: User,
    *,
    place: tuple[str, int] | None,
    by_label: bool = True,
) -> Secret | None:
    """The secret that a store or agreement wants to name, locked so that nobody removes it meanwhile.

    Args:
        place: host and port that it would be shown to; None: a socket, judged when it is connected to.
        by_label: whether labels count; not for a token of some stores, which could write them.
    Raises: SecretNotAllowed.
    """
    if reference is None:
        return None
    row = db.get(Secret, _name(reference), with_for_update=True)
    if row is None or not may_use(row, user) or (uses_by_label(row, user) and not by_label):
        raise SecretNotAllowed(
            f"{reference} is not registered for the store {user.store}; an admin does that: "
            f"{_registering(_name(reference), user, place)}"
        )
    if place is not None and not may_connect([tuple(row.hosts)], *place):
        host, port = place
        raise SecretNotAllowed(
            f"{reference} is not registered for {host}:{port}; an admin does that: "
            f"lethe secret update {row.name} --host {host}:{port}"
        )
    return row


def _registering(name: str, user: User, place: tuple[str, int] | None) -> str:
    """The commands that let a store use a secret; whether there is one of that name only an admin learns."""
    host = "HOST" if place is None else f"{place[0]}:{place[1]}"
    variable = f"env:LETHE_SECRET_{name.upper().replace('-', '_')}"
    whose = f"--store {user.store} --host {host}"
    return (
        f"lethe secret add {name} --reference {variable} {whose}; where there is one of that name: "
        f"lethe secret update {name} {whose}"
    )


def credential_of(
    reference: str | None, user: User, *, settings: Settings, database: Database
) -> Credential | None:
    """The value of a secret, for one use by a store.

    Raises: SecretUnavailable: the message names the secret and its place, never the content.
    """
    if reference is None:
        return None
    with database.reading() as db:
        row = db.get(Secret, _name(reference))
    if row is None or not may_use(row, user):
        raise SecretUnavailable(
            f"{reference} is not registered for the store {user.store} (any more); an admin does that: "
            f"{_registering(_name(reference), user, None)}"
        )
    value = read_reference(row.reference, name=row.name, settings=settings)
    renewal = Renewal(row.reference, name=row.name, settings=settings, value=value)
    return Credential(value, tuple(row.hosts), row.clear_text_on_loopback, renewal)


def unusable_secrets(database: Database, settings: Settings) -> dict[str, str]:
    """The secrets that cannot be read now, and why, for the log of a start."""
    with database.reading() as db:
        rows = db.exec(select(Secret).order_by(col(Secret.name))).all()
    found = {row.name: problem_of(row.reference, name=row.name, settings=settings) for row in rows}
    return {name: problem for name, problem in found.items() if problem is not None}


def _name(reference: str) -> str:
    return reference.removeprefix(SCHEME)


def _check_place(reference: str, settings: Settings) -> None:
    try:
        check_place(reference, settings)
    except ValueError as error:
        raise SecretReferenceRefused(str(error)) from error
