"""A federation whose runs are made in this process: the real server and clients, without Ray."""

from contextlib import contextmanager

import torch

from fedivon_app import server_app
from fedivon_app.core.errors import RunError
from fedivon_app.federation.run_maker import RunEnd
from fedivon_app.federation.run_queue import Where
from fedivon_app.runs.status import RunStatus
from tests.golden import InProcess, context_of


class OneProcess:
    """What commands take for a federation; `stop_at` is the run at which the person interrupts."""

    def __init__(self):
        self.configs = []
        self.stop_at = None

    def run(self, config, nodes, cpus, show):
        self.configs.append(dict(config))
        if len(self.configs) == self.stop_at:
            raise KeyboardInterrupt
        try:
            server_app.main(InProcess(nodes), context_of(config))
        except RunError as error:
            return RunEnd(RunStatus.FAILED, str(error))
        show("round 9/9  train loss 1  mean: acc 12.34 nll 1.2345 ece 0.1  0.1 s")
        return RunEnd(RunStatus.COMPLETED)


def in_one_process(monkeypatch, *, reports=False):
    """Let all commands of a test use such a federation, and return it."""
    if not reports:
        monkeypatch.setattr(server_app, "write_report", lambda run: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    one = OneProcess()

    @contextmanager
    def pretended(where):
        yield one

    monkeypatch.setattr(Where, "federation", pretended)
    return one
