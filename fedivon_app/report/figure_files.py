"""Figures as files: in a page as SVG, in light and dark, beside it as PNG, alone by the suffix."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import written_aside
from fedivon_app.report.style import ALONE, STYLE, VARIABLES, Key, add_legend

FORMATS = ("png", "svg", "pdf")
DOTS_PER_INCH = 160  # of a picture that stands alone


def format_of(path: Path) -> str:
    """Return the format that a figure's file has by its suffix; others are a SettingsError."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS[:-1])
        raise SettingsError(
            f"{path}: a figure's file ends in {known} or .{FORMATS[-1]}, not in {path.suffix!r}"
        )
    return form


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format that the file's suffix names, and return its path.

    Its fonts are in the file, so that it looks the same wherever it is printed.
    """
    form = format_of(path)
    with matplotlib.rc_context({**STYLE, **ALONE}), written_aside(path) as aside:
        figure.savefig(aside, format=form, dpi=DOTS_PER_INCH, facecolor="white")
    return path


def svg(figure: Figure, name: str, title: str) -> str:
    """Return the figure as an <svg> element in the page's colours and font, with ids of its own."""
    text = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True)
    head, _, inside = text.getvalue().partition("<svg")[2].partition(">")
    box = re.findall(r'viewBox="([^"]+)"', head)[0]
    inside = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", inside, flags=re.DOTALL)
    inside = inside.replace("xlink:href", "href").replace("<defs/>", "")
    inside = _own_ids(inside, name)
    inside = re.sub(r'\bd="[^"]+"', _rounded, inside)
    inside = re.sub(r" ?font-family: [^;\"]+;", "", inside)
    inside = re.sub(r"font: ([^;\"]*?)([\d.]+)px [^;\"]+", r"font-size: \2px", inside)
    for colour, variable in VARIABLES.items():
        inside = inside.replace(colour, f"var({variable})")
    words = escape(title)
    head = f'<svg viewBox="{box}" role="img" aria-label="{words}">'
    return f"{head}<title>{words}</title>{inside}".rstrip()


def _own_ids(inside: str, name: str) -> str:
    """Mark series by class, put the figure's name before the ids in use, and drop the others."""
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', inside))
    inside = re.sub(r' id="series(\d+)[^"]*"', r' class="series" data-series="\1"', inside)
    inside = re.sub(
        r' id="([^"]+)"',
        lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "",
        inside,
    )
    return re.sub(r'(url\(#|href="#)', rf"\1{name}-", inside)


def _rounded(path: re.Match[str]) -> str:
    """Cut the coordinates of a path to two digits."""
    return re.sub(r"(\.\d\d)\d+", r"\1", path[0]).replace(" \n", " ")


def png(figure: Figure, path: Path, legend: Sequence[Key] = ()) -> None:
    """Write the figure on white, with its legend outside where it has more than one series."""
    with matplotlib.rc_context(STYLE), written_aside(path) as aside:
        if len(legend) > 1:
            _make_room(figure, legend)
        figure.savefig(aside, format="png", dpi=130, facecolor="white")


def _make_room(figure: Figure, legend: Sequence[Key]) -> None:
    """Widen the figure for its legend; the panel stays as it is, in the upper left corner."""
    (axes,) = figure.axes
    (width, height) = figure.get_size_inches()
    wide = width + 0.7 + 0.08 * max(len(key.label) for key in legend)
    high = max(height, 0.2 * len(legend) + 0.4)
    box = axes.get_position()
    figure.set_size_inches(wide, high)
    across = width / wide
    up = height / high
    axes.set_position((box.x0 * across, 1 - (1 - box.y0) * up, box.width * across, box.height * up))
    add_legend(figure, legend, "upper left", anchor=(across, 1))


@dataclass(frozen=True)
class Pictures:
    """The figures of a page: each goes as PNG into a folder, and as SVG into the page.

    A page that is not kept has no folder.
    """

    folder: Path | None = None

    def __call__(self, name: str, figure: Figure, title: str, legend: Sequence[Key] = ()) -> str:
        """Write the figure into the folder, under its name, and return it as an <svg> element."""
        picture = svg(figure, name, title)
        if self.folder is not None:
            png(figure, self.folder / f"{name}.png", legend)
        return picture
