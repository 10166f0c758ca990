"""Shared by all tests."""

import pytest
import torch
from flwr.supercore.task_identity import TaskIdentity

torch.set_num_threads(1)  # tiny networks are fastest so
# What Flower sets in its own processes, so that messages can be made in this one too.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """What clients keep on disk goes to a folder of the test's own."""
    monkeypatch.setenv("FEDIVON_STATE", str(tmp_path_factory.mktemp("state")))


def pytest_collection_modifyitems(items):
    """The end-to-end tests, which wait more than they work, come first, so that two processes end
    together.
    """
    items.sort(key=lambda item: item.get_closest_marker("e2e") is None)
