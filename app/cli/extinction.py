"""`lethe extinction`: discard records whose keys will never be used again; ask which keys are extinct."""

import json
from base64 import b64encode
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from lethe_client import Availability, Extinction, ExtinctionPlan, ExtinctionRequest

from app.cli.shell.after_plan import note_of_extinction
from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId, Timeout
from app.cli.shell.byte_values import bytes_of
from app.cli.shell.exits import ExitCode
from app.cli.shell.hints import of_plan
from app.cli.shell.job_options import REASON, MaxDrift, PlanId, Reason, Wait, drift
from app.cli.shell.session import Session, on_service
from app.cli.shell.watching import finish
from app.kit.json_bodies import sendable

app = typer.Typer(
    name="extinction",
    no_args_is_help=True,
    add_completion=False,
    help="Discard records whose keys will never be used again.",
)

Base64Keys = Annotated[bool, typer.Option("--base64", help="Databases and keys stand in base64.")]
Filter = Annotated[str | None, typer.Option("--filter", metavar="JSON|@FILE", help="Only keys that pass it.")]
Confirm = Annotated[
    bool,
    typer.Option("--confirm-keys-never-reused", help="The application will never use these keys again."),
]
ExtinctionId = Annotated[str, typer.Argument(metavar="EXTINCTION", help="Its id.")]


def _database(session: Session, store: str, name: str, *, is_base64: bool, place: str) -> str:
    """A database as the store's kind writes it in JSON: JE by its name, REPLICA in base64."""
    if session.client.stores.get(store).kind == "JE":
        return name
    return b64encode(bytes_of(name, is_base64=is_base64, name=place)).decode()


def _filter(text: str | None) -> Mapping[str, Any] | None:
    """Read a filter: JSON, or @FILE with it.

    Raises: typer.BadParameter.
    """
    if text is None:
        return None
    try:
        found = sendable(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"no JSON: {error}", param_hint="--filter") from error
    if not isinstance(found, dict):
        raise typer.BadParameter("a JSON object is needed", param_hint="--filter")
    return found


