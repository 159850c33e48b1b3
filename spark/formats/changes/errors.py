"""What can be wrong with the body of a batch."""

from typing import ClassVar


class BatchUnreadable(Exception):
    """A body that is no batch of the wanted columns: cut off, garbage, of another schema, values refused."""

    code: ClassVar[str] = "BATCH_UNREADABLE"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class BatchTooLarge(Exception):
    """A body that would decode to more rows or bytes than were agreed."""

    code: ClassVar[str] = "BATCH_TOO_LARGE"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
