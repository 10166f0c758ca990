"""The picture of the README can be drawn."""

import runpy
from pathlib import Path

TOOL = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "front_picture.py"))


def test_it_has_two_clients_and_a_server():
    figure = TOOL["draw"](steps=3)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title.split(" is sure")[0] for title in titles] == [
        "Client A",
        "Client B",
        "The server",
    ]
