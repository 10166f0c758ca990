"""One simulated federation for all end-to-end tests."""

import os
from pathlib import Path

import pytest

from fedivon_app.launch import Federation


@pytest.fixture(scope="session", autouse=True)
def importable():
    """Flower's processes find the networks of this folder (`held`, `faulty`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), os.pathsep)
        yield


@pytest.fixture(scope="session")
def federation(importable):
    with Federation() as started:
        yield started
