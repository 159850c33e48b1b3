"""A control record without the ranges of some protections."""

from dataclasses import replace

from spark.targets.files.control_record import ControlRecord


def released(record: ControlRecord, *ids: str) -> ControlRecord:
    """The record without them."""
    return replace(record, ranges=tuple(held for held in record.ranges if held.id not in ids))
