"""One simulated federation for all end-to-end tests."""

import os
from pathlib import Path

import pytest

from fedivon_app.federation.local_federation import Federation

HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def environment():
    """Let Flower's processes find the networks of this folder, and the example package.

    They use one thread each: the last digit of a sum depends on the number of threads.
    """
    with pytest.MonkeyPatch.context() as patch:
        for place in (HERE, HERE.parents[1] / "examples" / "own-method"):
            patch.setenv("PYTHONPATH", str(place), os.pathsep)
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="session")
def federation(environment):
    with Federation() as started:
        yield started
