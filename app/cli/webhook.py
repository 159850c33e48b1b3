"""`lethe webhook`: who is told of what happens, what has left, and what is sent again."""

import time
from typing import Annotated, Any, Final

import typer
from lethe_client.webhooks import Webhook, WebhookDelivery

from app.cli.shell.arguments import instant, pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="webhook",
    no_args_is_help=True,
    add_completion=False,
    help="Alerts: which receivers get which events.",
)
ALL_EVENTS: Final = (
    "lethe.backlog.grows",
    "lethe.backup.invalid",
    "lethe.certificate.issued",
    "lethe.erasure.unproven",
    "lethe.job.ended",
    "lethe.job.waits_long",
    "lethe.replica.restored",
    "lethe.replication.dead_letter",
    "lethe.replication.halted",
    "lethe.replication.needs_total",
    "lethe.replication.unproven",
    "lethe.store.epoch_ahead",
)
WAITS_LONG: Final = "lethe.job.waits_long"
OVERDUE: Final = "lethe.success.overdue"
_ROTATE: Final = "Nobody has the secret; for another: lethe webhook rotate {}"
TEST_WAIT_S: Final = 35.0
TEST_LOOK_S: Final = 0.25
WebhookId = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Id of the webhook (whk_...).")]

Events = Annotated[
    list[str] | None,
    typer.Option(help="Such as lethe.job.ended. Repeatable. None: all that need no option of their own."),
]
Stores = Annotated[list[str] | None, typer.Option(help="Only of this store. Repeatable.")]
Labels = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="Only of stores with all of these. Repeatable."),
]
WaitsLongerThan = Annotated[
    str | None, typer.Option(metavar="PT1H", help="Tell of jobs that wait for longer than this.")
]
Expect = Annotated[
    list[str] | None,
    typer.Option(metavar="STORE:KIND:WITHIN", help="Tell when no such job succeeds in time. Repeatable."),
]
Secret = Annotated[
    str | None, typer.Option(metavar="secret:NAME", help="What signs; none: one is made and shown once.")
]
CaFile = Annotated[
    str | None, typer.Option(help="PEM file on the service's machine: the receiver's authority.")
]


def _expected(values: list[str] | None) -> list[dict[str, str]]:
    """Read repeated STORE:KIND:WITHIN. Raises: typer.BadParameter."""
    found = []
    for value in values or ():
        parts = value.split(":")
        if len(parts) != 3 or not all(parts):
            detail = f"{value!r} is not STORE:KIND:WITHIN such as shop:PURGE:P2D"
            raise typer.BadParameter(detail, param_hint="--expect")
        found.append({"store": parts[0], "kind": parts[1], "within": parts[2]})
    return found


@app.command("add")
@on_service
def add(
    session: Session,
    receiver: Annotated[str, typer.Argument(metavar="URL", help="https://...; posted to as it stands.")],
    *,
    event: Events = None,
    store: Stores = None,
    label: Labels = None,
    waits_longer_than: WaitsLongerThan = None,
    expect: Expect = None,
    secret: Secret = None,
    description: Annotated[str, typer.Option(help="For people: whose it is.")] = "",
    ca_file: CaFile = None,
    clear_text_on_loopback: Annotated[
        bool, typer.Option("--clear-text-on-loopback", help="http to the service's own machine is meant.")
    ] = False,
) -> int:
    """Make a webhook; the secret that its receiver checks signatures by goes to stdout, this once.

    Example: lethe webhook add https://hooks.example/lethe
    """
    events = {*(event or (() if waits_longer_than or expect else ALL_EVENTS))}
    events |= {WAITS_LONG} if waits_longer_than else set()
    events |= {OVERDUE} if expect else set()
    fields: dict[str, Any] = {
        "stores": store or None,
        "labels": pairs(label, option="--label"),
        "waits_longer_than": waits_longer_than,
        "expected": _expected(expect),
        "secret": secret,
        "description": description,
        "ca_file": ca_file,
        "clear_text_on_loopback": clear_text_on_loopback,
    }
    made = session.client.webhooks.create(receiver, sorted(events), **fields)
    if made.signing_secret is None:
        session.out.document(made.raw)
        session.out.say(f"Webhook {made.id} is made; {made.secret} signs.")
    else:
        session.out.note(f"Webhook {made.id} is made; its signing secret is not shown again:")
        session.out.secret(made.signing_secret, made.raw, when_lost=_ROTATE.format(made.id))
    session.out.note(f"Try it: lethe webhook test {made.id}")
    return ExitCode.OK


