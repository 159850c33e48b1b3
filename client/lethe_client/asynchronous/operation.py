"""Made by `make client` from lethe_client/operation.py: change that, not this."""

from collections.abc import AsyncIterator, Mapping, MutableSequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from lethe_client.asynchronous import pages
from lethe_client.asynchronous.transport import AsyncTransport
from lethe_client.audit_chain import PROBLEMS_MAX
from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.operation import ROWS_PER_PAGE, AuditChain, AuditProblem, AuditVerification
from lethe_client.paths import collection, resource
from lethe_client.results import AuditEvent, Instance
from lethe_client.transport import Call


class Audit:
    """`/v1/audit-events` and `/v1/audit-chain`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        token_id: str | None = None,
        store: str | None = None,
        subject_id: str | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[AuditEvent]:
        """Yield who changed what, newest first."""
        params = {
            "action": action,
            "actor": actor,
            "token_id": token_id,
            "store": store,
            "subject_id": subject_id,
            "created_after": created_after.isoformat() if created_after else None,
            "created_before": created_before.isoformat() if created_before else None,
        }
        return pages.items(self._transport, collection("audit-events"), AuditEvent, params=params)

    async def chain(self) -> AuditChain:
        """Where the chain begins and ends; `signed` is the head with its signature."""
        return decode(AuditChain, await self._get(collection("audit-chain"), {}))

    async def rows(self, *, through_seq: int, after_seq: int = 0) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the rows of the chain by their places, as the service shows them.

        Raises: UnexpectedAnswer: places that do not grow.
        """
        path = resource("audit-chain", "rows")
        while after_seq < through_seq:
            body = await self._get(path, {"after_seq": after_seq, "page_size": ROWS_PER_PAGE})
            items = body.get("items") if isinstance(body, dict) else None
            if not isinstance(items, list):
                raise UnexpectedAnswer(f"{path} did not answer rows")
            before = after_seq
            for row in items:
                if row["seq"] > through_seq:
                    return
                yield row
                after_seq = max(after_seq, row["seq"])
            if after_seq == before:
                return

    async def verify(self) -> AuditVerification:
        """Have the whole chain checked, by as many requests as it takes; `problems` of all of them."""
        path = resource("audit-chain", "verification")
        params: dict[str, Any] = {}
        problems: MutableSequence[AuditProblem] = []
        checked = more = 0
        while True:
            found = decode(AuditVerification, await self._get(path, params))
            checked += found.checked
            more += found.more_problems
            problems += found.problems[: PROBLEMS_MAX - len(problems)]
            params = {"after_seq": found.through.seq, "after_hash": found.through.hash}
            if found.is_whole:
                return replace(
                    found, ok=not problems, checked=checked, problems=tuple(problems), more_problems=more
                )

    async def _get(self, path: str, params: Mapping[str, Any]) -> Any:
        return (
            await self._transport.request(Call(method="GET", path=path, params=params, repeatable=True))
        ).body


class Instances:
    """`/v1/instances`."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncIterator[Instance]:
        return pages.items(self._transport, collection("instances"), Instance)
