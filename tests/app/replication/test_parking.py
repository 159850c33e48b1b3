"""A token's share of the places for batches: 40 bodies of one token stopped every session of the process."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from app.replication.consumer.dead_letters.parking import ParkingLot
from app.replication.consumer.errors import TooManyBatches


def test_batches_of_one_token_leave_room_for_those_of_others() -> None:
    lot = ParkingLot(in_flight=4, batches_max=32, per_token_max=8, wait_max_s=5)
    with ExitStack() as held:
        places = 0
        for number in range(40):
            try:
                held.enter_context(
                    lot.place((f"shop-{number}", "session"), token="greedy", epoch=1, batch_seq=1)
                )
            except TooManyBatches:
                continue
            places += 1
        assert places == 8
        held.enter_context(lot.place(("other", "session"), token="honest", epoch=1, batch_seq=1))
        with pytest.raises(TooManyBatches):
            held.enter_context(lot.place(("one-more", "session"), token="greedy", epoch=1, batch_seq=1))
    with lot.place(("again", "session"), token="greedy", epoch=1, batch_seq=1):
        pass
