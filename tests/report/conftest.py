"""Fixtures of the pages' tests."""

import pytest

from fedivon_app.report import figure_files
from tests.report.browser import Browser


@pytest.fixture
def pngs():
    """For a test that looks at the PNGs, which take as long as the rest of a page."""


@pytest.fixture
def quick(request, monkeypatch):
    """Pages without their PNGs, unless the test asks for them."""
    if "pngs" not in request.fixturenames:
        monkeypatch.setattr(figure_files, "png", lambda figure, path, legend=(): None)


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One Chromium for all pages."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
