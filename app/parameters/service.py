"""The value of a parameter in effect, and its source: store over target over global over default."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, select

from app.auth.scopes import Scope
from app.errors import Conflict
from app.kinds.parameter import ParameterScope, ParameterSpec, ParameterValue
from app.parameters.errors import ParameterNotFound, ParameterScopeInvalid
from app.parameters.registry import REGISTRY, find_parameter
from app.parameters.rows import GlobalParameter

GlobalValues = Mapping[str, ParameterValue]
"""The global values that are set, by canonical names."""


@dataclass(frozen=True, slots=True)
class Effective:
    """A value and its source."""

    value: ParameterValue
    source: str


def known_parameter(name: str) -> ParameterSpec:
    """The parameter of a name or alias.

    Raises: ParameterNotFound.
    """
    spec = find_parameter(name)
    if spec is None:
        raise ParameterNotFound("there is no such parameter")
    return spec


def effective(
    db: Session,
    spec: ParameterSpec,
    store_values: Mapping[str, ParameterValue],
    *,
    target_values: Mapping[str, ParameterValue] | None = None,
    values: Mapping[str, ParameterValue] | None = None,
) -> Effective:
    """The value in effect for a store with these values of its own (canonical names).

    Args:
        values: as `global_values` has them, for whoever asks for many parameters at once.
        target_values: what the target's own table says, for the parameters that Lethe honours there.
    """
    if spec.name in store_values:
        return Effective(store_values[spec.name], "STORE")
    if target_values and spec.name in target_values:
        return Effective(target_values[spec.name], "TARGET")
    if values is not None:
        value = values.get(spec.name)
    else:
        row = db.get(GlobalParameter, spec.name)
        value = None if row is None else row.value
    if value is not None:
        return Effective(value, "GLOBAL")
    return Effective(spec.default, "DEFAULT")


def effective_by_name(db: Session, name: str, store_values: Mapping[str, ParameterValue]) -> Effective:
    """The same by name."""
    return effective(db, known_parameter(name), store_values)


def global_values(db: Session) -> dict[str, ParameterValue]:
    """Every global value that is set, for whoever asks for many stores at once."""
    return {row.name: row.value for row in db.exec(select(GlobalParameter)).all() if row.value is not None}


def effective_among(
    values: GlobalValues, name: str, store_values: Mapping[str, ParameterValue]
) -> ParameterValue:
    """The value in effect of a parameter that targets do not name; `values` as `global_values` has them."""
    spec = known_parameter(name)
    return store_values.get(spec.name, values.get(spec.name, spec.default))


def check_store_values(values: Mapping[str, object], kind: str) -> dict[str, ParameterValue]:
    """Check a store's own values and bring names and values to their canonical form.

    Raises: ParameterNotFound, ParameterScopeInvalid, Unprocessable.
    """
    checked: dict[str, ParameterValue] = {}
    for name, value in values.items():
        spec = known_parameter(name)
        check_store_scope(spec, kind)
        if spec.name in checked:
            raise ParameterScopeInvalid(f"{spec.name} is given twice, by its name and an alias")
        checked[spec.name] = spec.parse(value)
    return checked


def scopes_of_change(
    before: Mapping[str, ParameterValue], after: Mapping[str, ParameterValue]
) -> frozenset[Scope]:
    """What a token needs besides to bring a store's own values from one set to another."""
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    return frozenset(needs for name in changed if (needs := known_parameter(name).needs) is not None)


def parameters_by_need(where: ParameterScope) -> dict[Scope, list[str]]:
    """The scopes that some of the parameters need besides that are set there, and which those are."""
    found: dict[Scope, list[str]] = {}
    for spec in REGISTRY:
        if spec.needs is not None and where in spec.scopes:
            found.setdefault(spec.needs, []).append(spec.name)
    return {scope: sorted(found[scope]) for scope in sorted(found)}


def check_store_scope(spec: ParameterSpec, kind: str) -> None:
    """Raise ParameterScopeInvalid unless a store of this kind may have a value of its own."""
    if ParameterScope.STORE not in spec.scopes or kind not in spec.kinds:
        raise ParameterScopeInvalid(f"{spec.name} is not a parameter of {kind} stores")


def global_version(db: Session, name: str) -> int:
    """The version of a global value; 0 when it was never set."""
    row = db.get(GlobalParameter, name)
    return 0 if row is None else row.version


def set_global(db: Session, spec: ParameterSpec, value: ParameterValue | None, *, now: datetime) -> int:
    """Set or (None) unset a global value; returns its new version.

    Raises: Conflict: two first settings at once.
    """
    row = db.get(GlobalParameter, spec.name, with_for_update=True)
    if row is None:
        row = GlobalParameter(name=spec.name, version=0, updated_at=now)
    row.value = value
    row.version += 1
    row.updated_at = now
    db.add(row)
    try:
        db.flush()
    except IntegrityError as error:
        raise Conflict("the parameter was set by somebody else", code="PARAMETER_CHANGING") from error
    return row.version
