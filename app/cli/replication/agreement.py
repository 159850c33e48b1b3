"""`lethe replication agreement`: which consumers a replica brings its changes to."""

from base64 import b64encode
from itertools import islice
from typing import Annotated, Any, Final

import typer
from lethe_client import Agreement

from app.cli.replication.session import AgreementId, MaxChanges, MaxDuration, StrategyOption
from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId
from app.cli.shell.byte_values import bytes_of
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

COLUMNS: Final = ("id", "state", "consumer", "store", "rid", "strategy", "interval")

app = typer.Typer(
    name="agreement",
    no_args_is_help=True,
    add_completion=False,
    help="Which consumers a replica brings its changes to.",
)

Interval = Annotated[
    str | None,
    typer.Option("--interval", metavar="DURATION", help="A session by itself, at most so often: PT10S."),
]
BatchRows = Annotated[int | None, typer.Option("--batch-rows", min=1, help="Rows of a batch.")]
BatchBytes = Annotated[int | None, typer.Option("--batch-bytes", min=65_536, help="Bytes of a batch.")]
InFlight = Annotated[
    int | None, typer.Option("--in-flight", min=1, max=4, help="Batches that wait for an answer.")
]

ConsumerStore = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="The consumer's store of kind REPLICA.")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--keys",
        metavar="DATABASE:PREFIX",
        help="Send only keys that begin so; the consumer is new. Repeatable; `orders:` is all of orders.",
    ),
]
Base64 = Annotated[bool, typer.Option("--base64", help="Databases and prefixes stand in base64.")]


@app.command("create")
@on_service
def create(
    session: Session,
    store: StoreId,
    consumer_url: Annotated[
        str, typer.Argument(metavar="URL", help="Of the consumer's service: http or https.")
    ],
    consumer_store: ConsumerStore,
    *,
    token: Annotated[
        str,
        typer.Option(
            "--token", metavar="secret:NAME", help="Registered at the supplier: see `lethe secret`."
        ),
    ],
    ca_file: Annotated[
        str | None, typer.Option("--ca-file", metavar="PATH", help="Authority of the consumer's certificate.")
    ] = None,
    strategy: StrategyOption = None,
    interval: Interval = None,
    max_changes: MaxChanges = None,
    max_duration: MaxDuration = None,
    batch_rows: BatchRows = None,
    batch_bytes: BatchBytes = None,
    in_flight: InFlight = None,
    keys: Keys = None,
    base64: Base64 = False,
) -> int:
    """Agree to bring a consumer the changes of a store. Only an admin may.

    Example: lethe replication agreement create east https://west.example:8765 west --token secret:west
    """
    made = session.client.agreements.create(
        store,
        url=consumer_url,
        consumer_store=consumer_store,
        token=token,
        ca_file=ca_file,
        strategy=None if strategy is None else strategy.value,
        interval=interval,
        max_changes=max_changes,
        max_duration=max_duration,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        in_flight=in_flight,
        keys=[_prefix(each, is_base64=base64) for each in keys] if keys else None,
    )
    session.out.document(made.raw)
    session.out.say(f"{made.id} is {made.state}.")
    session.out.note(f"Bring the changes: lethe replication session start {store} {made.id}")
    return ExitCode.OK


