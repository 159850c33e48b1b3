"""From the body of `:decide` to the core's own values; every fault is found, each with its pointer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.errors import InvalidRequest
from app.replication.decide.models import ConsumerBody, DecideRequest, PreviousBody, SupplierBody
from spark.formats.csn import SHOWN_MAX_CHARS, Csn, CsnInvalid
from spark.formats.ruv import ELEMENTS_MAX, Ruv, RuvInvalid, parse_purge_vector, parse_rid, parse_ruv
from spark.replication.supplier.decide import Consumer, Previous, Supplier

FAULTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Question:
    """What the core is asked."""

    supplier: Supplier
    consumer: Consumer
    previous: Previous | None


@dataclass(frozen=True, slots=True)
class _Vector:
    """One vector of the body; lines have minima and a generation too."""

    maxima: dict[int, Csn] = field(default_factory=dict)
    minima: dict[int, Csn] = field(default_factory=dict)
    generation: str | None = None
    in_lines: bool = False


def read_question(body: DecideRequest) -> Question:
    """Read all vectors of the body.

    Raises: InvalidRequest: a vector, a CSN or a generation that cannot be.
    """
    reader = _Reader()
    supplier = reader.supplier(body.supplier)
    consumer = reader.consumer(body.consumer)
    previous = None if body.previous is None else reader.previous(body.previous)
    if reader.faults:
        raise InvalidRequest(
            f"{len(reader.faults)} field(s) are not valid", errors=reader.faults[:FAULTS_MAX]
        )
    return Question(supplier, consumer, previous)


class _Reader:
    """Collects faults; what could not be read is left empty."""

    def __init__(self) -> None:
        self.faults: list[dict[str, str]] = []

    def supplier(self, body: SupplierBody) -> Supplier:
        ruv = self._vector(body.ruv, "/supplier/ruv")
        least = None if body.min is None else self._vector(body.min, "/supplier/min")
        purged = _Vector()
        if body.purged is not None:
            purged = self._vector(body.purged, "/supplier/purged", parse=parse_purge_vector)
        minima = ruv.minima
        if least is not None:
            minima = least.minima if least.in_lines else least.maxima
        for rid in sorted(minima.keys() & ruv.maxima.keys()):
            if minima[rid] > ruv.maxima[rid]:
                self._fault(f"/supplier/min/{rid}", f"{minima[rid]} is above {ruv.maxima[rid]} of ruv")
        lines = [vector for vector in (ruv, least, purged) if vector is not None]
        generation = self._generation(body.generation, lines, "/supplier/generation")
        return Supplier(ruv.maxima, minima, purged.maxima, generation)

    def consumer(self, body: ConsumerBody) -> Consumer:
        if body.ruv is None:
            return Consumer(None, body.generation)
        ruv = self._vector(body.ruv, "/consumer/ruv")
        return Consumer(ruv.maxima, self._generation(body.generation, [ruv], "/consumer/generation"))

    def previous(self, body: PreviousBody) -> Previous | None:
        ruv = self._vector(body.ruv, "/previous/ruv")
        buffer = self._csn(body.csn_buffer, "/previous/csn_buffer")
        return None if buffer is None else Previous(ruv.maxima, buffer)

    def _fault(self, pointer: str, detail: str) -> None:
        self.faults.append({"pointer": pointer, "detail": detail})

    def _vector(
        self, value: Any, pointer: str, *, parse: Callable[[Sequence[str]], Ruv] = parse_ruv
    ) -> _Vector:
        if isinstance(value, dict):
            return _Vector(self._from_map(value, pointer))
        if not isinstance(value, list):
            self._fault(pointer, "neither an object of CSNs by RID nor a list of lines")
            return _Vector()
        wrong = [number for number, line in enumerate(value) if not isinstance(line, str)]
        if wrong:
            self._fault(f"{pointer}/{wrong[0]}", "a line is a text")
            return _Vector()
        try:
            ruv = parse(value)
        except RuvInvalid as error:
            place = f"at character {error.position}: " if error.position else ""
            self._fault(f"{pointer}/{error.line}", place + error.detail)
            return _Vector()
        return _Vector(ruv.maxima, ruv.minima, ruv.generation, in_lines=True)

    def _from_map(self, value: dict[str, Any], pointer: str) -> dict[int, Csn]:
        if len(value) > ELEMENTS_MAX:
            self._fault(pointer, f"{len(value)} replicas where at most {ELEMENTS_MAX} can be")
            return {}
        found: dict[int, Csn] = {}
        for key, text in value.items():
            place = f"{pointer}/{key[:SHOWN_MAX_CHARS].replace('~', '~0').replace('/', '~1')}"
            try:
                rid = parse_rid(key)
            except ValueError as error:
                self._fault(place, str(error))
                continue
            csn = self._csn(text, place)
            if csn is not None and csn.rid != rid:
                self._fault(place, f"{csn} is a change of replica {csn.rid}, not of {rid}")
            elif csn is not None:
                found[rid] = csn
        return found

    def _csn(self, text: Any, pointer: str) -> Csn | None:
        if not isinstance(text, str):
            self._fault(pointer, "a CSN is a text of 20 hexadecimal digits")
            return None
        try:
            return Csn(text)
        except CsnInvalid as error:
            self._fault(pointer, error.detail)
            return None

    def _generation(self, given: str | None, vectors: list[_Vector], pointer: str) -> str | None:
        """The generation of one side, which all that names it must agree on."""
        known = {text for text in (given, *(vector.generation for vector in vectors)) if text is not None}
        if len(known) > 1:
            self._fault(pointer, f"one side has one generation, and {len(known)} are named")
        return min(known, default=None)
