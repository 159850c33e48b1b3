"""What slonik does before a command, step by step over plain rows: an oracle apart from the rules.

Every wait is written as slonik's code loops: its queries as they are over the rows of the node that it asks,
a NULL as libpq gives it (an empty string, so 0), its last events fixed when it starts.
Source: slonik of 2.2.11, src/slonik/slonik.c.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Rows:
    """One node's sl_node (id to active, failed), sl_event, sl_confirm, sl_set, sl_subscribe, sl_path."""

    nodes: dict[int, tuple[bool, bool]] = field(default_factory=dict)
    events: list[tuple[int, int, str, str, str]] = field(default_factory=list)
    """(origin, seqno, type, set, receiver)."""
    confirms: list[tuple[int, int, int]] = field(default_factory=list)
    """(origin, receiver, seqno)."""
    sets: dict[int, int] = field(default_factory=dict)
    subscriptions: list[tuple[int, int, int, bool]] = field(default_factory=list)
    """(set, provider, receiver, forwards)."""
    paths: set[tuple[int, int]] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    """Ids of transactions."""
    next_xid: int = 1_000
    latest_completed: int = 999

    @property
    def xmax(self) -> int:
        return self.latest_completed + 1

    @property
    def xmin(self) -> int:
        return min([self.xmax, *self.running])

    def confirmed(self, origin: int, receiver: int) -> int | None:
        return max((s for o, r, s in self.confirms if (o, r) == (origin, receiver)), default=None)

    def last(self, origin: int, *, types: set[str] | None = None, but: str = "") -> int:
        return max(
            (
                s
                for o, s, t, _, _ in self.events
                if o == origin and t != but and (types is None or t in types)
            ),
            default=0,
        )


class NaiveSlonik:
    """A slonik that has just started, with an ADMIN CONNINFO for every node.

    Args:
        nodes: rows by node, which change while it waits.
        previous: where the command before was submitted; its last event is what was there at the start.
    """

    def __init__(self, nodes: dict[int, Rows], *, previous: int | None = None) -> None:
        self.nodes = nodes
        self.previous = previous
        self.last_event = {n: rows.last(n, but="SYNC") if n in rows.nodes else 0 for n, rows in nodes.items()}
        self.drop_sets = {n: rows.last(n, types={"DROP_SET"}) for n, rows in nodes.items()}
        self.seen_of = {  # of each node the newest event that any other one has seen
            n: max((rows.last(n) for other, rows in nodes.items() if other != n), default=0) for n in nodes
        }
        self.locked_at = {n: rows.xmax for n, rows in nodes.items()}

    def caught_up(self, at: int, last_event: dict[int, int], *, ignore: int = -1) -> bool:
        for n, seqno in last_event.items():
            if n in (at, ignore):
                continue
            row = self.nodes[at].nodes.get(n)
            if row is not None and not row[0]:
                continue
            if seqno > (self.nodes[at].confirmed(n, at) or 0):
                return False
        return True

    def waited(self, origin: int, seqno: int, *, on: int, confirmed: int) -> bool:
        rows = self.nodes[on]
        row, reached = rows.nodes.get(confirmed), rows.confirmed(origin, confirmed)
        return row is None or not row[0] or reached is None or reached >= seqno

    def submitted(self, node: int) -> bool:
        if self.previous is None or self.previous == node:
            return True
        return self.waited(self.previous, self.last_event[self.previous], on=self.previous, confirmed=node)

    # -- the commands: whether the wait before it is over now

    def subscribe_set(self, provider: int, origin: int) -> bool:
        return self.caught_up(provider, self.last_event) and self.submitted(origin)

    def clone_prepare(self, provider: int) -> bool:
        return self.caught_up(provider, self.last_event) and self.submitted(provider)

    def store_node(self, new: int, event_node: int) -> bool:
        return self.caught_up(event_node, self.last_event, ignore=new) and self.submitted(event_node)

    def create_set(self, origin: int) -> bool:
        return self.caught_up(origin, self.drop_sets) and self.submitted(origin)

    def drop_node(self, dropped: int, event_node: int) -> bool:
        seqno = self.seen_of[dropped]
        return seqno <= 0 or self.waited(dropped, seqno, on=event_node, confirmed=event_node)

    def move_set(self, origin: int) -> bool:
        return self.submitted(origin)

    def merge_set(self, origin: int, sets: set[int]) -> bool:
        rows = self.nodes[origin]
        for o, seqno, kind, set_id, receiver in rows.events:
            if kind == "ENABLE_SUBSCRIPTION" and int(set_id) in sets:
                reached = rows.confirmed(o, int(receiver))
                if reached is not None and seqno > reached:
                    return False
        return self.submitted(origin)

    def lock_set(self, origin: int) -> bool:
        return self.nodes[origin].xmin >= self.locked_at[origin]

    def failover(self, failed: int, backup: int) -> bool:
        """Whether it goes on; nothing is waited for, it refuses."""
        rows = self.nodes[backup]
        orphans = [
            r
            for _, provider, r, _ in rows.subscriptions
            if provider == failed and r not in (failed, backup) and (backup, r) not in rows.paths
        ]
        unfed = [
            s
            for s, origin in rows.sets.items()
            if origin == failed and not any(i == s and r == backup and f for i, _, r, f in rows.subscriptions)
        ]
        return not orphans and not unfed
