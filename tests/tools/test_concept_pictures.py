"""The pictures of docs/concepts.md can be drawn, and all of them are there and shown."""

import runpy
from pathlib import Path

import pytest

from tests.documents import ROOT, links, read

TOOLS = ROOT / "tools"
TRAINED = ("posterior", "ess", "models", "uncertainty")


@pytest.fixture(scope="module")
def tool():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        yield runpy.run_path(str(TOOLS / "concept_pictures.py"))


def test_every_picture_is_drawn(tool):
    for name, draw in tool["PICTURES"].items():
        figure = draw(steps=3) if name in TRAINED else draw()
        assert all(axes.lines for axes in figure.axes), name


def test_every_picture_is_on_the_page(tool):
    shown = [
        Path(link).stem for link in links(read(ROOT / "docs" / "concepts.md")) if ".svg" in link
    ]
    assert sorted(shown) == sorted(tool["PICTURES"])


def test_a_steeper_loss_has_a_narrower_posterior(tool):
    right = tool["posterior"](steps=1500).axes[1]
    first, second = (float(text.get_text().split()[1]) for text in right.get_legend().get_texts())
    assert 0 < first < second / 2
