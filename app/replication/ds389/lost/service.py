"""From the body of `:find-lost` to the rule, and its answer."""

from app.errors import InvalidRequest
from app.replication.ds389.lost.models import LostRead, LostRequest
from spark.formats.csn import Csn
from spark.replication.ds389.evidence import (
    EvidenceUnreadable,
    History,
    Session,
    read_changelog,
    session_of,
)
from spark.replication.ds389.lost import Evidence, document_of, find_lost


def answer_lost(body: LostRequest) -> LostRead:
    """Judge what was given.

    Raises: InvalidRequest: a vector or a session that cannot be.
    """
    faults: list[dict[str, str]] = []
    histories: dict[int, History] = {}
    for number, changelog in enumerate(body.changelogs):
        lines = [f"clpurgeruv: {line}" for line in changelog.purged]
        lines += [f"clmaxruv: {line}" for line in changelog.maxima]
        lines += [f"csn: {csn}" for csn in changelog.csns]
        try:
            histories[changelog.server] = read_changelog(lines)
        except EvidenceUnreadable as error:
            faults.append({"pointer": f"/changelogs/{number}", "detail": str(error)})
    sessions: list[Session] = []
    for number, session in enumerate(body.sessions):
        try:
            sessions.append(session_of(session.model_dump()))
        except EvidenceUnreadable as error:
            faults.append({"pointer": f"/sessions/{number}", "detail": str(error)})
    if faults:
        raise InvalidRequest(f"{len(faults)} part(s) cannot be read", errors=faults[:100])
    results = {each.server: {Csn(csn): code for csn, code in each.results.items()} for each in body.results}
    verdict = find_lost(Evidence(histories=histories, sessions=sessions, results=results))
    return LostRead.model_validate(document_of(verdict))
