"""The picture of how an experiment's data are divided: labels by client, and how many examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.loading import Division, classes, division, natural_clients
from fedivon_app.report.axes import ticks
from fedivon_app.report.panel_plot import round_numbers
from fedivon_app.report.style import COLOURS, INK, styled

# One example is told from none on a white page, and the colours' lightness falls evenly.
SHADES = LinearSegmentedColormap.from_list("examples", ("#c6d3f7", COLOURS[0], "#0d1638"))
NAMED = 40  # labels at most that are named one by one
NAMED_CLIENTS = 30  # clients at most that are named, where they have names
RANGES = 12  # of a number that is to be predicted
NAME_LENGTH = 22  # letters of a label's name at most
WIDTHS = (3.4, 10.5)  # of all clients together, in inches
HEIGHTS = (1.6, 7.5)  # of all labels together
CLIENT = 0.09  # the width of a client, between these bounds
LABEL = 0.03  # the height of a label that has no name
NAMED_LABEL = 0.18  # and of one that has
GAP = 0.055  # cells of at least this size stand apart
SPAN = 4.0  # from the lightest to the darkest shade at least, so that equal counts look equal
APART = 0.08  # of the scale: ticks stand no closer
BAR = 0.14  # the width of the scale, in inches
MANY = 5000  # cells from which on vector files hold them as pixels
BESIDE = 1.6  # room for the names of the axes and the scale, in inches
ABOVE = 0.95


def divided(settings: AnySettings) -> Division:
    """Return the settings' data as the clients of a run get them.

    Where the data are with the nodes, or the clients have not been counted, a SettingsError says
    what would be right.
    """
    data = settings.data
    if data.source == "nodes":
        raise SettingsError(
            "data.source is `nodes`: every node has a file of its own, and nothing is divided; "
            "`fedivon doctor --data FILE` looks at such a file"
        )
    clients = data.clients or natural_clients(settings)
    if clients is None:
        division(data, 1, settings.seed, settings.task)  # what is wrong with the source comes first
        raise SettingsError(
            "data.clients is not set: say among how many the data are divided, as by "
            "--set data.clients=10"
        )
    return division(data, clients, settings.seed, settings.task)


def label_counts(settings: AnySettings) -> np.ndarray:
    """Return how many training examples of each label each client has, (clients, labels).

    Where a number is to be predicted, equal ranges of it stand for labels.
    """
    found = divided(settings)
    values = np.asarray(found.source.y_train)
    if settings.task == "regression":
        edges = target_edges(found.source)
        return np.stack([np.histogram(values[rows], edges)[0] for rows in found.split.train])
    size = classes(settings.data, found.source)
    return np.stack([np.bincount(values[rows], minlength=size) for rows in found.split.train])


def target_edges(source: Source) -> np.ndarray:
    """Return the ends of equal ranges of the numbers that are to be predicted."""
    edges: np.ndarray = np.histogram_bin_edges(source.y_train, RANGES)
    return edges


def label_names(source: Source) -> Sequence[str] | None:
    """Return what the labels are called: by the classes' names, or by ranges of a number."""
    if source.num_classes:
        return source.class_names
    edges = target_edges(source)
    return [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]


@dataclass(frozen=True)
class Scale:
    """The logarithmic scale of the shades: its ends, and the numbers that are written beside it."""

    ends: tuple[float, float]
    ticks: Sequence[float]

    @classmethod
    def of(cls, counts: np.ndarray) -> Scale:
        """Return a scale on which all counts above 0 have a place.

        The smallest and the largest one are written, and round numbers where there is room.
        """
        low = float(counts[counts > 0].min())
        high = float(counts.max())
        wider = max(1.0, math.sqrt(SPAN * low / high))
        first = low / wider
        last = high * wider
        shown: list[float] = []
        for value in (low, high, *round_numbers(first, last)):
            place = [abs(math.log(value / other)) / math.log(last / first) for other in shown]
            if min(place, default=1.0) >= APART:
                shown.append(value)
        return cls(ends=(first, last), ticks=sorted(shown))


@styled
def label_figure(
    counts: np.ndarray,
    class_names: Sequence[str] | None,
    title: str,
    client_names: Sequence[str] | None = None,
) -> Figure:
    """Draw the examples of every client and label as a cell, darker where there are more.

    The shades are logarithmic; where a client has nothing of a label, the page is left white.
    """
    clients, labels = counts.shape
    named = labels <= NAMED
    width = float(np.clip(CLIENT * clients, *WIDTHS))
    height = float(np.clip((NAMED_LABEL if named else LABEL) * labels, *HEIGHTS))
    figure = Figure(figsize=(width + BESIDE, height + ABOVE), layout="constrained")
    axes = figure.subplots()
    scale = Scale.of(counts)
    mesh = axes.pcolormesh(
        np.arange(clients + 1) - 0.5,
        np.arange(labels + 1) - 0.5,
        np.ma.masked_equal(counts.T, 0),
        cmap=SHADES,
        norm=LogNorm(*scale.ends),
        edgecolors="white" if min(width / clients, height / labels) >= GAP else "none",
        linewidth=0.6,
        rasterized=counts.size > MANY,
    )
    axes.grid(visible=False)
    axes.set(xlabel="client", ylabel="label")
    axes.set_title(title, parse_math=False)
    if client_names and clients <= NAMED_CLIENTS:
        turned = 0 if clients <= 5 else 60
        axes.set_xticks(range(clients), _shortened(client_names), parse_math=False, rotation=turned)
    else:
        axes.xaxis.set_major_locator(ticks(integer=True))
    _name_labels(axes, labels, class_names if named else None)
    bar = figure.colorbar(mesh, ax=axes, pad=0.015, aspect=height / BAR)
    bar.set_label("examples")
    bar.outline.set_visible(False)
    bar.ax.yaxis.set_major_locator(FixedLocator(scale.ticks))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.ax.yaxis.set_minor_locator(NullLocator())
    return figure


def _name_labels(axes: Axes, labels: int, class_names: Sequence[str] | None) -> None:
    """Write the names of the labels beside their rows, or a few numbers; the first is on top."""
    axes.set_ylim(labels - 0.5, -0.5)
    if class_names is None and labels > NAMED:
        axes.yaxis.set_major_locator(ticks(integer=True))
        return
    names = class_names or [str(label) for label in range(labels)]
    axes.set_yticks(range(labels), _shortened(names), parse_math=False, color=INK)


def _shortened(names: Sequence[str]) -> list[str]:
    return [name if len(name) <= NAME_LENGTH else f"{name[: NAME_LENGTH - 1]}…" for name in names]
