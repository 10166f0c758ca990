"""The ledger: costs add up over runs and restarts, whatever happens to the process."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from fedivon_app.core.accountant import epsilon_of, pure_cost, step_cost
from fedivon_app.core.errors import Refused, RunError
from fedivon_app.core.ledger import Ledger, Limit, Steps, digest_of


def steps(run="run-1", number=1):
    return Steps(
        run=run, round=number, method="fedavg", noise=2.0, rate=0.1, steps=10, clip_norm=1.0
    )


def pay(account, **words):
    return account.charge(steps(**words), epsilon=10, delta=1e-5)


def test_costs_add_up_over_runs_and_restarts(tmp_path):
    for k in range(3):  # a ledger that is opened anew has what the last one had
        pay(Ledger(tmp_path).account("data"), run=f"run-{k}")
    account = Ledger(tmp_path).account("data")
    assert account.spent() == epsilon_of(30 * step_cost(2.0, 0.1), 1e-5)
    assert account.spent(run="run-1") == epsilon_of(10 * step_cost(2.0, 0.1), 1e-5)
    assert Ledger(tmp_path).account("other data").spent() == 0
    assert list(Ledger(tmp_path).accounts()) == ["data"]


def test_a_site_declines_by_name_when_its_limit_is_reached(tmp_path):
    account = Ledger(tmp_path, Limit(2.0)).account("data")
    with pytest.raises(Refused, match=r"spent: 1\.\d+ of epsilon 2 at delta 1e-05.*ledger"):
        for k in range(100):
            pay(account, number=k)
    assert 1.5 < account.spent() <= 2
    before = account.path.read_bytes()
    with pytest.raises(Refused, match="spent"):
        pay(account, run="another run")
    assert account.path.read_bytes() == before


def test_a_run_does_not_spend_more_than_its_epsilon(tmp_path):
    account = Ledger(tmp_path).account("data")
    with pytest.raises(Refused, match=r"beyond the privacy.epsilon of the run.* of 1:"):
        for k in range(100):
            account.charge(steps(number=k), epsilon=1, delta=1e-5)
    account.charge(steps(run="the next run"), epsilon=1, delta=1e-5)


def test_the_noisy_size_is_drawn_and_paid_for_once(tmp_path):
    sizes = {Ledger(tmp_path).account("data").size(3000, 0.1, f"run-{k}") for k in range(5)}
    assert len(sizes) == 1
    assert abs(sizes.pop() - 3000) < 300
    account = Ledger(tmp_path).account("data")
    assert account.spent() == epsilon_of(pure_cost(0.1), 1e-5)
    after = account.charge(steps(run="run-9"), epsilon=10, delta=1e-5)
    assert after == epsilon_of(pure_cost(0.1) + 10 * step_cost(2.0, 0.1), 1e-5)


def test_a_line_that_was_cut_off_was_never_released(tmp_path):
    account = Ledger(tmp_path).account("data")
    pay(account)
    whole = account.path.read_bytes()
    account.path.write_bytes(whole + whole[:-9])
    assert account.spent() == epsilon_of(10 * step_cost(2.0, 0.1), 1e-5)
    pay(account, number=2)
    assert len(account.releases()) == 2
    assert all(json.loads(line) for line in account.path.read_text().splitlines())


@pytest.mark.parametrize("line", ["{}", "not json", '{"kind": "steps", "noise": 1}', "[]"])
def test_a_damaged_ledger_is_not_taken_for_an_empty_one(tmp_path, line):
    account = Ledger(tmp_path).account("data")
    pay(account)
    account.path.write_text(f"{line}\n{account.path.read_text()}")
    with pytest.raises(RunError, match="damaged in line 1"):
        pay(account)


FOREVER = """
import sys
from pathlib import Path
from fedivon_app.core.ledger import Ledger
from tests.core.test_ledger import steps
account = Ledger(Path(sys.argv[1])).account("data")
for k in range(10**6):
    account.charge(steps(number=k), epsilon=1e9, delta=1e-5)
    print(k, flush=True)  # the release, which leaves after it was paid for
"""


def test_what_left_was_paid_for_even_if_the_process_is_killed(tmp_path):
    worker = subprocess.Popen(
        [sys.executable, "-c", FOREVER, str(tmp_path)], stdout=subprocess.PIPE, cwd=os.getcwd()
    )
    assert worker.stdout is not None
    left = [int(worker.stdout.readline()) for _ in range(20)]
    os.kill(worker.pid, signal.SIGKILL)
    left += [int(line) for line in worker.stdout.read().splitlines()]
    worker.wait()
    paid = [one.round for one in Ledger(tmp_path).account("data").releases()]
    assert set(left) <= set(paid)
    assert len(paid) - len(left) <= 1
    pay(Ledger(tmp_path).account("data"), number=-1)


def test_data_are_known_by_their_values():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = np.array([0, 1, 2])
    assert digest_of(x, y) == digest_of(x.copy(order="F"), y.copy())
    assert digest_of(x, y) != digest_of(x, y[::-1])
    assert digest_of(x, y) != digest_of(x.reshape(4, 3), y)
    assert digest_of(x[:0], y[:0]) != digest_of(x, y)
