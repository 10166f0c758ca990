"""Figures: plain numbers in, a matplotlib figure out; each as SVG for a page in light and dark, and as PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from html import escape
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

# Series are told apart by colour, and by dash where there are more than colours. In either mode two colours differ by
# at least 16 in CIELAB for normal, protan, deutan and tritan vision (Machado et al. 2009), and all have a contrast of
# at least 3 against the page.
COLOURS = ("#2c4fc4", "#cf6f06", "#00594a", "#a878b8", "#6b3a0c", "#1b93e3")
COLOURS_DARK = ("#6f9bee", "#ea7438", "#5fe0a0", "#cb86a0", "#f0d24a", "#d3e2ff")
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.4, 1.6), (6, 2, 1.4, 2))
MARKERS = ("o", "s", "^", "D")
INK = "#1d2126"
MUTED = "#5a636e"
RULE = "#dfe3e8"
# The colours as the page names them: a picture drawn once follows the page's mode.
VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {
    c: f"--series-{i}" for i, c in enumerate(COLOURS)
}
STYLE = {
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
    "lines.markersize": 3.2,
    "axes.formatter.useoffset": False,
}
SIZE = (4.4, 3.2)  # of a panel, in inches
LEFT = 0.52
RIGHT = 0.12
BOTTOM = 0.55
TOP = 0.38  # its margins, the same for all so that they align
NAMED = 0.2  # more at the left for the name of the axis
LETTER = 0.075
ROW = 0.16  # a letter's width and a line's height in the name of a tick, in inches


@dataclass(frozen=True, eq=False)
class Line:
    """A line with, where several runs stand behind it, a band of one standard deviation to either side."""

    label: str
    style: int
    x: np.ndarray
    y: np.ndarray
    deviation: np.ndarray | None = None

    @classmethod
    def mean(cls, label: str, style: int, x: np.ndarray, runs: Sequence[Sequence[float]]) -> Line:
        """Mean and sample standard deviation (n - 1) of several runs' values at the same places."""
        values = np.array(runs, float)
        return cls(
            label,
            style,
            x,
            values.mean(axis=0),
            values.std(axis=0, ddof=1) if len(values) > 1 else None,
        )


@dataclass(frozen=True, eq=False)
class Shares:
    """A histogram of one group, as shares of the examples; `outside` of those from another data set."""

    label: str
    style: int
    edges: np.ndarray
    inside: np.ndarray
    outside: np.ndarray | None = None

    @classmethod
    def mean(cls, label: str, style: int, runs: Sequence[Mapping[str, Sequence[float]]]) -> Shares:
        """Mean of histograms with `edges`, `in` and, if all have it, `out`, on the edges that reach furthest."""
        edges = np.array(max((run["edges"] for run in runs), key=lambda edges: edges[-1]), float)

        def shares(part: str) -> np.ndarray:
            sums = [np.interp(edges, run["edges"], np.cumsum([0, *run[part]])) for run in runs]
            return np.diff(np.mean(sums, axis=0))

        outside = shares("out") if all(run.get("out") for run in runs) else None
        return cls(label, style, edges, shares("in"), outside)


def look(style: int) -> tuple[int, tuple[float, ...], str]:
    """Number of the colour, dash and marker of a series."""
    row = style // len(COLOURS) % len(DASHES)
    return style % len(COLOURS), DASHES[row], MARKERS[row]


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    @wraps(draw)
    def drawn(*arguments, **options) -> Figure:
        with matplotlib.rc_context(STYLE):
            return draw(*arguments, **options)

    return drawn


@styled
def curves(
    title: str, x: str, y: str, lines: Sequence[Line], log: bool = False, diagonal: bool = False
) -> Figure:
    """Lines over a common axis; with `diagonal`, the unit square and the line of perfect calibration."""
    figure, axes = _panel(title, x, y)
    if log:
        axes.set_yscale("log")
    if diagonal:
        axes.plot((0, 1), (0, 1), color=MUTED, linewidth=1, dashes=(2, 2))
        axes.set(xlim=(0, 1), ylim=(0, 1))
    for line in lines:
        _draw(axes, line, log)
    if log:
        _plain_log(axes, [value for line in lines for value in line.y if value > 0])
    elif not diagonal:
        axes.yaxis.set_major_locator(_ticks())
    axes.xaxis.set_major_locator(_ticks(integer=x == "round"))
    return figure


