"""How figures look: what tells series apart, and matplotlib's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

if TYPE_CHECKING:
    from matplotlib.typing import LegendLocType, LineStyleType, RcKeyType

# Series are told apart by colour, and by dash where there are more than colours. In either mode two
# colours differ by at least 16 in CIELAB for normal, protan, deutan and tritan vision (Machado et
# al. 2009), and all have a contrast of at least 3 against the page.
COLOURS = ("#2c4fc4", "#cf6f06", "#00594a", "#a878b8", "#6b3a0c", "#1b93e3")
COLOURS_DARK = ("#6f9bee", "#ea7438", "#5fe0a0", "#cb86a0", "#f0d24a", "#d3e2ff")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.4, 1.6), (6, 2, 1.4, 2))
MARKERS = ("o", "s", "^", "D")
MARKER_SIZE = 3.2
INK = "#1d2126"
MUTED = "#5a636e"
RULE = "#dfe3e8"
# The colours as the page names them: a picture drawn once follows the page's mode.
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {
    colour: f"--series-{number}" for number, colour in enumerate(COLOURS)
}
STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "lines.markersize": MARKER_SIZE,
    "axes.formatter.useoffset": False,
}

# Of a file that is no part of a page: letters as outlines in SVG, and as TrueType in PDF, for many
# publishers refuse Type 3.
ALONE: dict[RcKeyType, Any] = {"svg.fonttype": "path", "pdf.fonttype": 42}

P = ParamSpec("P")


@dataclass(frozen=True)
class Key:
    """What a legend says of a series: its name, and the number of its style."""

    label: str
    style: int


@dataclass(frozen=True)
class Look:
    """How a series is drawn: the number of its colour, its dash and its marker."""

    colour: int
    dash: tuple[float, ...]
    marker: str

    @property
    def hex(self) -> str:
        """Return the colour as a figure has it, which is that of a light page."""
        return COLOURS[self.colour]

    @property
    def linestyle(self) -> LineStyleType:
        """Return the dash in matplotlib's words."""
        return (0, self.dash) if self.dash else "solid"


def look(style: int) -> Look:
    """Return the look of the series with this number; no two of the first 24 look the same."""
    row = style // len(COLOURS) % len(DASHES)
    return Look(style % len(COLOURS), DASHES[row], MARKERS[row])


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorate a function that draws a figure, so that it draws in the project's style."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def handle(style: int) -> Line2D:
    """Return the piece of line that stands before the name of a series in a legend."""
    shape = look(style)
    return Line2D(
        [],
        [],
        color=shape.hex,
        linestyle=shape.linestyle,
        solid_capstyle="butt",
        marker=shape.marker,
        markersize=MARKER_SIZE,
    )


def add_legend(
    figure: Figure,
    keys: Sequence[Key],
    loc: LegendLocType,
    *,
    ncols: int = 1,
    anchor: tuple[float, float] | None = None,
) -> None:
    """Add a legend of these series to a figure; names are shown as they are, not as mathematics."""
    # matplotlib hides a name that begins with an underscore
    labels = [f" {key.label}" if key.label.startswith("_") else key.label for key in keys]
    legend = figure.legend(
        [handle(key.style) for key in keys],
        labels,
        loc=loc,
        ncols=ncols,
        bbox_to_anchor=anchor,
        frameon=False,
        fontsize=0.9 * matplotlib.rcParams["font.size"],
        handlelength=3.2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