@app.command("discard")
@on_service
def discard(
    session: Session,
    store: StoreId,
    *,
    database: Annotated[list[str], typer.Option("--database", help="Repeatable.")],
    label: Annotated[str, typer.Option("--label", help="What the records are.")],
    start_key: Annotated[
        str | None,
        typer.Option("--start-key", help="Inclusive, byte by byte; default: from the first key on."),
    ] = None,
    end_key: Annotated[
        str | None, typer.Option("--end-key", help="Exclusive, byte by byte; default: to the last key.")
    ] = None,
    filter_text: Filter = None,
    confirm: Confirm = False,
    plan: Annotated[bool, typer.Option("--plan", help="Count only; nothing is written.")] = False,
    plan_id: PlanId = None,
    max_drift: MaxDrift = None,
    base64: Base64Keys = False,
    reason: Reason = REASON,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Discard the records of a range: committed at once, removed by its job.

    Example: lethe extinction discard ledger --database orders --end-key 2020 --label "until 2020" --plan
    """
    start = None if start_key is None else bytes_of(start_key, is_base64=base64, name="--start-key")
    end = None if end_key is None else bytes_of(end_key, is_base64=base64, name="--end-key")
    names = [_database(session, store, name, is_base64=base64, place="--database") for name in database]
    request = ExtinctionRequest(
        databases=names,
        label=label,
        start_key=start,
        end_key=end,
        filter=_filter(filter_text),
        confirm_keys_never_reused=confirm,
        plan_id=plan_id,
        max_drift=drift(max_drift),
        reason=reason,
    )
    if plan:
        said: dict[str, Any] = {"--database": database, "--label": label, "--filter": filter_text}
        said |= {"--start-key": start_key, "--end-key": end_key, "--base64": base64}
        return _plan(session, store, request, said, timeout)
    job = session.client.extinctions.discard(store, request)
    return finish(session, job, wait=wait, timeout_s=timeout)


def _plan(
    session: Session, store: str, request: ExtinctionRequest, said: Mapping[str, Any], timeout_s: float | None
) -> int:
    made = session.client.extinctions.plan(store, request, timeout_s=timeout_s)
    _show_plan(session, made)
    options = {**said, "--confirm-keys-never-reused": request.confirm_keys_never_reused}
    words, reason = ("extinction", "discard", store), request.reason or REASON
    if without := note_of_extinction(made):
        session.out.note(without)
    session.out.note(of_plan(*words, plan_id=made.plan_id, reason=reason, options=options))
    return ExitCode.OK


def _show_plan(session: Session, plan: ExtinctionPlan) -> None:
    session.out.document(plan.raw)
    session.out.facts({"store": plan.store, "records": plan.records, "bytes": plan.bytes})
    if plan.hint is not None:
        session.out.note(plan.hint)


@app.command("list")
@on_service
def list_extinctions(session: Session, store: StoreId, *, limit: Limit = LIMIT_DEFAULT) -> int:
    """A store's extinctions, newest first.

    Example: lethe extinction list ledger
    """
    found = list(islice(session.client.extinctions.list(store), limit))
    session.out.document([each.raw for each in found])
    columns = ["id", "state", "origin", "label", "records", "bytes", "logged"]
    session.out.table(
        columns,
        [
            [each.id, each.state, each.origin, each.label, each.records, each.bytes, each.logged_at]
            for each in found
        ],
    )
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, store: StoreId, extinction: ExtinctionId) -> int:
    """One extinction: its range, and how far it is.

    Example: lethe extinction show ledger ext_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    _show(session, session.client.extinctions.get(store, extinction))
    return ExitCode.OK


def _show(session: Session, found: Extinction) -> None:
    session.out.document(found.raw)
    session.out.facts(
        {
            "state": found.state,
            "active": found.active,
            "databases": found.databases,
            "from (base64)": found.start_key,
            "to, without it (base64)": found.end_key,
            "filter": json.dumps(found.raw.get("filter")) if found.raw.get("filter") else None,
            "label": found.label,
            "origin": found.origin,
            "CSN": found.csn,
            "records": found.records,
            "bytes": found.bytes,
            "job": found.job_id,
            "logged": found.logged_at,
            "done": found.done_at,
            "attested by": found.attested.by if found.attested is not None else None,
        }
    )
    if found.hint is not None:
        session.out.note(found.hint)


@app.command("attest")
@on_service
def attest(
    session: Session,
    store: StoreId,
    extinction: ExtinctionId,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why this is known; kept, and certified.")],
    filter_installed: Annotated[
        bool,
        typer.Option("--filter-installed", help="The application's filter says EXTINCT of all its keys."),
    ] = False,
) -> int:
    """Attest, as an admin, that a JE application's extinction filter is installed.

    Example: lethe extinction attest ledger ext_01jd --reason "release 7" --filter-installed
    """
    if not filter_installed:
        raise typer.BadParameter(
            "say it: JE dies of erased records otherwise", param_hint="--filter-installed"
        )
    _show(session, session.client.extinctions.attest(store, extinction, reason=reason))
    return ExitCode.OK


@app.command("status")
@on_service
def status(
    session: Session,
    store: StoreId,
    database: Annotated[str, typer.Argument(help="Of the keys.")],
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="To be judged.")],
    *,
    dups: Annotated[
        bool, typer.Option("--dups", help="The database has duplicates; KEY is the primary key.")
    ] = False,
    base64: Base64Keys = False,
) -> int:
    """Say of each key whether it is EXTINCT, NOT_EXTINCT or MAYBE_EXTINCT.

    Example: lethe extinction status ledger orders 2019-000017
    """
    name = _database(session, store, database, is_base64=base64, place="DATABASE")
    wanted = [bytes_of(key, is_base64=base64, name="KEY") for key in keys]
    found = session.client.extinctions.status(store, name, wanted, dups=dups)
    session.out.document(found.raw)
    session.out.table(["key", "status"], [list(pair) for pair in zip(keys, found.statuses, strict=True)])
    for why in found.maybe_because:
        session.out.note(f"{why.code}: {why.detail}")
    return ExitCode.OK


@app.command("filter")
@on_service
def filter_bundle(
    session: Session,
    store: StoreId,
    *,
    into: Annotated[Path | None, typer.Option("--into", help="Write it to this file.")] = None,
) -> int:
    """The whole filter of a store, to be evaluated elsewhere (`lethe_client.extinction_filter`).

    Example: lethe extinction filter ledger --into ledger-filter.json
    """
    document = session.client.extinctions.filter_document(store)
    if into is not None:
        into.write_text(json.dumps(document))
    session.out.document(document)
    session.out.facts(
        {
            "version": document["version"],
            "every key maybe": document["everything_maybe"],
            "extinctions": len(document["extinctions"]),
            "maybe": len(document["maybe"]),
        }
    )
    return ExitCode.OK


@app.command("availability")
@on_service
def availability(session: Session, store: StoreId) -> int:
    """Whether extinctions may be used: exit 0, or 1 with the peers that stand in the way.

    Example: lethe extinction availability ledger
    """
    found = session.client.extinctions.availability(store)
    _show_availability(session, found)
    return ExitCode.OK if found.available else ExitCode.FAILED


def _show_availability(session: Session, found: Availability) -> None:
    session.out.document(found.raw)
    session.out.facts({"available": found.available})
    if found.lacking:
        rows = [[each.role, each.peer, each.rid, each.heard] for each in found.lacking]
        session.out.table(["role", "peer", "rid", "heard of"], rows)


@app.command("forget-supplier")
@on_service
def forget_supplier(
    session: Session,
    store: StoreId,
    supplier: Annotated[str, typer.Argument(metavar="SUPPLIER", help="As `availability` names it.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why it will not come again; kept.")],
) -> int:
    """Forget, as an admin, a supplier that is gone for good; shows the availability without it.

    Example: lethe extinction forget-supplier ledger https://west.example:8765/ledger --reason "shut down"
    """
    _show_availability(session, session.client.extinctions.forget_supplier(store, supplier, reason=reason))
    return ExitCode.OK
