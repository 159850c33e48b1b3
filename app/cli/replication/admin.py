"""`lethe replication discard-grant`, `clock` and `key`: an admin's word about a replica's peers."""

from itertools import islice
from typing import Annotated, Final

import typer
from lethe_client import ClockStanding, DiscardGrant

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

COLUMNS: Final = ("id", "state", "supplier", "token", "expires", "session", "granted by", "reason")

grants = typer.Typer(
    name="discard-grant",
    no_args_is_help=True,
    add_completion=False,
    help="Let a supplier discard, once, what only a replica here has.",
)
clock = typer.Typer(
    name="clock",
    no_args_is_help=True,
    add_completion=False,
    help="Whether a replica's CSNs stand ahead of the clock, and their return.",
)
keys = typer.Typer(
    name="key",
    no_args_is_help=True,
    add_completion=False,
    help="By which keys a replica believes what others have written.",
)
GrantId = Annotated[str, typer.Argument(metavar="GRANT", help="Id of the grant.")]
Rid = Annotated[
    int, typer.Argument(metavar="RID", min=1, max=65_534, help="Replica id of the other replica.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept.")]


@grants.command("create")
@on_service
def create(
    session: Session,
    store: StoreId,
    *,
    supplier_rid: Annotated[
        int, typer.Option("--supplier-rid", min=1, max=65_534, help="Replica id of the supplier.")
    ],
    reason: Reason,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="DURATION", help="PT1H by default, P7D at most.")
    ] = None,
    peer_token: Annotated[
        str | None, typer.Option("--peer-token", metavar="TOKEN_ID", help="Only with this token.")
    ] = None,
) -> int:
    """Grant it at the consumer; its next total initialisation by that supplier may discard, and spends it.

    Example: lethe replication discard-grant create orders-west --supplier-rid 1 --reason "west was restored"
    """
    made = session.client.discard_grants.create(
        store, supplier_rid=supplier_rid, reason=reason, expires_in=expires_in, peer_token_id=peer_token
    )
    session.out.document(made.raw)
    session.out.say(f"{made.id} is {made.state} until {made.expires_at}.")
    return ExitCode.OK


@grants.command("list")
@on_service
def list_(session: Session, store: StoreId, *, limit: Limit = LIMIT_DEFAULT) -> int:
    """List the grants of a store, newest first.

    Example: lethe replication discard-grant list orders-west
    """
    found = list(islice(session.client.discard_grants.list(store), limit))
    session.out.document([each.raw for each in found])
    session.out.table(list(COLUMNS), [_row(each) for each in found])
    return ExitCode.OK


@grants.command("revoke")
@on_service
def revoke(session: Session, store: StoreId, grant: GrantId) -> int:
    """Take back a grant that was not used.

    Example: lethe replication discard-grant revoke orders-west dgr_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    found = session.client.discard_grants.revoke(store, grant)
    session.out.document(found.raw)
    session.out.say(f"{found.id} is {found.state}.")
    return ExitCode.OK


@clock.command("show")
@on_service
def show(session: Session, store: StoreId) -> int:
    """Show where the next CSN of a replica stands against its service's clock.

    Example: lethe replication clock show orders-east
    """
    found = session.client.replica_clocks.get(store)
    session.out.document(found.raw)
    facts = _facts(found.standing) | {"status": found.status, "peers may be ahead by": found.ahead_max}
    session.out.facts({"now": found.now} | facts)
    return ExitCode.OK


@clock.command("repair")
@on_service
def repair(
    session: Session,
    store: StoreId,
    *,
    reason: Reason,
    without_consumers: Annotated[
        bool, typer.Option("--without-consumers", help="Do not ask consumers what they have of it.")
    ] = False,
) -> int:
    """Bring a replica's CSNs back to the clock; every one to come stays above all that were given.

    Example: lethe replication clock repair orders-east --reason "clock was a day ahead"
    """
    done = session.client.replica_clocks.repair(store, reason=reason, without_consumers=without_consumers)
    session.out.document(done.raw)
    session.out.facts(
        {"ahead before": done.before.ahead}
        | _facts(done.after)
        | {"greatest CSN known": done.floor, "level at": done.level_at}
    )
    return ExitCode.OK


@keys.command("list")
@on_service
def list_keys(session: Session, store: StoreId) -> int:
    """Show the key of a replica, and those that it knows of others.

    Example: lethe replication key list orders-east
    """
    found = session.client.known_keys.get(store)
    session.out.document(found.raw)
    rows: list[list[object]] = [[str(found.own.rid), found.own.key, "its own"]]
    rows += [[str(each.rid), each.key, ""] for each in found.known]
    session.out.table(["rid", "key", ""], rows)
    return ExitCode.OK


@keys.command("pin")
@on_service
def pin(
    session: Session,
    store: StoreId,
    rid: Rid,
    key: Annotated[str, typer.Argument(metavar="KEY", help="As `key list` shows it at that replica itself.")],
    *,
    reason: Reason,
    instead_of: Annotated[
        str | None, typer.Option("--instead-of", metavar="KEY", help="The wrong one, if one is known.")
    ] = None,
) -> int:
    """Say which key another replica has: a peer that shows or knows another one is refused.

    Example: lethe replication key pin orders-east 2 ed25519:Hd2x --reason "read out on the phone"
    """
    made = session.client.known_keys.pin(store, rid=rid, key=key, reason=reason, instead_of=instead_of)
    session.out.document(made.raw)
    session.out.say(f"Replica {made.rid} is believed by {made.key}.")
    return ExitCode.OK


@keys.command("forget")
@on_service
def forget(session: Session, store: StoreId, rid: Rid, *, reason: Reason) -> int:
    """Forget the key of another replica; the next one that is heard of is learned.

    Example: lethe replication key forget orders-east 2 --reason "its service was set up anew"
    """
    found = session.client.known_keys.forget(store, rid, reason=reason)
    session.out.document(found.raw)
    session.out.say(
        f"{found.key} of replica {found.rid} is forgotten here. Peers that know it bring it back:"
        " forget it there too, or pin the right one."
    )
    return ExitCode.OK


def _facts(standing: ClockStanding) -> dict[str, object]:
    return {"next CSN at": standing.next_at, "ahead": standing.ahead, "left by peers": standing.by_peers}


def _row(grant: DiscardGrant) -> list[object]:
    return [
        grant.id,
        grant.state,
        str(grant.supplier_rid),
        grant.peer_token_id,
        grant.expires_at,
        grant.consumed_by,
        grant.granted_by,
        grant.reason,
    ]
