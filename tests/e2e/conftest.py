"""One simulated federation for all end-to-end tests."""

import pytest

from fedivon_app.launch import Federation


@pytest.fixture(scope="session")
def federation():
    with Federation() as started:
        yield started
