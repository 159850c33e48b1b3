"""What replicas show each other of their histories; values, and their JSON.

History      a replica at acquire, either side: its key, its heads, the keys that it knows
BatchProof   beside the records of a batch: of each replica id the value before and behind its records, and
             the next head that the replica itself has signed, with the digests of what lies between
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from spark.formats.csn import Csn
from spark.formats.ruv import parse_rid
from spark.replication.proofs.chain import CHAIN_BYTES

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
TAIL_MAX: Final = 20_000
"""Records between a batch's last one and the next head that their replica has signed."""
PROOF_MAX_BYTES: Final = 4 * 1_048_576
"""What a proof may add to a body."""


@dataclass(frozen=True, slots=True)
class Head:
    """A CSN of a history with its value; `chain` None: from before there was a chain."""

    csn: Csn
    chain: bytes | None = None
    signature: bytes | None = None

    def document(self) -> dict[str, str | None]:
        """As JSON has it."""
        return {"csn": str(self.csn), "chain": _hex(self.chain), "signature": _hex(self.signature)}

    @classmethod
    def of(cls, document: Any, rid: int) -> Self:
        """Read it.

        Raises: ValueError.
        """
        found = _object(document)
        csn = _csn(found.get("csn"), rid)
        chain = _unhex(found.get("chain"), CHAIN_BYTES)
        return cls(csn, chain, _unhex(found.get("signature"), SIGNATURE_BYTES))


@dataclass(frozen=True, slots=True)
class History:
    """What a replica shows of its history.

    Attributes:
        heads: of every replica id in its RUV; of an acquire that copies, at the RUV of the copy.
        keys: those that it knows of other replica ids.
        covers: TOTAL: the supplier's own values at the consumer's heads; what is not here it lacks.
    """

    key: bytes
    heads: Mapping[int, Head] = field(default_factory=dict)
    keys: Mapping[int, bytes] = field(default_factory=dict)
    covers: Mapping[int, Head] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "key": self.key.hex(),
            "heads": _shown(self.heads),
            "keys": {str(rid): key.hex() for rid, key in sorted(self.keys.items())},
            "covers": _shown(self.covers),
        }

    @classmethod
    def of(cls, document: Any) -> Self:
        """Read it.

        Raises: ValueError.
        """
        found = _object(document)
        key = _unhex(found.get("key"), KEY_BYTES)
        if key is None:
            raise ValueError("a history is shown with the key of its replica")
        keys = {
            parse_rid(rid): _unhex(text, KEY_BYTES) for rid, text in _object(found.get("keys", {})).items()
        }
        return cls(
            key,
            heads=_heads(found.get("heads", {})),
            keys={rid: each for rid, each in keys.items() if each is not None},
            covers=_heads(found.get("covers", {})),
        )


@dataclass(frozen=True, slots=True)
class RidProof:
    """What a batch proves of one replica id.

    Attributes:
        before: the value that its first record follows; None: unknown to the supplier.
        last: the value behind its last record.
        signed: the next head at or behind the last record that the replica itself has signed.
        tail: digests of the records between the last one here and that head.
    """

    before: bytes | None = None
    last: bytes | None = None
    signed: Head | None = None
    tail: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchProof:
    """What comes beside the records of a batch; a replica id without an entry is not proved."""

    rids: Mapping[int, RidProof] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As it travels."""
        return json.dumps(
            {
                str(rid): {
                    "before": _hex(each.before),
                    "last": _hex(each.last),
                    "signed": None if each.signed is None else each.signed.document(),
                    "tail": b"".join(each.tail).hex(),
                }
                for rid, each in sorted(self.rids.items())
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Read what travelled.

        Raises: ValueError.
        """
        found: dict[int, RidProof] = {}
        for name, document in _object(json.loads(text)).items():
            rid, fields = parse_rid(name), _object(document)
            tail = bytes.fromhex(str(fields.get("tail") or ""))
            if len(tail) % CHAIN_BYTES or len(tail) > TAIL_MAX * CHAIN_BYTES:
                raise ValueError("a tail is so many digests")
            signed = fields.get("signed")
            found[rid] = RidProof(
                _unhex(fields.get("before"), CHAIN_BYTES),
                _unhex(fields.get("last"), CHAIN_BYTES),
                None if signed is None else Head.of(signed, rid),
                tuple(tail[at : at + CHAIN_BYTES] for at in range(0, len(tail), CHAIN_BYTES)),
            )
        return cls(found)


def _shown(heads: Mapping[int, Head]) -> dict[str, Any]:
    return {str(rid): head.document() for rid, head in sorted(heads.items())}


def _heads(document: Any) -> dict[int, Head]:
    return {(rid := parse_rid(name)): Head.of(each, rid) for name, each in _object(document).items()}


def _object(document: Any) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise ValueError("a proof is made of objects")
    return document


def _csn(text: Any, rid: int) -> Csn:
    if not isinstance(text, str):
        raise ValueError("a CSN is a text")
    csn = Csn(text)
    if csn.rid != rid:
        raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
    return csn


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _unhex(text: Any, size: int) -> bytes | None:
    if text is None:
        return None
    if not isinstance(text, str) or len(text) != 2 * size:
        raise ValueError(f"a value of a proof has {2 * size} hexadecimal digits")
    return bytes.fromhex(text)
