"""Fixtures of the pages' tests."""

import pytest

from fedivon_app.report import plots


@pytest.fixture
def pngs():
    """For a test that looks at the PNGs; the others go without, for they take as long as the rest of a page."""


@pytest.fixture
def quick(request, monkeypatch):
    """Pages without their PNGs, unless the test asks for them."""
    if "pngs" not in request.fixturenames:
        monkeypatch.setattr(plots, "png", lambda figure, path, legend=(): None)