@styled
def dots(title: str, y: str, values: Mapping[int, float], level: float, what: str) -> Figure:
    """One dot a client, by its number, and a dashed line at a level that `what` names."""
    figure, axes = _panel(title, "client", y)
    if np.isfinite(level):
        axes.axhline(level, color=MUTED, linewidth=1, dashes=(4, 2))
        axes.set_title(f"dashed: {what}", loc="right", fontsize=9, color=MUTED)
    axes.plot(
        list(values), list(values.values()), linestyle="", marker="o", color=COLOURS[0], alpha=0.75
    )
    axes.xaxis.set_major_locator(_ticks(integer=True))
    axes.yaxis.set_major_locator(_ticks())
    return figure


@styled
def scatter(
    title: str,
    x: str,
    y: str,
    clouds: Sequence[tuple[str, int, Sequence[float], Sequence[float]]],
    diagonal: bool = False,
    log: bool = False,
) -> Figure:
    """A dot for every pair of a group's values; with `diagonal` the line where both are equal, `log` for the x axis."""
    figure, axes = _panel(title, x, y)
    if diagonal:
        values = [value for cloud in clouds for axis in cloud[2:] for value in axis]
        ends = min(values), max(values)
        axes.plot(ends, ends, color=MUTED, linewidth=1, dashes=(4, 2))
        axes.set_title("dashed: equal", loc="right", fontsize=9, color=MUTED)
    for _, style, across, up in clouds:
        options = {"color": COLOURS[look(style)[0]], "alpha": 0.75, "gid": f"series{style}"}
        axes.plot(across, up, linestyle="", marker=look(style)[2], markersize=4, **options)
    if log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    else:
        axes.xaxis.set_major_locator(_ticks())
    axes.yaxis.set_major_locator(_ticks())
    return figure


@styled
def by_condition(title: str, y: str, conditions: Sequence[str], lines: Sequence[Line]) -> Figure:
    """Lines over named conditions, x being their places: a gap where y is NaN, a bar where there is a deviation."""
    # Names are cut at the commas. Where they are too wide they stand upright, and uncut where there is no room even so.
    slot = max((SIZE[0] - LEFT - NAMED - RIGHT) / len(conditions), ROW)
    heading, shown = _common_keys(conditions)
    names = [[name] if heading else re.split("(?<=,) ", name) for name in shown]
    upright = LETTER * max(len(row) + 1 for rows in names for row in rows) > slot
    if upright and ROW * (max(map(len, names)) + 0.5) > slot:
        names = [[name] for name in shown]
    below = 0.2 + max(
        LETTER * max(map(len, rows)) if upright else ROW * len(rows) for rows in names
    )
    below += 1.2 * ROW if heading else 0
    size = LEFT + NAMED + RIGHT + slot * len(conditions), SIZE[1] - BOTTOM + below
    figure, axes = _panel(title, "", y, size)
    figure.subplots_adjust(bottom=below / size[1])
    across, down, turn = ("right", "center", 90) if upright else ("center", "top", 0)
    text = {
        "ha": across,
        "va": down,
        "rotation": turn,
        "rotation_mode": "anchor",
        "color": MUTED,
        "fontsize": 9,
    }
    text |= {
        "xycoords": ("data", "axes fraction"),
        "textcoords": "offset points",
        "parse_math": False,
    }
    for place, rows in enumerate(names):
        steps = 72 * ROW * np.arange(len(rows))
        for row, step in zip(rows, steps - steps.mean() if upright else steps, strict=True):
            axes.annotate(row, (place, 0), (step, -6) if upright else (0, -6 - step), **text)
    axes.set_xlabel(heading, labelpad=72 * (below - 1.6 * ROW), parse_math=False)
    for order, line in enumerate(lines):  # side by side, so that no bar hides another
        x = line.x + (order - (len(lines) - 1) / 2) * min(0.08, 0.5 / len(lines))
        _draw(axes, replace(line, x=x, deviation=None), False)
        if line.deviation is not None:
            bars = {
                "fmt": "none",
                "ecolor": COLOURS[look(line.style)[0]],
                "elinewidth": 1,
                "capsize": 2,
            }
            for part in axes.errorbar(x, line.y, line.deviation, **bars).get_children():
                part.set_gid(f"series{line.style}")
    axes.set(xticks=range(len(conditions)), xticklabels=[], xlim=(-0.5, len(conditions) - 0.5))
    axes.yaxis.set_major_locator(_ticks())
    return figure