@app.command("list")
@on_service
def list_webhooks(session: Session) -> int:
    """List the webhooks, and how it goes with each.

    Example: lethe webhook list
    """
    found = list(session.client.webhooks.list())
    session.out.document({"items": [hook.raw for hook in found]})
    session.out.table(
        ["webhook", "url", "stores", "state", "delivered", "failed", "given up"],
        [
            [
                hook.id,
                hook.url,
                _limits(hook),
                _state(hook),
                hook.delivered,
                hook.failed,
                hook.given_up,
            ]
            for hook in found
        ],
    )
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, webhook: WebhookId) -> int:
    """Show a webhook, without its secret.

    Example: lethe webhook show whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    hook = session.client.webhooks.get(webhook)
    session.out.document(hook.raw)
    expected = [
        f"{each.store} {each.kind} every {each.within}{' (overdue)' if each.overdue else ''}"
        for each in hook.expected
    ]
    session.out.facts(
        {
            "webhook": hook.id,
            "url": hook.url,
            "description": hook.description,
            "events": hook.events,
            "stores": _limits(hook),
            "waits longer than": hook.waits_longer_than,
            "expected": expected,
            "signed by": hook.secret or "its own secret",
            "former secret signs until": hook.former_secret_until,
            "state": _state(hook),
            "failed in a row": hook.failures or None,
            "rests until": hook.rests_until,
            "delivered": hook.delivered,
            "failed attempts": hook.failed,
            "given up": hook.given_up,
        }
    )
    return ExitCode.OK


@app.command("enable")
@on_service
def enable(session: Session, webhook: WebhookId) -> int:
    """Send to a webhook again; it never gets what happened while it was disabled.

    Example: lethe webhook enable whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    return _enabled(session, webhook, enabled=True)


@app.command("disable")
@on_service
def disable(session: Session, webhook: WebhookId) -> int:
    """Send nothing to a webhook until it is enabled.

    Example: lethe webhook disable whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    return _enabled(session, webhook, enabled=False)


def _enabled(session: Session, webhook: str, *, enabled: bool) -> int:
    hooks = session.client.webhooks
    changed = hooks.update(hooks.get(webhook), {"enabled": enabled})
    session.out.document(changed.raw)
    session.out.say(f"Webhook {changed.id} is {_state(changed)}.")
    return ExitCode.OK


@app.command("rotate")
@on_service
def rotate(
    session: Session,
    webhook: WebhookId,
    *,
    secret: Secret = None,
    overlap: Annotated[str, typer.Option(metavar="P1D", help="How long the former one signs too.")] = "P1D",
) -> int:
    """Sign by another secret. Until the overlap ends a receiver may know either.

    Example: lethe webhook rotate whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    changed = session.client.webhooks.rotate(webhook, secret=secret, overlap=overlap)
    session.out.note(f"The former secret signs too until {changed.former_secret_until}.")
    if changed.signing_secret is None:
        session.out.document(changed.raw)
        session.out.say(f"{changed.secret} signs.")
    else:
        session.out.secret(changed.signing_secret, changed.raw, when_lost=_ROTATE.format(changed.id))
    return ExitCode.OK


