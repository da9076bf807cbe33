"""SVG pictures of models: reliability of probabilities, and traces of chains."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from learners.errors import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = np.ndarray[Any, np.dtype[np.float64]]
Curve = tuple[str, Sequence[tuple[float, float, int]]]
BLUE, RED = "#4c72b0", "#c44e52"


def draw_svg_picture(
    on: Callable[["Axes"], None], file: Path | BinaryIO, title: str, width: float, height: float
) -> None:
    """Draw an SVG picture of `width` by `height` inches, with `on` drawing on its axes."""
    require_matplotlib("A picture")
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(width, height))
    axes = figure.subplots()
    on(axes)
    axes.set_title(title)
    figure.savefig(file, format="svg", bbox_inches="tight", dpi=150)


def draw_reliability_on_axes(axes: "Axes", curves: Sequence[Curve]) -> None:
    """Draw reliability diagrams, one line per curve, from the points of
    `learners.evaluation.metrics.reliability_diagram_points`.
    """
    axes.plot([0, 1], [0, 1], ":", color="grey", label="calibrated")
    for name, points in curves:
        means, rates, _ = zip(*points, strict=True)
        axes.plot(means, rates, "o-", markersize=4, label=name)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="probability of the predicted class", ylabel="share that was right")
    axes.legend(frameon=False)


def draw_trace_on_axes(axes: "Axes", trace: Floats) -> None:
    """Draw the log joint of every sweep, and the share of accepted proposals.

    The trace is (n_chains, n_sweeps, 7) float64, as a Bayesian circuit has it.
    """
    sweeps = np.arange(1, trace.shape[1] + 1)
    for chain, own in enumerate(trace, start=1):
        axes.plot(sweeps, own[:, 0], linewidth=0.8, label=f"chain {chain}")
    second = trace.shape[1] // 2
    settled = trace[:, second:, 0]
    if settled.size and np.ptp(settled) > 0:  # what burns in would flatten the rest
        axes.set_ylim(settled.min() - 3 * np.ptp(settled), settled.max() + np.ptp(settled))
    axes.axvspan(second + 0.5, trace.shape[1] + 0.5, color="#f4d35e", alpha=0.2, linewidth=0, label="drawn from")
    axes.set(xlabel="sweep", ylabel="log joint")
    accepted = axes.twinx()
    for name, first, style in (("trees", 1, ":"), ("subtrees", 4, "--")):
        changing = trace[:, :, first + 1 : first + 3].sum(axis=(0, 2))
        share = trace[:, :, first + 2].sum(axis=0) / np.maximum(changing, 1)
        accepted.plot(sweeps, share, style, color="grey", linewidth=0.8, label=f"accepted {name}")
    accepted.set(ylim=(0, 1), ylabel="share of proposals accepted")
    lines = [*axes.get_legend_handles_labels()[0], *accepted.get_legend_handles_labels()[0]]
    axes.legend(handles=lines, frameon=False, fontsize=7, loc="lower right")