def _common_keys(conditions: Sequence[str]) -> tuple[str, list[str]]:
    """Of conditions that all set the same keys, the keys, and the values of each; else nothing, and what they are."""
    pairs = [[part.partition("=") for part in name.split(", ")] for name in conditions]
    keys = {tuple(key if sign else None for key, sign, _ in one) for one in pairs}
    if len(pairs) < 2 or len(keys) > 1 or None in (only := next(iter(keys))):
        return "", list(conditions)
    return ", ".join(only), [", ".join(value for _, _, value in one) for one in pairs]


@styled
def boxes(title: str, x: str, rows: Sequence[tuple[str, int, Sequence[float]]]) -> Figure:
    """A row a group, its name above it: median, quartiles, whiskers to the ends, no value left out."""
    figure, axes = _rows(title, x, [row[0] for row in rows])
    for place, (_, style, values) in enumerate(rows):
        colour = COLOURS[look(style)[0]]
        low, first, median, third, high = np.percentile(values, (0, 25, 50, 75, 100))
        axes.plot((low, high), (place, place), color=colour, linewidth=1.2, gid=f"series{style}")
        box = {"height": 0.26, "left": first, "color": colour, "alpha": 0.4, "linewidth": 0}
        axes.barh(place, third - first, **box)[0].set_gid(f"series{style}")
        axes.plot(
            (median, median),
            (place - 0.2, place + 0.2),
            color=colour,
            linewidth=2.4,
            gid=f"series{style}",
        )
    return figure


@styled
def ridges(title: str, x: str, rows: Sequence[Shares]) -> Figure:
    """A row a group, its name above it: filled what the model was trained for, dashed what it never saw."""
    figure, axes = _rows(title, x, [row.label for row in rows], 0.52)
    for place, row in enumerate(rows):
        colour = COLOURS[look(row.style)[0]]
        gid = f"series{row.style}"
        parts = [row.inside] if row.outside is None else [row.inside, row.outside]
        heights = [place + 0.3 - 0.52 * part / (np.max(part) or 1.0) for part in parts]
        steps = {"baseline": place + 0.3, "color": colour, "gid": gid}
        axes.stairs(heights[0], row.edges, fill=True, alpha=0.4, linewidth=0, **steps)
        for part in heights[1:]:
            axes.stairs(part, row.edges, linewidth=1.3, linestyle=(0, (3, 1.5)), **steps)
    return figure


@styled
def learning(panels: dict[str, list[Line]], title: str) -> Figure:
    """All scores by round, side by side, with one legend."""
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    for axes, (name, lines) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        axes.set(title=name, xlabel="round")
        for line in lines:
            _draw(axes, line, False)
    labels = [line.label for line in next(iter(panels.values()))]
    handles = [handle(line.style) for line in next(iter(panels.values()))]
    _legend(figure, handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle(title, parse_math=False)
    return figure


def svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an <svg> element for the inside of a page: the page's colours and font, ids of its own."""
    text = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(text, format="svg", transparent=True)
    body = text.getvalue().partition("<svg")[2].partition(">")
    box = re.search(r'viewBox="([^"]+)"', body[0]).group(1)
    inside = re.sub(r"\s*<(metadata|style)\b.*?</\1>", "", body[2], flags=re.DOTALL)
    inside = inside.replace("xlink:href", "href").replace("<defs/>", "")
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', inside))
    inside = re.sub(r' id="series(\d+)[^"]*"', r' class="series" data-series="\1"', inside)
    inside = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", inside
    )
    inside = re.sub(r'(url\(#|href="#)', rf"\1{name}-", inside)
    inside = re.sub(
        r'\bd="[^"]+"', lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]).replace(" \n", " "), inside
    )
    inside = re.sub(r" ?font-family: [^;\"]+;", "", inside)
    inside = re.sub(r"font: ([^;\"]*?)([\d.]+)px [^;\"]+", r"font-size: \2px", inside)
    for colour, variable in VARIABLES.items():
        inside = inside.replace(colour, f"var({variable})")
    title = escape(title)
    return f'<svg viewBox="{box}" role="img" aria-label="{title}"><title>{title}</title>{inside}'.rstrip()


