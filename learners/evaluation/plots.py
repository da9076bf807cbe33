"""Pictures of a comparison: one point a data set, and learning curves. The suffix of the path chooses SVG or PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from learners.evaluation.comparison import Comparison, LearningCurve

if TYPE_CHECKING:  # matplotlib is imported where something is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {
    "zero_one_loss": "0-1 loss",
    "rmse": "RMSE",
    "log_loss": "log loss",
    "brier": "Brier score",
    "ece": "calibration error",
    "train_s": "training, s",
    "predict_s": "prediction, s",
}
BLUE = "#4c72b0"


def draw_scatter(
    comparison: Comparison,
    score: str,
    a: str,
    b: str,
    path: Path,
    *,
    scale: Literal["linear", "log"] = "linear",
    n_named: int = 5,
) -> None:
    """Learner a (vertical) against learner b (horizontal), one point a data set; a wins below the diagonal.

    `score`: one of `comparison.SCORES`.
    `a`, `b`: learners.
    `scale`, "linear" or "log": of both axes; on log axes, data sets with a zero are left out.
    `n_named`: the data sets that lie farthest from the diagonal are named.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), figures 6 to 9.
    """
    y, x = comparison.column(score, a), comparison.column(score, b)
    shown = ~(np.isnan(x) | np.isnan(y))
    if scale == "log":
        shown &= (x > 0) & (y > 0)
    names, x, y = np.array(comparison.data_sets)[shown], x[shown], y[shown]
    figure, axes = _canvas(5.2, 5.2)
    if x.size:
        low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
        margin = (high - low) * 0.05 or 0.05
        ends = (low / 1.2, high * 1.2) if scale == "log" else (max(0.0, low - margin), high + margin)
        axes.plot(ends, ends, "-", color="grey", linewidth=0.8)
        axes.set(xlim=ends, ylim=ends, xscale=scale, yscale=scale)
    axes.plot(x, y, "o", color=BLUE, markersize=4.5, alpha=0.75, markeredgewidth=0)
    distance = np.abs(np.log(y / x)) if scale == "log" else np.abs(y - x)
    for index in np.argsort(-distance, kind="stable")[:n_named]:
        axes.annotate(names[index], (x[index], y[index]), xytext=(4, 3), textcoords="offset points", fontsize=6)
    versus = comparison.versus(score, a, b)
    axes.set_title(f"{NAMES[score]}: {a} wins {versus.record} (p = {versus.p_value:.2g})", fontsize=9)
    axes.set(xlabel=f"{NAMES[score]} of {b}", ylabel=f"{NAMES[score]} of {a}", aspect="equal")
    _save(figure, path)


def draw_learning_curves(curves: Sequence[LearningCurve], score: str, path: Path, title: str) -> None:
    """A line per curve with its deviation, over the number of training rows on a logarithmic axis."""
    figure, axes = _canvas(6, 4.2)
    for curve in curves:
        axes.errorbar(
            curve.n_train, curve.means, yerr=curve.deviations, fmt="o-", markersize=3.5, capsize=2, label=curve.learner
        )
    axes.set(xscale="log", xlabel="training rows", ylabel=NAMES[score], title=title)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(width, height), layout="tight")
    return figure, figure.subplots()


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import rc_context

    # Without a date and with fixed identifiers the same numbers give the same file.
    with rc_context({"svg.hashsalt": "fewpass", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