@app.command("list")
@on_service
def list_(session: Session, store: StoreId, *, limit: Limit = LIMIT_DEFAULT) -> int:
    """List the agreements of a store.

    Example: lethe replication agreement list orders-east
    """
    found = list(islice(session.client.agreements.list(store), limit))
    session.out.document([each.raw for each in found])
    session.out.table(list(COLUMNS), [_row(each) for each in found])
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, store: StoreId, agreement: AgreementId) -> int:
    """Show an agreement, and how its consumer stands by what it has acknowledged.

    Example: lethe replication agreement show orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.agreements.get(store, agreement)
    session.out.document(found.raw)
    status = found.status
    assert status is not None, "one agreement is shown with its status"
    session.out.facts(
        {
            "consumer": f"{found.consumer.url} {found.consumer.store}",
            "state": found.state,
            "interval": found.interval,
            "unsent changes": status.lag_changes,
            "lag": status.lag,
            "oldest unsent": None if status.oldest_unsent is None else status.oldest_unsent.csn,
            "purge headroom": status.purge_headroom,
            "needs total": status.needs_total,
            "sent": status.changes_sent,
            "last update": status.last_update_status,
            "colour": status.last_update_status_json.get("state"),
            "target": status.target_code,
        }
    )
    rows = [(rid, csn) for rid, csn in status.acknowledged.items()]
    session.out.table(["rid", "acknowledged"], rows)
    return ExitCode.OK


@app.command("update")
@on_service
def update(
    session: Session,
    store: StoreId,
    agreement: AgreementId,
    *,
    consumer_url: Annotated[str | None, typer.Option(help="New address of the consumer's service.")] = None,
    token: Annotated[str | None, typer.Option(metavar="secret:NAME", help="Another secret.")] = None,
    ca_file: Annotated[
        str | None, typer.Option(metavar="PATH", help="Authority of the consumer's certificate.")
    ] = None,
    strategy: StrategyOption = None,
    interval: Interval = None,
    no_interval: Annotated[
        bool, typer.Option("--no-interval", help="No sessions by themselves any more.")
    ] = False,
    max_changes: MaxChanges = None,
    max_duration: MaxDuration = None,
    batch_rows: BatchRows = None,
    batch_bytes: BatchBytes = None,
    in_flight: InFlight = None,
) -> int:
    """Change what is named here; the next session goes by it. Only an admin may.

    Example: lethe replication agreement update orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2 --interval PT1M
    """
    if no_interval and interval is not None:
        raise typer.BadParameter("give one of them", param_hint="--interval / --no-interval")
    consumer = {"url": consumer_url, "token": token, "ca_file": ca_file}
    changes: dict[str, Any] = {
        "consumer": {name: value for name, value in consumer.items() if value is not None} or None,
        "strategy": None if strategy is None else strategy.value,
        "interval": interval,
        "max_changes": max_changes,
        "max_duration": max_duration,
        "batch_rows": batch_rows,
        "batch_bytes": batch_bytes,
        "in_flight": in_flight,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    changes |= {"interval": None} if no_interval else {}
    if not changes:
        raise typer.BadParameter("name what changes", param_hint="an option")
    etag = session.client.agreements.get(store, agreement).etag
    changed = session.client.agreements.change(store, agreement, etag=etag, **changes)
    session.out.document(changed.raw)
    session.out.say(f"{agreement} is changed.")
    return ExitCode.OK


@app.command("delete")
@on_service
def delete(session: Session, store: StoreId, agreement: AgreementId) -> int:
    """Remove an agreement; trimming keeps what its consumer needs for 7 more days.

    Example: lethe replication agreement delete orders-east agr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.agreements.get(store, agreement)
    session.client.agreements.remove(store, agreement, etag=found.etag)
    session.out.document(found.raw)
    session.out.say(f"{agreement} is removed.")
    return ExitCode.OK


def _prefix(text: str, *, is_base64: bool) -> dict[str, str]:
    """One `--keys` as JSON has it."""
    database, colon, prefix = text.partition(":")
    if not colon or not database:
        raise typer.BadParameter(f"{text!r} is not DATABASE:PREFIX", param_hint="--keys")
    named = {"database": database, "prefix": prefix}
    return {
        name: b64encode(bytes_of(value, is_base64=is_base64, name="--keys")).decode()
        for name, value in named.items()
    }


def _row(agreement: Agreement) -> list[object]:
    consumer = agreement.consumer
    rid = None if consumer.rid is None else str(consumer.rid)
    return [
        agreement.id,
        agreement.state,
        consumer.url,
        consumer.store,
        rid,
        agreement.strategy,
        agreement.interval,
    ]