def png(figure: Figure, path: Path, legend: Sequence[tuple[str, int]] = ()) -> None:
    """The figure on white, with its legend outside where it has more than one series."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        if len(legend) > 1:
            labels, styles = zip(*legend, strict=True)
            (axes,) = figure.axes
            (width, height) = figure.get_size_inches()
            wide = width + 0.7 + 0.08 * max(map(len, labels))
            high = max(height, 0.2 * len(legend) + 0.4)
            box = axes.get_position()
            figure.set_size_inches(wide, high)
            across = width / wide
            up = height / high  # the panel stays as it is, in the upper left corner
            axes.set_position(
                (box.x0 * across, 1 - (1 - box.y0) * up, box.width * across, box.height * up)
            )
            place = {"loc": "upper left", "bbox_to_anchor": (across, 1)}
            _legend(figure, [handle(style) for style in styles], labels, **place)
        figure.savefig(path, format="png", dpi=130, facecolor="white")


class Pictures:
    """Takes each figure of a page: as PNG into a folder, and back as SVG for the page."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(
        self, name: str, figure: Figure, title: str, legend: Sequence[tuple[str, int]] = ()
    ) -> str:
        picture = svg(figure, name, title)
        png(figure, self.folder / f"{name}.png", legend)
        return picture


def handle(style: int) -> Line2D:
    colour, dash, marker = look(style)
    return Line2D(
        [], [], color=COLOURS[colour], linestyle=(0, dash or None), marker=marker, markersize=3.2
    )


def _legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str], **options) -> None:
    labels = [
        f" {label}" if label.startswith("_") else label for label in labels
    ]  # matplotlib hides such a name
    drawn = figure.legend(handles, labels, frameon=False, fontsize=9, handlelength=3.2, **options)
    for text in drawn.get_texts():
        text.set_parse_math(False)


def _panel(
    title: str, x: str, y: str, size: tuple[float, float] = SIZE, left: float = LEFT
) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)
    axes = figure.subplots()
    (width, height) = size
    left = left + (NAMED if y else 0)
    figure.subplots_adjust(left / width, BOTTOM / height, 1 - RIGHT / width, 1 - TOP / height)
    axes.set(title=title, xlabel=x, ylabel=y)
    return figure, axes


def _rows(title: str, x: str, labels: Sequence[str], height: float = 0.42) -> tuple[Figure, Axes]:
    figure, axes = _panel(title, x, "", (SIZE[0], max(SIZE[1], 0.95 + height * len(labels))), RIGHT)
    for place, label in enumerate(labels):
        short = label if len(label) <= 54 else f"{label[:53]}…"
        where = {"xytext": (2, 0), "textcoords": "offset points", "va": "bottom", "fontsize": 9}
        axes.annotate(
            short, (0, place - 0.28), xycoords=("axes fraction", "data"), parse_math=False, **where
        )
    axes.set_ylim(len(labels) - 0.45, -0.85)
    axes.yaxis.set_major_locator(NullLocator())
    axes.xaxis.set_major_locator(_ticks())
    axes.spines["left"].set_visible(False)
    return figure, axes


def _ticks(integer: bool = False) -> MaxNLocator:
    return MaxNLocator(6, steps=(1, 2, 2.5, 5, 10), integer=integer, min_n_ticks=1)


def _draw(axes: Axes, line: Line, log: bool) -> None:
    colour, dash, marker = look(line.style)
    values = np.where(np.asarray(line.y) > 0, line.y, np.nan) if log else line.y
    options = {"color": COLOURS[colour], "gid": f"series{line.style}"}
    shape = (
        {"marker": marker} if len(line.x) <= 40 else {"linewidth": 1.6 if len(line.x) <= 200 else 1}
    )
    axes.plot(line.x, values, linestyle=(0, dash or None), **shape, **options)
    if line.deviation is not None:
        low = np.maximum(line.y - line.deviation, values / 10) if log else line.y - line.deviation
        axes.fill_between(line.x, low, line.y + line.deviation, alpha=0.14, linewidth=0, **options)


def _plain_log(axes: Axes, values: Sequence[float]) -> None:
    """Ticks of a logarithmic axis as plain numbers; where it spans little, as on a linear one."""
    wide = bool(values) and max(values) / min(values) > 30
    axes.yaxis.set_major_locator(LogLocator(numticks=6) if wide else MaxNLocator(5))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:.0e}" if wide else f"{value:,.6g}")
    )
    axes.yaxis.set_minor_locator(NullLocator())
