"""The inline engine's imports begin with the command, where the command will want them."""

import pytest

from fedivon_app.cli import early


@pytest.mark.parametrize(
    ("line", "begun"),
    [
        ("run demo --engine inline", True),
        ("run demo --engine=inline --seed 1", True),
        ("sweep demo --grid seed=0,1", True),
        ("reproduce fedivon-table1", True),
        ("run demo", False),
        ("run inline", False),
        ("sweep demo --engine flower", False),
        ("sweep demo --plan", False),
        ("reproduce --list", False),
        ("run demo --engine inline --help", False),
        ("sweep demo --superlink here:1", False),
        ("", False),
    ],
)
def test_only_commands_that_simulate_inline_start_its_imports(line, begun, monkeypatch):
    started = []
    monkeypatch.delenv("FEDIVON_SUPERLINK", raising=False)
    monkeypatch.setattr(early, "start_early", lambda: started.append(line))
    early.begin(line.split())
    assert bool(started) is begun
