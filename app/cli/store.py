"""`lethe store`: register targets, look at them, check them."""

from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from lethe_client import Store

from app.cli.check_report import show_check, show_warnings
from app.cli.grant_scripts import DATABASE_DEFAULT, KINDS_WITH_GRANTS, SCRIPTS, grant_script
from app.cli.shell.arguments import StoreId, pairs, scalar
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import Output
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="store",
    no_args_is_help=True,
    add_completion=False,
    help="Register targets, look at them, check them.",
)

TargetUrl = Annotated[
    str,
    typer.Argument(help="postgresql+psycopg://user@host/db, sqlite:////path, ldaps://host."),
]
MaxRows = Annotated[int | None, typer.Option("--max-rows", min=1, help="Refuse jobs that remove more.")]
MaxFraction = Annotated[
    float | None, typer.Option("--max-fraction", min=0, max=1, help="Refuse jobs that remove a larger part.")
]
ParallelJobs = Annotated[int | None, typer.Option("--max-parallel-jobs", min=1, help="Jobs at a time.")]
Labels = Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Repeatable.")]
RunsOn = Annotated[list[str] | None, typer.Option(help="Label that a runner must have. Repeatable.")]


class Cleared(StrEnum):
    """What `--clear` takes away."""

    LABELS = "labels"
    PARAMETERS = "parameters"
    RUNS_ON = "runs-on"
    MAX_ROWS = "max-rows"
    MAX_FRACTION = "max-fraction"
    MAX_PARALLEL_JOBS = "max-parallel-jobs"


OF_LIMITS: Final = (Cleared.MAX_ROWS, Cleared.MAX_FRACTION, Cleared.MAX_PARALLEL_JOBS)


@app.command("add")
@on_service
def add(
    session: Session,
    store: StoreId,
    target_url: TargetUrl,
    *,
    kind: Annotated[str, typer.Option(help="Kind of the target.")] = "SYMMETRICDS",
    password: Annotated[str | None, typer.Option(metavar="secret:NAME", help="See `lethe secret`.")] = None,
    schema: Annotated[str | None, typer.Option(help="PostgreSQL schema (default public).")] = None,
    table_prefix: Annotated[str | None, typer.Option(help="Default sym_, of a REPLICA replica_.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of the time columns (default UTC).")] = None,
    rid: Annotated[int | None, typer.Option(min=1, max=65_534, help="REPLICA: its unique id.")] = None,
    generation: Annotated[str | None, typer.Option(metavar="CSN", help="REPLICA: its beginning.")] = None,
    cluster: Annotated[str | None, typer.Option(help="SLONY: the name of its cluster.")] = None,
    bind_dn: Annotated[str | None, typer.Option(help="DS389: who binds.")] = None,
    suffix: Annotated[str | None, typer.Option(help="DS389: what is replicated.")] = None,
    label: Labels = None,
    runs_on: RunsOn = None,
    parameter: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    max_rows: MaxRows = None,
    max_fraction: MaxFraction = None,
    max_parallel_jobs: ParallelJobs = None,
) -> int:
    """Register a database. Nothing is connected to yet: see `lethe store check`.

    Example: lethe store add shop postgresql+psycopg://lethe@db.example/shop --password secret:shop
    """
    limits = {"max_rows": max_rows, "max_fraction": max_fraction, "max_parallel_jobs": max_parallel_jobs}
    added = session.client.stores.create(
        store,
        target_url,
        kind=kind.upper(),
        password=password,
        schema=schema,
        table_prefix=table_prefix,
        time_zone=time_zone,
        rid=rid,
        generation=generation,
        cluster=cluster,
        environment={"bind_dn": bind_dn, "suffix": suffix},
        labels=pairs(label, option="--label") or None,
        runs_on=runs_on,
        parameters=_scalars(pairs(parameter, option="--parameter")),
        limits={name: value for name, value in limits.items() if value is not None} or None,
    )
    return _added(session, added)


@app.command("add-environment")
@on_service
def add_environment(
    session: Session,
    store: StoreId,
    directory: Annotated[str, typer.Argument(help="Of the environment, as the service sees it.")],
    *,
    mode: Annotated[str | None, typer.Option(help="CLOSED (default) or LIVE.")] = None,
    backups_via_lethe: Annotated[
        bool, typer.Option("--backups-via-lethe", help="Every backup asks Lethe first; LIVE needs it.")
    ] = False,
    extinction_filter: Annotated[
        str | None, typer.Option(help="NONE (default), ALWAYS_MAYBE or INSTALLED.")
    ] = None,
    accept_medium: Annotated[
        bool, typer.Option("--accept-medium", help="Although the file system keeps copies of what was there.")
    ] = False,
    delete_reserved_files: Annotated[
        bool,
        typer.Option("--delete-reserved-files", help="Delete what JE has put aside, if nothing needs it."),
    ] = False,
    erase_expired: Annotated[
        bool, typer.Option("--erase-expired", help="Also expired records that no slot names.")
    ] = False,
    label: Labels = None,
    runs_on: RunsOn = None,
    parameter: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
) -> int:
    """Register an environment of Berkeley DB JE. Nothing is opened yet: see `lethe store check`.

    Example: lethe store add-environment ledger /var/lib/ledger/je --label team=billing
    """
    environment = {
        "mode": mode,
        "backups": "VIA_LETHE" if backups_via_lethe else None,
        "extinction_filter": extinction_filter,
        "accept_medium": accept_medium or None,
        "delete_reserved_files": delete_reserved_files or None,
        "erase_expired": erase_expired or None,
    }
    added = session.client.stores.create(
        store,
        directory,
        kind="JE",
        environment=environment,
        labels=pairs(label, option="--label") or None,
        runs_on=runs_on,
        parameters=_scalars(pairs(parameter, option="--parameter")),
    )
    return _added(session, added)


