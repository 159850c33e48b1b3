"""Makes records of rows of the log, one call for each: it is where a feed spends its time.

See `logTrigger` of Slony-I for what stands in log_cmdargs.
"""

from collections.abc import Callable, Sequence
from typing import Any

from spark.events.feed.records import ROW_KINDS, Change


def change_of(seqno: int, sets: dict[int, int | None]) -> Callable[[Sequence[Any]], Change]:
    """What makes the records of a unit.

    Args:
        seqno: of its SYNC.
        sets: which set each table is in.
    """
    new, set_of, kinds = tuple.__new__, sets.get, ROW_KINDS  # a tuple's own: a NamedTuple's names its fields

    def make(row: Sequence[Any]) -> Change:
        actionseq, txid, table_id, schema, table, cmdtype, updated, args = row
        kind = kinds.get(cmdtype, "UNKNOWN")
        key = values = detail = None
        if cmdtype == "U":
            count = 2 * updated
            values, key = _pairs(args[:count]), _pairs(args[count:])
        elif cmdtype == "I":
            values = _pairs(args)
        elif cmdtype == "D":
            key = _pairs(args)
        elif cmdtype == "S":
            only_on = args[1] if len(args) > 1 and args[1] else None
            detail = {"statement": args[0], "only_on": only_on}
        elif kind == "UNKNOWN":
            detail = {"cmdtype": cmdtype, "arguments": args}
        fields = (
            seqno,
            kind,
            actionseq,
            txid,
            set_of(table_id),
            table_id,
            schema,
            table,
            key,
            values,
            detail,
        )
        return new(Change, fields)

    return make


def _pairs(args: list[str | None]) -> dict[Any, str | None]:
    """Names and values, which take turns. Few of them are written out: it is three times as fast."""
    count = len(args)
    if count == 2:
        return {args[0]: args[1]}
    if count == 4:
        return {args[0]: args[1], args[2]: args[3]}
    if count == 6:
        return {args[0]: args[1], args[2]: args[3], args[4]: args[5]}
    each = iter(args)
    return dict(zip(each, each, strict=True))