@app.command("remove")
@on_service
def remove(session: Session, webhook: WebhookId) -> int:
    """Forget a webhook, and what was to be sent to it.

    Example: lethe webhook remove whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    hooks = session.client.webhooks
    hooks.remove(hooks.get(webhook))
    session.out.document({"id": webhook, "removed": True})
    session.out.say(f"Webhook {webhook} is removed.")
    return ExitCode.OK


@app.command("deliveries")
@on_service
def deliveries(
    session: Session,
    webhook: WebhookId,
    delivery: Annotated[str | None, typer.Argument(metavar="DELIVERY", help="Only this one.")] = None,
    *,
    state: Annotated[
        str | None, typer.Option(metavar="PENDING|DELIVERED|GIVEN_UP", help="Only those that stand so.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many, the newest first.")] = 50,
) -> int:
    """What has left, what waits and what was given up; or one of it with the body that is sent.

    Example: lethe webhook deliveries whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    if delivery is not None:
        one = session.client.webhooks.delivery(webhook, delivery)
        session.out.document(one.raw)
        session.out.facts(_facts(one) | {"event": one.event})
        return ExitCode.OK
    found = []
    for each in session.client.webhooks.deliveries(webhook, state=state):
        found.append(each)
        if len(found) == limit:
            break
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["delivery", "event", "store", "state", "attempts", "next", "last answer"],
        [
            [
                each.id,
                each.type,
                each.store,
                each.state,
                each.attempts,
                each.next_attempt_at,
                each.last_error or each.last_status,
            ]
            for each in found
        ],
    )
    return ExitCode.OK


@app.command("replay")
@on_service
def replay(
    session: Session,
    webhook: WebhookId,
    delivery: Annotated[str | None, typer.Argument(metavar="DELIVERY", help="This one.")] = None,
    *,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="All since then: RFC 3339, or a date.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="DELIVERED|GIVEN_UP", help="With --since: only those.")
    ] = None,
) -> int:
    """Send what has left, or was given up, again; with the same ids as before.

    Example: lethe webhook replay whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    begin = instant(since, option="--since")
    if (delivery is None) == (begin is None):
        raise typer.BadParameter("name one of them", param_hint="DELIVERY / --since")
    if delivery is not None:
        again = session.client.webhooks.replay(webhook, delivery)
        session.out.document(again.raw)
        session.out.say(f"Delivery {again.id} is {again.state} again.")
        return ExitCode.OK
    assert begin is not None, "looked at above"
    found = session.client.webhooks.replay_since(webhook, begin, state=state)
    session.out.document(found.raw)
    session.out.say(f"{found.replayed} deliveries are sent again.")
    if found.more:
        session.out.note("Others are left: run it again.")
    return ExitCode.OK


@app.command("test")
@on_service
def test(session: Session, webhook: WebhookId) -> int:
    """Send a ping, and tell what its receiver answered; exit 1 where it did not take it.

    Example: lethe webhook test whk_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    hooks = session.client.webhooks
    sent = hooks.test(webhook)
    deadline = time.monotonic() + TEST_WAIT_S
    while sent.state == "PENDING" and sent.last_error is None and time.monotonic() < deadline:
        time.sleep(TEST_LOOK_S)
        sent = hooks.delivery(webhook, sent.id)
    session.out.document(sent.raw)
    session.out.facts(_facts(sent))
    return ExitCode.OK if sent.state == "DELIVERED" else ExitCode.FAILED


def _facts(row: WebhookDelivery) -> dict[str, Any]:
    return {
        "delivery": row.id,
        "type": row.type,
        "state": row.state,
        "attempts": row.attempts,
        "last status": row.last_status,
        "last error": row.last_error,
        "next attempt": row.next_attempt_at,
        "gives up": None if row.ended_at else row.gives_up_at,
    }


def _limits(hook: Webhook) -> str:
    labels = [f"{name}={value}" for name, value in hook.labels.items()]
    return ", ".join([*(hook.stores or ()), *labels]) or "all"


def _state(hook: Webhook) -> str:
    if not hook.enabled:
        return f"disabled ({hook.disabled_because})" if hook.disabled_because else "disabled"
    return "resting" if hook.failures else "enabled"
