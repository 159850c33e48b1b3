"""Who has a sender when there are more webhooks than senders."""

from __future__ import annotations

from app.hooks.turns import SENDERS_MAX, Turns


def test_who_was_served_longest_ago_comes_first() -> None:
    turns, due = Turns(), [(f"whk_{number}", 0) for number in range(6)]
    first = turns.give(due)
    assert len(first) == SENDERS_MAX
    assert turns.give(due) == []
    for webhook_id in first:
        turns.end(webhook_id, is_slow=False)
    second = turns.give(due)
    assert second == ["whk_4", "whk_5", *first[:2]]


def test_one_sender_is_kept_for_those_who_are_well() -> None:
    turns = Turns()
    for number in range(3):
        turns.end(f"whk_{number}", is_slow=True)
    sick = [("whk_0", 0), ("whk_1", 0), ("whk_2", 0), ("whk_3", 7), ("whk_4", 1)]
    assert len(turns.give(sick)) == SENDERS_MAX - 1
    assert turns.give([*sick, ("whk_9", 0)]) == ["whk_9"]
    assert turns.give([("whk_8", 0)]) == []
    turns.end("whk_9", is_slow=False)
    assert turns.give(sick) == []  # it stays free for another one
