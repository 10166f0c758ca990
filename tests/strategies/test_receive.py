"""Waiting for replies, against a grid whose nodes answer when the test says so."""

import weakref
from itertools import pairwise

import pytest
from flwr.app import Error, Message, RecordDict

from fedivon_app.strategies import receive as module
from fedivon_app.strategies.receive import gather


class Clock:
    """Time that passes only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Grid:
    """Nodes by the second in which they answer, None for never.

    Those in `failing` answer with an error.
    """

    def __init__(
        self, clock: Clock, answers: dict[int, float | None], failing: set[int] = frozenset()
    ):
        self.clock = clock
        self.answers = answers
        self.failing = failing
        self.sent = {}

    def push_messages(self, messages):
        for message in messages:
            message.metadata._message_id = f"message-{message.metadata.dst_node_id}"
            self.sent[message.metadata.message_id] = message
        return list(self.sent)

    def pull_messages(self, message_ids):
        for name in sorted(message_ids):
            message = self.sent[name]
            node = message.metadata.dst_node_id
            if self.answers[node] is not None and self.answers[node] <= self.clock.now:
                content = Error(2, "no") if node in self.failing else RecordDict()
                yield Message(content, reply_to=message)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def ask(clock, answers, failing=frozenset(), **waiting):
    """Who answered, and in which second the waiting was over: looks are less than one apart."""
    messages = [Message(RecordDict(), node, "train") for node in answers]
    replies = gather(Grid(clock, answers, failing), messages, **waiting)
    return sorted(reply.metadata.src_node_id for reply in replies), int(clock.now)


def test_all_replies_end_the_round_at_once(clock):
    assert ask(clock, {5: 1, 6: 3, 7: 2}, timeout=100, quorum=2, grace=50) == ([5, 6, 7], 3)


def test_a_quorum_waits_its_grace_and_no_longer(clock):
    assert ask(clock, {5: 1, 6: 3, 7: 8, 8: None}, timeout=100, quorum=2, grace=6) == ([5, 6, 7], 9)


def test_the_grace_never_outlasts_the_round(clock):
    assert ask(clock, {5: 1, 6: None}, timeout=4, quorum=1, grace=60) == ([5], 4)


def test_without_a_quorum_the_round_has_all_its_time(clock):
    assert ask(clock, {5: 1, 6: None, 7: None}, timeout=20, quorum=2, grace=1) == ([5], 20)


def test_errors_are_replies_that_do_not_count(clock):
    found = ask(clock, {5: 1, 6: 1, 7: 9, 8: None}, {5, 6}, timeout=100, quorum=1, grace=0)
    assert found == ([5, 6, 7], 9)


def test_no_quorum_waits_for_all_as_long_as_the_round_lasts(clock):
    assert ask(clock, {5: 1, 6: 6}, timeout=7) == ([5, 6], 6)
    clock.now = 0.0
    assert ask(clock, {5: 1, 6: None}, timeout=7) == ([5], 7)


def test_replies_are_given_as_they_come_and_not_held(clock):
    grid = Grid(clock, {5: 0, 6: 2})
    replies = gather(
        grid, [Message(RecordDict(), node, "train") for node in grid.answers], timeout=10
    )
    first = next(replies)
    assert first.metadata.src_node_id == 5 and clock.now == 0
    gone = weakref.ref(first)
    del first
    assert next(replies).metadata.src_node_id == 6 and gone() is None


def test_looks_become_rarer_while_nothing_comes_and_frequent_again_when_it_does(clock):
    looks = []

    class Watched(Grid):
        def pull_messages(self, message_ids):
            looks.append(self.clock.now)
            return super().pull_messages(message_ids)

    grid = Watched(clock, {5: 3, 6: 4})
    list(gather(grid, [Message(RecordDict(), node, "train") for node in grid.answers], timeout=10))
    pauses = [after - before for before, after in pairwise(looks)]
    arrival = next(n for n, look in enumerate(looks) if look >= 3)
    assert [pauses[0], pauses[arrival]] == pytest.approx([module.SHORTEST] * 2)
    assert max(pauses) == pytest.approx(module.LONGEST)
    rounded = [round(pause, 6) for pause in pauses[:arrival]]
    assert rounded == sorted(rounded)


def test_a_grid_that_knows_when_replies_come_is_not_slept_for(clock, monkeypatch):
    class Knowing(Grid):
        def rest(self, seconds):
            clock.now = min(when for when in self.answers.values() if when > clock.now)

    monkeypatch.setattr(clock, "sleep", pytest.fail)
    answers = {5: 1.0, 6: 3.25, 7: 2.5}
    messages = [Message(RecordDict(), node, "train") for node in answers]
    replies = list(gather(Knowing(clock, answers), messages, timeout=100))
    assert [reply.metadata.src_node_id for reply in replies] == [5, 7, 6]
    assert clock.now == 3.25
