"""The smaller tables that SymmetricDS's purge jobs clear, and stranded rows: which rows of which table go.

A condition is a text over the row under `{t}` and over other tables under their names without prefix; :cutoff
is what times are compared with. OWN speaks of the row alone, GUARD of what may still need it. A row goes when
both are true; NULL leaves it.

Lethe removes what SymmetricDS 3.16 removes, and keeps more in these cases:
- INCOMING_ERROR and CHANNELS ask for an age, which SymmetricDS does not;
- TRIGGER_HIST: an inactive history that a captured row still names stays, or nobody could read it;
- CHANNELS: a captured row in a batch that is not delivered stays, and where there is no channel at all
  everything stays; STRANDED and CHANNELS leave the greatest data id;
- STRANDED with recapture: of the rows in expired gaps those go that are old, have no event, and lie below the
  first live gap.
Source: PurgeService and PurgeServiceSqlMap of SymmetricDS 3.16; facts/symmetricds-purge, section 5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from spark.formats.symmetricds import (
    DATA,
    DATA_EVENT,
    DATA_GAP,
    DELIVERED_STATUSES,
    INCOMING_BATCH,
    OK,
    OUTGOING_BATCH,
    KindName,
    Layout,
)
from spark.purge.findings import Finding

CHANNEL = "channel"
MARK_STEP = "mark_outgoing_batch"
Action = Literal["DELETE", "MARK"]
Columns = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What goes of one table.

    Attributes:
        table: without prefix.
        time: the column that is compared with the cut-off.
        columns: of the table, which the conditions name; `needs`: those of other tables.
        planned_guard: the guard as it will be when the steps before have run; "": the guard itself.
        marked_guard: the same where the step MARK runs before; "": it changes nothing.
        late_guard, planned_late_guard: where rows are captured anew, those go too of which this is true.
        kept: what a plan says of rows that only the guard keeps.
        action: MARK turns batches to OK.
        locks_batches: the outgoing batches that rows of the table reach are locked first.
    """

    table: str
    time: str
    own: str
    columns: tuple[str, ...]
    guard: str = ""
    needs: Columns = field(default_factory=dict)
    planned_guard: str = ""
    marked_guard: str = ""
    late_guard: str = ""
    planned_late_guard: str = ""
    kept: Finding | None = None
    action: Action = "DELETE"
    locks_batches: bool = False

    @property
    def step(self) -> str:
        """The name of its step in plans, ledger and checkpoints."""
        return MARK_STEP if self.action == "MARK" else self.table

    def lack(self, layout: Layout, *, prefix: str) -> str | None:
        """Why it says nothing about this layout; None: it does."""
        for table, names in ({self.table: (self.time, *self.columns)} | dict(self.needs)).items():
            known = set(layout.columns_of(table))
            if not known:
                return f"{prefix}{table} is not there"
            if absent := sorted(set(names) - known):
                return f"{prefix}{table} has no column {', '.join(absent)}"
        return None


_STATUS = "table_reload_status"
_OVER = "{t}.completed = 1 and {t}.last_update_time < :cutoff"
_SAME_LOAD = "not exists (select 1 from {table_reload_status} s where s.load_id = {t}.load_id"
_LOAD_STAYS = f"{_SAME_LOAD} and (s.completed = 1 and s.last_update_time < :cutoff) is not true)"
_OF_LOAD = {
    "guard": f"{_SAME_LOAD})",
    "planned_guard": _LOAD_STAYS,
    "needs": {_STATUS: ("load_id", "completed", "last_update_time")},
    "kept": Finding(
        "LOAD_NOT_OVER", "", "old, but the status of its load stays: the load is not completed, or not old"
    ),
}
_LOWEST_BATCH = "(select min(b.batch_id) from {outgoing_batch} b)"
_STRANDED_EVENT = "{e}.create_time < :cutoff and {e}.batch_id < " + _LOWEST_BATCH
_BELOW_GAPS = "{t}.data_id < (select min(g.start_id) from {data_gap} g where g.is_expired = 0)"
_IN_A_GAP = (
    "exists (select 1 from {data_gap} x where x.is_expired = 1"
    " and {t}.data_id between x.start_id and x.end_id)"
)
_NOT_GREATEST = "{t}.data_id < (select max(m.data_id) from {data} m)"
_GONE = "{a}.channel_id not in (select c.channel_id from {channel} c) and exists (select 1 from {channel})"
_DELIVERED = ", ".join(f"'{status}'" for status in DELIVERED_STATUSES)
_UNDELIVERED = (
    "not exists (select 1 from {data_event} e join {outgoing_batch} b on b.batch_id = e.batch_id"
    f" where e.data_id = {{t}}.data_id and (b.status is null or b.status not in ({_DELIVERED}))"
)
_MARKED = f"({_GONE.replace('{a}', 'b')} and b.status <> '{OK}' and b.create_time < :cutoff)"


def _stranded_data(*, planned: bool) -> str:
    stays = f" where ({_STRANDED_EVENT.replace('{e}', 'e')}) is not true" if planned else ""
    below_events = f"{{t}}.data_id < (select min(e.data_id) from {{data_event}} e{stays})"
    return f"{below_events} and {_BELOW_GAPS} and not {_IN_A_GAP} and {_NOT_GREATEST}"


def _late_data(*, planned: bool) -> str:
    """Rows that came into a gap when it had expired: they have no event, and are never routed."""
    stays = f" and ({_STRANDED_EVENT.replace('{e}', 'e')}) is not true" if planned else ""
    routed = f"exists (select 1 from {{data_event}} e where e.data_id = {{t}}.data_id{stays})"
    return f"not {routed} and {_BELOW_GAPS} and {_IN_A_GAP} and {_NOT_GREATEST}"


