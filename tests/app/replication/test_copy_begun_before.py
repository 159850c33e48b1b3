"""A copy that was begun before, where the consumer is no half copy any more: it is not measured by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.replication.peer.answers import PeerRefused
from app.replication.supplier import lease
from app.replication.supplier.ground import Ground
from app.replication.supplier.lease import Lease, acquire
from app.replication.supplier.resuming import beginning
from spark.formats.csn import Csn
from spark.replication.records import SessionMode, Snapshot

THEN, NOW = Csn.of(1_800_000_000, 0, 1), Csn.of(1_800_000_900, 0, 1)


def _seen(csn: Csn, purged: Csn | None = None) -> Snapshot:
    replica = SimpleNamespace(generation=str(THEN), incarnation="inc_1", rid=1)
    vectors = SimpleNamespace(ruv={1: csn}, purged={} if purged is None else {1: purged})
    return cast(Snapshot, SimpleNamespace(replica=replica, vectors=vectors))


class _Record:
    """What a session keeps."""

    def __init__(self, total: dict[str, Any]) -> None:
        self.total = total

    def set_total(self, total: dict[str, Any]) -> None:
        self.total = total

    def save(self) -> None:
        """Nothing outlives the test."""


def _ground() -> Ground:
    begun = beginning(_seen(THEN)) | {"is_begun": True, "continues": ["rps_1"]}
    params = SimpleNamespace(mode=SessionMode.TOTAL)
    return cast(Ground, SimpleNamespace(params=params, record=_Record(begun), conn=None, part=None))


class _Consumer:
    """Answers acquires; keeps the RUV by which each one introduced its supplier."""

    def __init__(self, *codes: str | None) -> None:
        self.codes = list(codes)
        self.introduced: list[str] = []

    def __call__(self, ground: Ground, _seen: Snapshot) -> Lease:
        assert ground.record.total is not None
        self.introduced.append(ground.record.total["ruv"]["1"])
        code = self.codes.pop(0)
        if code is not None:
            raise PeerRefused(409, code, "ahead", retry_after_s=None, facts={})
        blank = SimpleNamespace(resume_after=None, is_copied=False)
        return cast(Lease, SimpleNamespace(acquired=blank))


@pytest.mark.parametrize("code", ["CONSUMER_AHEAD", "DIVERGED", "DISCARD_NOT_GRANTED"])
def test_one_that_another_supplier_brought_level_is_judged_by_what_is_here_now(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    consumer = _Consumer(code, None)
    monkeypatch.setattr(lease, "_acquired", consumer)
    acquire(_ground(), _seen(NOW))
    assert consumer.introduced == [THEN, NOW]


def test_one_that_is_ahead_of_what_is_here_now_is_refused_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _Consumer("CONSUMER_AHEAD", "CONSUMER_AHEAD")
    monkeypatch.setattr(lease, "_acquired", consumer)
    ground = _ground()
    with pytest.raises(PeerRefused):
        acquire(ground, _seen(NOW))
    assert consumer.introduced == [THEN, NOW]
    consumer.codes = ["CONSUMER_AHEAD"]
    with pytest.raises(PeerRefused):  # it has been measured by what is here now
        acquire(ground, _seen(NOW))


def test_one_that_is_blank_again_gets_no_copy_of_which_changes_were_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = _Consumer(None, None)
    monkeypatch.setattr(lease, "_acquired", consumer)
    acquire(_ground(), _seen(NOW, purged=Csn.of(1_800_000_500, 0, 1)))
    assert consumer.introduced == [THEN, NOW]
