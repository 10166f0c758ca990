"""What a server leaves behind in its process must not reach the next test."""

import logging

import pytest

from fedivon_app.strategies import roll_call


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """One thread, no pause before hand-made nodes are asked, and the log as it was before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(roll_call, "PAUSE", 0.01)
    log = logging.getLogger("fedivon")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", True)
