"""What operators look at: the audit trail, the instances, whether the service is ready."""

from collections.abc import Iterator, Mapping, MutableSequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from lethe_client import pages
from lethe_client.audit_chain import PROBLEMS_MAX
from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.paths import collection, resource
from lethe_client.results import AuditEvent, Instance, Result
from lethe_client.transport import Call, Transport

ROWS_PER_PAGE: Final = 500


@dataclass(frozen=True, kw_only=True)
class AuditLink:
    """A place in the chain of audit rows, and the hash of the row there."""

    seq: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class AuditProblem:
    """What does not hold of the chain."""

    code: str
    seq: int | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class AuditChain(Result):
    """Where the chain begins and ends."""

    anchor: AuditLink
    head: AuditLink
    adopted_seq: int = 0
    signed: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class AuditVerification(Result):
    """What a check of the chain has found."""

    ok: bool
    is_whole: bool
    checked: int
    anchor: AuditLink
    head: AuditLink
    through: AuditLink
    problems: tuple[AuditProblem, ...] = ()
    more_problems: int = 0


class Audit:
    """`/v1/audit-events` and `/v1/audit-chain`."""

    def __init__(self, transport: Transport) -> None:
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
    ) -> Iterator[AuditEvent]:
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

    def chain(self) -> AuditChain:
        """Where the chain begins and ends; `signed` is the head with its signature."""
        return decode(AuditChain, self._get(collection("audit-chain"), {}))

    def rows(self, *, through_seq: int, after_seq: int = 0) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of the chain by their places, as the service shows them.

        Raises: UnexpectedAnswer: places that do not grow.
        """
        path = resource("audit-chain", "rows")
        while after_seq < through_seq:
            body = self._get(path, {"after_seq": after_seq, "page_size": ROWS_PER_PAGE})
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

    def verify(self) -> AuditVerification:
        """Have the whole chain checked, by as many requests as it takes; `problems` of all of them."""
        path = resource("audit-chain", "verification")
        params: dict[str, Any] = {}
        problems: MutableSequence[AuditProblem] = []
        checked = more = 0
        while True:
            found = decode(AuditVerification, self._get(path, params))
            checked += found.checked
            more += found.more_problems
            problems += found.problems[: PROBLEMS_MAX - len(problems)]
            params = {"after_seq": found.through.seq, "after_hash": found.through.hash}
            if found.is_whole:
                return replace(
                    found, ok=not problems, checked=checked, problems=tuple(problems), more_problems=more
                )

    def _get(self, path: str, params: Mapping[str, Any]) -> Any:
        return self._transport.request(Call(method="GET", path=path, params=params, repeatable=True)).body


class Instances:
    """`/v1/instances`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Instance]:
        return pages.items(self._transport, collection("instances"), Instance)
