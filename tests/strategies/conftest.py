"""Hand-made nodes are there at once."""

import pytest

from fedivon_app.strategies import roll_call


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Nobody waits for more of them."""
    monkeypatch.setattr(roll_call, "PAUSE", 0.01)
