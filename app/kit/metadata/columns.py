"""Types of columns: durations, times and JSON, the same in Python whichever database keeps them."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa


class DurationSeconds(sa.types.TypeDecorator[timedelta]):
    """A duration as whole seconds."""

    impl = sa.Integer
    cache_ok = True

    def process_bind_param(self, value: timedelta | None, dialect: sa.Dialect) -> int | None:
        """Cut fractions of a second off."""
        return None if value is None else int(value.total_seconds())

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> timedelta | None:
        """Give it back as a duration."""
        return None if value is None else timedelta(seconds=value)


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """Aware UTC in Python; timestamptz on PostgreSQL, naive UTC text on SQLite."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Refuse naive values; SQLite gets them without an offset, so that text compares."""
        if value is None:
            return None
        assert value.tzinfo is not None, "a naive time reached the metadata database"
        value = _in_utc(value)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Give every time back as aware UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _in_utc(value: datetime) -> datetime:
    """The same instant in UTC; one that lies beyond the calendar there is the calendar's edge."""
    try:
        return value.astimezone(UTC)
    except OverflowError:
        return (datetime.min if value.year == datetime.min.year else datetime.max).replace(tzinfo=UTC)


JSON_TYPE = sa.JSON(none_as_null=True)
