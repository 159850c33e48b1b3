"""Capture triggers that write what SymmetricDS's write, and their rows of sym_trigger_hist.

Variants of the trigger of updates: `always`; `changed`, only where a value differs, so that a touch captures
nothing; `condition`, only where a column is not NULL; `none`, there is no such trigger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.oracles.symmetricds import Place
from tests.oracles.symmetricds_database import Row
from tests.oracles.symmetricds_random import CUTOFF
from tests.oracles.symmetricds_schema import Dialect, quoted
from tests.spark.upkeep.recapture.hands import Hand, literal
from tests.spark.upkeep.recapture.shapes import Column, Shape

Variant = Literal["always", "changed", "condition", "none"]
VARIANTS: tuple[Variant, ...] = ("always", "changed", "condition", "none")
EVENTS = {"I": "insert", "U": "update", "D": "delete"}


@dataclass(frozen=True)
class Capture:
    """One trigger of SymmetricDS as one history has it.

    `columns` and `key` are names in the order in which the history has them; `condition` is the column that
    the variant of this name looks at.
    """

    trigger_id: str
    hist_id: int
    shape: Shape
    columns: tuple[str, ...]
    key: tuple[str, ...]
    variant: Variant = "always"
    channel: str = "default"
    condition: str | None = None

    def name(self, event: str) -> str:
        """Of the trigger of an event."""
        return f"sym_on_{event.lower()}_for_{self.trigger_id}_{self.hist_id}"

    def captures_touch_of(self, row: Row) -> bool:
        """Whether an update that changes nothing of this row is captured."""
        if self.variant == "condition":
            assert self.condition is not None
            return row[self.condition] is not None
        return self.variant == "always"

    def history(self, *, catalog: str | None, schema: str | None) -> Row:
        """Its row of sym_trigger_hist."""
        return {
            "trigger_hist_id": self.hist_id,
            "trigger_id": self.trigger_id,
            "source_table_name": self.shape.name,
            "source_catalog_name": catalog,
            "source_schema_name": schema,
            "name_for_update_trigger": self.name("U"),
            "name_for_insert_trigger": self.name("I"),
            "name_for_delete_trigger": self.name("D"),
            "column_names": ",".join(self.columns),
            "pk_column_names": ",".join(self.key),
            "last_trigger_build_reason": "N",
            "create_time": CUTOFF,
        }


def build(hand: Hand, place: Place, capture: Capture) -> None:
    """Create the triggers of a table."""
    for event in EVENTS:
        if event == "U" and capture.variant == "none":
            continue
        for statement in _BUILT[hand.dialect](place, capture, event):
            hand.run(statement)


def unbuild(hand: Hand, capture: Capture) -> None:
    """Take them away."""
    for event in EVENTS:
        name = quoted(capture.name(event), hand.dialect)
        on = f" on {capture.shape.place(hand.dialect)}" if hand.dialect == "postgresql" else ""
        hand.run(f"drop trigger if exists {name}{on}")


def _value(column: Column, side: str, dialect: Dialect) -> str:
    """A value between double quotes, or nothing."""
    at = f"{side}.{quoted(column.name, dialect)}"
    if dialect == "mariadb":
        escaped = rf"""replace(replace({at},'\\','\\\\'),'"','\\"')"""
        text = escaped if column.kind in ("text", "choice") else f"cast({at} as char)"
        return f"if({at} is null,'',concat('\"',{text},'\"'))"
    if column.kind in ("text", "uuid", "choice"):
        text = rf"""replace(replace(cast({at} as varchar),'\','\\'),'"','\"')"""
    elif column.kind in ("date", "moment"):
        text = (
            f"to_char({at}, 'YYYY-MM-DD HH24:MI:SS{'.US' if column.kind == 'moment' else ''}')"
            if dialect == "postgresql"
            else f"strftime('%Y-%m-%d %H:%M:%f', {at})"
        )
    else:
        inner = f"cast({at} as numeric)" if dialect == "postgresql" else at
        text = f"cast({inner} as varchar)"
    return f"case when {at} is null then '' else '\"' || {text} || '\"' end"


def _line(capture: Capture, names: tuple[str, ...], side: str, dialect: Dialect) -> str:
    values = [_value(capture.shape.of(name), side, dialect) for name in names]
    return (
        f"concat({(chr(44) + repr(',') + chr(44)).join(values)})"
        if dialect == "mariadb"
        else ("||','||".join(values))
    )


def _insert(place: Place, capture: Capture, event: str) -> str:
    """The insert into sym_data."""
    dialect = place.dialect
    written = {
        "pk_data": _line(capture, capture.key, "old", dialect) if event != "I" else None,
        "row_data": _line(capture, capture.columns, "new", dialect) if event != "D" else None,
        "old_data": _line(capture, capture.columns, "old", dialect) if event != "I" else None,
    }
    names = [name for name, text in written.items() if text is not None]
    texts = [text for text in written.values() if text is not None]
    now = "strftime('%Y-%m-%d %H:%M:%f','now','localtime')" if dialect == "sqlite" else "current_timestamp"
    if place.encoding == "epoch_ms":
        now = "cast(strftime('%s','now') as integer) * 1000"
    transaction = "cast(txid_current() as varchar)" if dialect == "postgresql" else "null"
    return (
        f"insert into {place.name('data')} (table_name, event_type, trigger_hist_id, {', '.join(names)},"
        " channel_id, transaction_id, source_node_id, external_data, create_time) values"
        f" ({literal(capture.shape.name, dialect)}, '{event}', {capture.hist_id}, {', '.join(texts)},"
        f" {literal(capture.channel, dialect)}, {transaction}, null, null, {now})"
    )


def _asked(capture: Capture, event: str, dialect: Dialect) -> str:
    """The condition of a trigger."""
    if event != "U":
        return "1 = 1"
    if capture.variant == "condition":
        assert capture.condition is not None
        return f"new.{quoted(capture.condition, dialect)} is not null"
    if capture.variant == "changed":
        lines = [_line(capture, capture.columns, side, dialect) for side in ("new", "old")]
        return f"({lines[0]}) <> ({lines[1]})"
    return "1 = 1"


def _sqlite(place: Place, capture: Capture, event: str) -> list[str]:
    return [
        f"create trigger {quoted(capture.name(event), 'sqlite')} after {EVENTS[event]}"
        f" on {capture.shape.place('sqlite')} for each row when ({_asked(capture, event, 'sqlite')})"
        f" begin {_insert(place, capture, event)}; end"
    ]


def _postgresql(place: Place, capture: Capture, event: str) -> list[str]:
    name = capture.name(event)
    return [
        f"create or replace function {quoted(f'f{name}', 'postgresql')}() returns trigger as $body$ begin"
        f" if {_asked(capture, event, 'postgresql')} then {_insert(place, capture, event)}; end if;"
        " return null; end; $body$ language plpgsql",
        f"create trigger {quoted(name, 'postgresql')} after {EVENTS[event]}"
        f" on {capture.shape.place('postgresql')} for each row"
        f" execute procedure {quoted(f'f{name}', 'postgresql')}()",
    ]


def _mariadb(place: Place, capture: Capture, event: str) -> list[str]:
    return [
        f"create trigger {quoted(capture.name(event), 'mariadb')} after {EVENTS[event]}"
        f" on {capture.shape.place('mariadb')} for each row begin"
        f" if {_asked(capture, event, 'mariadb')} then {_insert(place, capture, event)}; end if; end"
    ]


_BUILT = {"sqlite": _sqlite, "postgresql": _postgresql, "mariadb": _mariadb}
