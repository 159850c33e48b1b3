"""What operators look at: the audit trail, the instances, whether the service is ready."""

from collections.abc import Iterator
from datetime import datetime

from lethe_client import pages
from lethe_client.paths import collection
from lethe_client.results import AuditEvent, Instance
from lethe_client.transport import Transport


class Audit:
    """`/v1/audit-events`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        action: str | None = None,
        subject_id: str | None = None,
        created_after: datetime | None = None,
    ) -> Iterator[AuditEvent]:
        """Yield who changed what, newest first."""
        after = created_after.isoformat() if created_after else None
        params = {"action": action, "subject_id": subject_id, "created_after": after}
        return pages.items(self._transport, collection("audit-events"), AuditEvent, params=params)


class Instances:
    """`/v1/instances`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Instance]:
        return pages.items(self._transport, collection("instances"), Instance)
