"""The purge done by hand, row for row as a model says: what the checks of these tests are checked with."""

from __future__ import annotations

from tests.oracles.symmetricds_schema import quoted
from tests.spark.upkeep.recapture.hands import Hand, hand
from tests.spark.upkeep.recapture.model import Model
from tests.spark.upkeep.recapture.shapes import where


def recapture_by_hand(model: Model) -> None:
    """Touch each row that is there, copy each delete of a key that is not, remove what was captured."""
    place = model.ground.place
    copied = set()
    with hand(place) as worker:
        for verdict in model.verdicts:
            own = (verdict.trigger_id, verdict.key)
            if verdict.is_there:
                touch(worker, model, verdict.key)
            elif verdict.code is None and own not in copied:
                copied.add(own)
                copy(worker, model, verdict.data_id)
        for data_id in model.gone():
            worker.run(f"delete from {place.name('data')} where data_id = {data_id}")
        kept = {(row["data_id"], row["batch_id"]) for row in model.before["data_event"]}
        for key in worker.run(f"select data_id, batch_id from {place.name('data_event')}"):
            if key not in kept:
                worker.run(
                    f"delete from {place.name('data_event')} where data_id = {key[0]} and batch_id = {key[1]}"
                )


def touch(worker: Hand, model: Model, key: tuple[str, tuple[object, ...]] | None) -> None:
    """An update that changes nothing."""
    assert key is not None
    shape = model.ground.shape(key[0])
    row = model.users[key[0]][key[1]]
    first = quoted(shape.key[0], worker.dialect)
    condition = where(shape, tuple(row[name] for name in shape.key), worker.dialect)
    worker.run(f"update {shape.place(worker.dialect)} set {first} = {first} where {condition}")


def copy(worker: Hand, model: Model, data_id: int) -> None:
    """A captured row once more, of now."""
    names = [name for name in model.before["data"][0] if name not in ("data_id", "create_time")]
    now = "strftime('%Y-%m-%d %H:%M:%f','now')" if worker.dialect == "sqlite" else "current_timestamp"
    data, listed = model.ground.place.name("data"), ", ".join(names)
    worker.run(
        f"insert into {data} ({listed}, create_time) select {listed}, {now} from {data}"
        f" where data_id = {data_id}"
    )
