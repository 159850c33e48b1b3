"""From texts of files to the request of `:find-lost`, and from its faults to the fields that they are of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.errors import InvalidRequest, ServiceError
from app.replication.ds389.lost.files import changelog_of, results_of, sessions_of

FILES: Final = ("changelog", "errors", "access")
PART_OF: Final[Mapping[str, str]] = {"changelog": "changelogs", "errors": "sessions", "access": "results"}
Fault = dict[str, str]


@dataclass(slots=True)
class Evidence:
    """What was given, as the API takes it.

    Attributes:
        places: of each part of the request the fields that its items came from, in their order.
        faults: what cannot be read at all, by the names of fields.
    """

    body: dict[str, list[Any]] = field(default_factory=lambda: {part: [] for part in PART_OF.values()})
    places: dict[str, list[str]] = field(default_factory=lambda: {part: [] for part in PART_OF.values()})
    faults: list[Fault] = field(default_factory=list)

    def add(self, name: str, part: str, items: list[Any]) -> None:
        """Take what one field gives."""
        self.body[part] += items
        self.places[part] += [name] * len(items)

    def refuse(self, name: str, detail: str) -> None:
        """Say what is wrong with a field."""
        self.faults.append({"pointer": f"/{name}", "detail": detail})


def read_evidence(fields: Mapping[str, str], servers: int) -> Evidence:
    """All that a form gives.

    Raises: InvalidRequest: a file is not what it is given for, an RID is missing or twice, there is no file.
    """
    found = Evidence()
    rids: set[str] = set()
    for number in range(1, servers + 1):
        rid = fields.get(f"rid.{number}", "").strip()
        if rid and rid in rids:
            found.refuse(f"rid.{number}", f"{rid} is given twice")
        rids.add(rid)
        for kind in FILES:
            text = fields.get(f"{kind}.{number}", "")
            if text.strip():
                _read(found, kind, number, rid, text)
    if not found.faults and not any(found.body.values()):
        found.refuse("changelog.1", "give at least one file")
    if found.faults:
        raise InvalidRequest(f"{len(found.faults)} field(s) are not valid", errors=found.faults)
    return found


def _read(found: Evidence, kind: str, number: int, rid: str, text: str) -> None:
    name = f"{kind}.{number}"
    if kind != "errors" and not (rid.isascii() and rid.isdigit()):
        found.refuse(f"rid.{number}", "the RID of the server whose file this is")
        return
    try:
        if kind == "errors":
            found.add(name, PART_OF[kind], sessions_of(text))
        elif kind == "access":
            found.add(name, PART_OF[kind], [{"server": int(rid), "results": results_of(text)}])
        else:
            found.add(name, PART_OF[kind], [{"server": int(rid)} | changelog_of(text)])
    except ValueError as error:
        found.refuse(name, str(error))


def placed(error: ServiceError, evidence: Evidence) -> ServiceError:
    """The API's refusal with its faults at the fields of the form."""
    error.errors = [
        {"pointer": _field_of(each["pointer"], evidence), "detail": each["detail"]} for each in error.errors
    ]
    return error


def _field_of(pointer: str, evidence: Evidence) -> str:
    """The field that a part of the request came from; a pointer to no such part is left."""
    part, _, rest = pointer.strip("/").partition("/")
    number, _, last = rest.partition("/")
    places = evidence.places.get(part, ())
    if not number.isdigit() or int(number) >= len(places):
        return pointer
    name = places[int(number)]
    return f"/rid.{name.partition('.')[2]}" if last == "server" else f"/{name}"