def _statistics(table: str) -> Rule:
    return Rule(table=table, time="start_time", own="{t}.start_time < :cutoff", columns=())


RULES: Mapping[KindName, tuple[Rule, ...]] = {
    "EXTRACT_REQUEST": (
        Rule(table=_STATUS, time="last_update_time", own=_OVER, columns=("completed", "load_id")),
        Rule(
            table="table_reload_request",
            time="last_update_time",
            own="{t}.processed = 1 and {t}.last_update_time < :cutoff",
            columns=("processed", "load_id"),
            **_OF_LOAD,  # type: ignore[arg-type]
        ),
        Rule(
            table="extract_request",
            time="last_update_time",
            own=f"{{t}}.status = '{OK}' and {{t}}.last_update_time < :cutoff",
            columns=("status", "load_id"),
            **_OF_LOAD,  # type: ignore[arg-type]
        ),
    ),
    "REGISTRATION_REQUEST": (
        Rule(
            table="registration_request",
            time="last_update_time",
            own="{t}.status in ('OK', 'RJ', 'RR') and {t}.last_update_time < :cutoff",
            columns=("status",),
        ),
    ),
    "INCOMING_ERROR": (
        Rule(
            table="incoming_error",
            time="last_update_time",
            own="{t}.last_update_time < :cutoff",
            columns=("batch_id",),
            guard="not exists (select 1 from {incoming_batch} i where i.batch_id = {t}.batch_id)",
            needs={INCOMING_BATCH: ("batch_id",)},
            kept=Finding(
                "BATCH_STILL_THERE", "", "old, but a batch of its id is there: it stays as long as the batch"
            ),
        ),
    ),
    "STATISTICS": (
        _statistics("node_host_channel_stats"),
        _statistics("node_host_stats"),
        _statistics("node_host_job_stats"),
    ),
    "TRIGGER_HIST": (
        Rule(
            table="trigger_hist",
            time="inactive_time",
            own="{t}.inactive_time < :cutoff",
            columns=("trigger_hist_id",),
            # Uncorrelated and distinct: one look through the captured rows, whatever the planner estimates.
            guard="{t}.trigger_hist_id not in (select distinct d.trigger_hist_id from {data} d"
            " where d.trigger_hist_id is not null)",
            needs={DATA: ("trigger_hist_id",)},
            kept=Finding(
                "TRIGGER_HIST_STILL_NEEDED",
                "",
                "inactive and old, but captured rows name it: without it nobody could read them, it stays",
            ),
        ),
    ),
    "STRANDED": (
        Rule(
            table=DATA_EVENT,
            time="create_time",
            own="{t}.create_time < :cutoff",
            columns=("data_id", "batch_id"),
            guard="{t}.batch_id < " + _LOWEST_BATCH,
            # Of 2.x and 3.0 to 3.8 nothing goes: a row without its event could never go by itself there.
            needs={OUTGOING_BATCH: ("batch_id",), DATA_GAP: ("is_expired",)},
        ),
        Rule(
            table=DATA,
            time="create_time",
            own="{t}.create_time < :cutoff",
            columns=("data_id",),
            guard=_stranded_data(planned=False),
            planned_guard=_stranded_data(planned=True),
            late_guard=_late_data(planned=False),
            planned_late_guard=_late_data(planned=True),
            needs={
                DATA_EVENT: ("data_id", "batch_id", "create_time"),
                OUTGOING_BATCH: ("batch_id",),
                DATA_GAP: ("start_id", "end_id", "is_expired"),
            },
        ),
    ),
    "CHANNELS": (
        Rule(
            table=OUTGOING_BATCH,
            time="create_time",
            own=f"{{t}}.status <> '{OK}' and {{t}}.create_time < :cutoff",
            columns=("channel_id", "status"),
            guard=_GONE.replace("{a}", "{t}"),
            needs={CHANNEL: ("channel_id",)},
            action="MARK",
        ),
        Rule(
            table=DATA,
            time="create_time",
            own="{t}.create_time < :cutoff",
            columns=("data_id", "channel_id"),
            guard=f"{_GONE.replace('{a}', '{t}')} and {_NOT_GREATEST} and {_UNDELIVERED})",
            marked_guard=f"{_GONE.replace('{a}', '{t}')} and {_NOT_GREATEST}"
            f" and {_UNDELIVERED} and {_MARKED} is not true)",
            needs={
                CHANNEL: ("channel_id",),
                DATA_EVENT: ("data_id", "batch_id"),
                OUTGOING_BATCH: ("batch_id", "status", "channel_id", "create_time"),
            },
            locks_batches=True,
        ),
    ),
}


def rules_of(kind: KindName, layout: Layout, *, prefix: str, marks: bool = False) -> tuple[Rule, ...]:
    """The rules of a kind that this layout has the tables and columns for."""
    return tuple(
        rule
        for rule in RULES.get(kind, ())
        if rule.lack(layout, prefix=prefix) is None and (marks or rule.action == "DELETE")
    )


def faults_of(kind: KindName, layout: Layout, *, prefix: str) -> dict[str, str]:
    """Table to why nothing of it can go here."""
    return {
        rule.table: lack
        for rule in RULES.get(kind, ())
        if (lack := rule.lack(layout, prefix=prefix)) is not None
    }


def tables_of(kind: KindName) -> tuple[str, ...]:
    """Every table that a kind reads or writes, without prefix."""
    named = (table for rule in RULES.get(kind, ()) for table in (rule.table, *rule.needs))
    return tuple(dict.fromkeys(named))
