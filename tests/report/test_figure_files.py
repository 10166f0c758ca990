"""Figures as files of their own."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedivon_app.core.errors import SettingsError
from fedivon_app.report.figure_files import write_figure


def drawn():
    figure = Figure(figsize=(2, 1))
    figure.subplots().set_title("Words")
    return figure


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("b.svg", b"<?xml"), ("deep/c.PDF", b"%PDF")]
)
def test_the_suffix_is_the_format(name, begins, tmp_path):
    path = write_figure(drawn(), tmp_path / name)
    assert path == tmp_path / name and path.read_bytes().startswith(begins)


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_another_suffix_is_an_error(name):
    with pytest.raises(SettingsError, match=r"ends in \.png, \.svg or \.pdf"):
        write_figure(drawn(), Path(name))


def test_fonts_are_in_the_file(tmp_path):
    pdf = write_figure(drawn(), tmp_path / "a.pdf").read_bytes()
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf
    svg = write_figure(drawn(), tmp_path / "a.svg").read_text()
    assert "<text" not in svg and "font-family" not in svg
    assert len(re.findall("<use ", svg)) > np.char.str_len("Words")