def _added(session: Session, added: Store) -> int:
    session.out.document(added.raw)
    session.out.say(f"Store {added.id} is registered.")
    show_warnings(session.out, added)
    session.out.note(f"Next: lethe store check {added.id}")
    return ExitCode.OK


@app.command("list")
@on_service
def list_stores(session: Session) -> int:
    """List the registered stores.

    Example: lethe store list
    """
    stores = list(session.client.stores.list())
    session.out.document({"items": [store.raw for store in stores]})
    session.out.table(
        ["store", "kind", "target", "labels", "suspended"],
        [
            [store.id, store.kind, store.target, store.labels, store.suspended and store.suspended.reason]
            for store in stores
        ],
    )
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, store: StoreId) -> int:
    """Show one store.

    Example: lethe store show shop
    """
    _show(session, session.client.stores.get(store))
    return ExitCode.OK


@app.command("check")
@on_service
def check(session: Session, store: StoreId) -> int:
    """Connect and report what is there and what may be done. Exit 1 where an error was found.

    Example: lethe store check shop
    """
    report = session.client.stores.check(store)
    session.out.document(report.raw)
    show_check(session.out, report)
    if "PLAN_ERASURE" in report.can:
        session.out.note(f"Next: lethe erasure plan {store} --min-file-age P1D --duration PT1H")
    wrong = not report.ok or any(finding.severity == "ERROR" for finding in report.findings)
    return ExitCode.FAILED if wrong else ExitCode.OK


@app.command("update")
@on_service
def update(
    session: Session,
    store: StoreId,
    *,
    target_url: Annotated[str | None, typer.Option(help="Its new address, without a password.")] = None,
    path: Annotated[str | None, typer.Option(help="JE: the new directory of the environment.")] = None,
    password: Annotated[str | None, typer.Option(metavar="secret:NAME", help="See `lethe secret`.")] = None,
    no_password: Annotated[bool, typer.Option("--no-password", help="It needs none any more.")] = False,
    schema: Annotated[str | None, typer.Option(help="PostgreSQL schema.")] = None,
    table_prefix: Annotated[str | None, typer.Option(help="Of the tables.")] = None,
    time_zone: Annotated[str | None, typer.Option(help="Of the time columns.")] = None,
    mode: Annotated[str | None, typer.Option(help="JE: CLOSED or LIVE; an admin's choice.")] = None,
    extinction_filter: Annotated[
        str | None, typer.Option(help="JE: NONE, ALWAYS_MAYBE or INSTALLED.")
    ] = None,
    label: Labels = None,
    runs_on: RunsOn = None,
    parameter: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Repeatable.")] = None,
    max_rows: MaxRows = None,
    max_fraction: MaxFraction = None,
    max_parallel_jobs: ParallelJobs = None,
    clear: Annotated[
        list[Cleared] | None, typer.Option(case_sensitive=False, help="Have none any more. Repeatable.")
    ] = None,
) -> int:
    """Change what is named here. Labels, parameters and --runs-on replace those before; limits are added.

    Example: lethe store update shop --max-rows 1000000 --label region=eu
    Example: lethe store update shop --clear labels --clear max-rows
    """
    limits = {"max_rows": max_rows, "max_fraction": max_fraction, "max_parallel_jobs": max_parallel_jobs}
    found = session.client.stores.get(store)
    changes: dict[str, Any] = {
        "url": target_url,
        "path": path,
        "password": password,
        "schema": schema,
        "table_prefix": table_prefix,
        "time_zone": time_zone,
        "mode": mode,
        "extinction_filter": extinction_filter,
        "labels": pairs(label, option="--label") or None,
        "runs_on": runs_on or None,
        "parameters": _scalars(pairs(parameter, option="--parameter")),
        "limits": _limits(found, limits),
    }
    changed = session.client.stores.update(found, _asked(found, changes, no_password, clear or []))
    _show(session, changed)
    show_warnings(session.out, changed)
    return ExitCode.OK


