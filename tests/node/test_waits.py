"""How long an idle node waits."""

import time

import pytest

from fedivon_app.node import waits
from fedivon_app.node.waits import Clock, idle_wait


@pytest.mark.parametrize(
    ("since", "wait"), [(0, 0.05), (0.1, 0.05), (1, 0.2), (10, 2.0), (15, 3.0), (3600, 3.0)]
)
def test_a_wait_is_a_fifth_of_the_time_since_the_last_message_within_bounds(since, wait):
    assert idle_wait(since) == pytest.approx(wait)


def test_the_clock_sleeps_as_an_idle_node_should_and_is_useful_before(monkeypatch):
    slept: list[float] = []
    now = [100.0]
    monkeypatch.setattr(waits.time, "sleep", slept.append)
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    done: list[float] = []
    clock = Clock(meanwhile=lambda: done.append(now[0]))
    for now[0] in (100.0, 105.0, 200.0):
        clock.sleep(3)
    clock.sleep(0.01)  # no longer than it was asked to
    clock.restart()
    clock.sleep(3)
    assert slept == pytest.approx([0.05, 1.0, 3.0, 0.01, 0.05])
    assert done == [100.0, 105.0, 200.0, 200.0, 200.0]


def test_in_all_else_the_clock_is_the_module_time():
    assert Clock(meanwhile=lambda: None).gmtime is time.gmtime