def _asked(store: Store, given: dict[str, Any], no_password: bool, cleared: list[Cleared]) -> dict[str, Any]:
    """What the request says: options that were given, and what the store has none of any more."""
    said = {name: value for name, value in given.items() if value is not None}
    if no_password and "password" in said:
        raise typer.BadParameter("give one of them", param_hint="--password / --no-password")
    said |= ({"password": None} if no_password else {}) | _without(store, said, cleared)
    if not said:
        raise typer.BadParameter("name what changes", param_hint="an option")
    return said


def _without(store: Store, changes: dict[str, Any], cleared: list[Cleared]) -> dict[str, Any]:
    """What the request says of what goes; a limit that is not named any more has its default."""
    said: dict[str, Any] = {}
    limits = dict(changes.get("limits", store.limits))
    for each in cleared:
        if each in OF_LIMITS:
            limits.pop(each.value.replace("-", "_"), None)
            said["limits"] = limits
        else:
            said[each.value.replace("-", "_")] = [] if each is Cleared.RUNS_ON else {}
    if twice := [name for name in said if name in changes and name != "limits"]:
        raise typer.BadParameter(f"{', '.join(twice)} is set and cleared", param_hint="--clear")
    return said


def _limits(store: Store, said: dict[str, Any]) -> dict[str, Any] | None:
    """The store's limits with those that are named; None where none is."""
    named = {name: value for name, value in said.items() if value is not None}
    return {**store.limits, **named} if named else None


@app.command("suspend")
@on_service
def suspend(
    session: Session,
    store: StoreId,
    *,
    reason: Annotated[str, typer.Option(help="Why; it is shown to everyone whose job waits.")],
    duration: Annotated[str | None, typer.Option(metavar="PT1H", help="Until resume, if not given.")] = None,
) -> int:
    """Let no job write to the store for a while.

    Example: lethe store suspend shop --reason "schema change" --duration PT2H
    """
    _show(session, session.client.stores.suspend(store, reason=reason, duration=duration))
    return ExitCode.OK


@app.command("resume")
@on_service
def resume(session: Session, store: StoreId) -> int:
    """End a suspension.

    Example: lethe store resume shop
    """
    _show(session, session.client.stores.resume(store))
    return ExitCode.OK


@app.command("remove")
@on_service
def remove(
    session: Session,
    store: StoreId,
    forget_extinctions: Annotated[
        bool,
        typer.Option("--forget-extinctions", help="JE, by an admin: its extinctions go too."),
    ] = False,
) -> int:
    """Forget the registration, with its schedules and parameters; the target itself is not touched.

    Example: lethe store remove shop
    """
    found = session.client.stores.get(store)
    session.client.stores.delete(found, forget_extinctions=forget_extinctions)
    session.out.document({"id": store, "removed": True})
    session.out.say(f"Store {store} is no longer registered.")
    return ExitCode.OK


def _scalars(texts: dict[str, str]) -> dict[str, Any] | None:
    return {name: scalar(text) for name, text in texts.items()} or None


def _show(session: Session, store: Store) -> None:
    session.out.document(store.raw)
    facts: dict[str, Any] = {"store": store.id, "kind": store.kind, "target": store.target}
    facts |= {"mode": store.mode, "extinction filter": store.extinction_filter, "backups": store.backups}
    facts |= {"RID": store.rid, "generation": store.generation, "cluster": store.cluster}
    facts |= {"schema": store.schema, "table prefix": store.table_prefix, "time zone": store.time_zone}
    facts |= {"password": "is set" if store.has_password else None, "labels": store.labels}
    facts |= {"runs on": store.runs_on, "parameters": store.parameters, "limits": store.limits}
    facts |= {"binds as": store.bind_dn, "suffix": store.suffix, "identity": store.target_identity}
    if store.suspended:
        facts |= {"suspended": store.suspended.reason, "suspended until": store.suspended.until}
    session.out.facts(facts)


@app.command("grants")
def grants(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=f"{KINDS_WITH_GRANTS}.")],
    role: Annotated[str, typer.Option(help="Who logs in; MariaDB: name@host; SQLite: the account.")],
    schema: Annotated[
        str, typer.Option(help="SLONY: _CLUSTER; MariaDB: the database; SQLite: the file.")
    ] = "public",
    database: Annotated[str, typer.Option(help="postgresql, mariadb or sqlite.")] = DATABASE_DEFAULT,
    table_prefix: Annotated[str, typer.Option(help="SYMMETRICDS: of the tables.")] = "sym_",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Print the script of the rights that a role needs; a token or a service is not.

    Example: lethe store grants SYMMETRICDS --role lethe --table-prefix sym_
    """
    wanted = (kind.upper(), database.lower())
    if wanted not in SCRIPTS:
        known = ", ".join(" on ".join(each) for each in SCRIPTS)
        raise typer.BadParameter(f"there are scripts for {known}", param_hint="KIND / --database")
    script = grant_script(*wanted, role=role, schema=schema, prefix=table_prefix)
    if json:
        Output(json=True).document({"kind": wanted[0], "database": wanted[1], "script": script})
    else:
        typer.echo(script, nl=False)
