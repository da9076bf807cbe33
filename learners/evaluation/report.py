"""Reports of a comparison: Markdown, CSV and JSON files, and pictures."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from learners.errors import require_matplotlib
from learners.evaluation.comparison import LOSSES, SCORES, TIMES, Comparison, LearningCurve
from learners.kernels.arrays import Floats

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

SIGNIFICANT = 0.05
TABLED = ("rmse", "zero_one_loss")
PAIR_COLUMNS = ("score", "a", "b", "wins", "draws", "losses", "p_value", "median_ratio")


def write_report(
    folder: Path,
    comparison: Comparison,
    *,
    title: str,
    command: str,
    protocol: str,
    pictures: Sequence[tuple[str, str]] = (),
    curves: Sequence[LearningCurve] = (),
    suffix: str = ".svg",
) -> list[Path]:
    """Write README.md, data-sets.csv, pairs.csv, summary.json and the pictures.

    Parameters
    ----------
    folder : Path
        Made if need be; files of the same names are replaced.
    command : str
        That made the results.
    protocol : str
        How they were made, in a sentence.
    pictures : sequence of (learner, learner)
        Scatter plots of RMSE (log) and 0-1 loss (linear).
    curves : sequence of LearningCurve
        Of RMSE; one picture a data set.
    suffix : ".svg" or ".png"
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / "README.md", folder / "data-sets.csv", folder / "pairs.csv", folder / "summary.json"]
    drawn = []
    for a, b in pictures:
        for score, scale in (("rmse", "log"), ("zero_one_loss", "linear")):
            drawn.append(folder / f"{score.replace('_', '-')}-{file_name_slug(a)}-against-{file_name_slug(b)}{suffix}")
            draw_scatter(comparison, score, a, b, drawn[-1], scale="log" if scale == "log" else "linear")
    for data in dict.fromkeys(curve.data for curve in curves):
        drawn.append(folder / f"learning-curve-{file_name_slug(data)}{suffix}")
        draw_learning_curves([curve for curve in curves if curve.data == data], "rmse", drawn[-1], data)
    written[0].write_text(comparison_report_markdown(comparison, title, command, protocol, drawn))
    _write_csv(written[1], ["data_set", "n_rows", "learner", *_columns()], _data_set_rows(comparison))
    _write_csv(written[2], PAIR_COLUMNS, _pairs(comparison))
    written[3].write_text(json.dumps(comparison_report_summary(comparison, command), indent=1, allow_nan=False) + "\n")
    return written + drawn


def comparison_report_markdown(
    comparison: Comparison, title: str, command: str, protocol: str, pictures: Sequence[Path] = ()
) -> str:
    """Return the comparison as a Markdown page."""
    lines = [f"# {title}", "", "```sh", command, "```", "", protocol, ""]
    lines += [
        "Lower is better in all scores. Wins–draws–losses count data sets by their means, which draw when equal to four "
        "decimals; p is of a two-tailed sign test without the draws (bold below 0.05); the ratio is the median over the "
        "data sets. Every score of every data set is in `data-sets.csv`, every pair of learners in `pairs.csv`.",
        "",
        "## Averages over the data sets",
        "",
        *_table(
            ["learner", *(NAMES[score] for score in LOSSES), "mean rank (RMSE)", "training, s", "prediction, s"],
            _average_rows(comparison),
        ),
    ]
    for score in TABLED:
        lines += ["", f"## {NAMES[score]}: row against column", "", *_matrix(comparison, score)]
    for score in TABLED:
        lines += ["", f"## {NAMES[score]} of each data set, mean ± standard deviation", ""]
        lines += _table(["data set", "rows", *comparison.learners], _score_rows(comparison, score))
    if pictures:
        lines += ["", "## Pictures", "", *(f"![{path.stem}]({path.name})" for path in pictures)]
    lines += _remarks(comparison)
    return "\n".join(lines) + "\n"


def comparison_report_summary(comparison: Comparison, command: str) -> dict[str, object]:
    """Return the comparison as JSON-compatible values."""
    return {
        "command": command,
        "learners": list(comparison.learners),
        "data_sets": [
            {
                "name": data,
                "n_rows": int(comparison.n_rows[i]),
                "scores": {
                    learner: {
                        score: [_number(comparison.means[score][i, j]), _number(comparison.deviations[score][i, j])]
                        for score in SCORES
                    }
                    for j, learner in enumerate(comparison.learners)
                },
            }
            for i, data in enumerate(comparison.data_sets)
        ],
        "pairs": [dict(zip(PAIR_COLUMNS, row, strict=True)) for row in _pairs(comparison)],
        "failures": [
            {"data_set": one.data, "learner": one.learner, "seed": one.seed, "fold": one.fold, "error": one.error}
            for one in comparison.failures
        ],
    }


def file_name_slug(text: str) -> str:
    """Convert a learner's or data set's name to part of a file name."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "| --- " + "| ---: " * (len(head) - 1) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _average_rows(comparison: Comparison) -> list[list[str]]:
    ranks = comparison.mean_ranks("rmse")
    rows = []
    for j, learner in enumerate(comparison.learners):
        means = {score: _mean(comparison.means[score][:, j]) for score in SCORES}
        losses, times = [f"{means[score]:.4f}" for score in LOSSES], [f"{means[score]:.3g}" for score in TIMES]
        rows.append([learner, *losses, f"{ranks[j]:.2f}", *times])
    return rows


def _mean(values: Floats) -> float:
    present = [float(value) for value in values if not math.isnan(value)]
    return math.fsum(present) / len(present) if present else math.nan


def _matrix(comparison: Comparison, score: str) -> list[str]:
    rows = []
    for a in comparison.learners:
        cells = []
        for b in comparison.learners:
            versus = comparison.versus(score, a, b)
            text = f"{versus.record}, p {versus.p_value:.2g}, ratio {versus.median_ratio:.3f}"
            cells.append("" if a == b else f"**{text}**" if versus.p_value < SIGNIFICANT else text)
        rows.append([a, *cells])
    return _table(["", *comparison.learners], rows)


def _score_rows(comparison: Comparison, score: str) -> list[list[str]]:
    rows = []
    for i, data in enumerate(comparison.data_sets):
        means, deviations = comparison.means[score][i], comparison.deviations[score][i]
        present = [round(float(mean), 4) for mean in means if not math.isnan(mean)]
        cells = []
        for mean, deviation in zip(means, deviations, strict=True):
            text = "–" if math.isnan(mean) else f"{mean:.4f} ± {deviation:.4f}"
            cells.append(f"**{text}**" if present and round(float(mean), 4) == min(present) else text)
        rows.append([data, f"{int(comparison.n_rows[i]):,}", *cells])
    return rows


def _remarks(comparison: Comparison) -> list[str]:
    lines: list[str] = []
    for heading, outcomes in (("Failures", comparison.failures), ("Remarks", comparison.notes)):
        counted = Counter((one.data, one.learner, str(one.error or one.note)) for one in outcomes)
        if counted:
            lines += ["", f"## {heading}", ""]
            lines += [f"- {data}, {learner}, {n} trials: {what}" for (data, learner, what), n in counted.items()]
    return lines


Shown = str | int | float | None


def _columns() -> list[str]:
    return [f"{score}_{what}" for score in SCORES for what in ("mean", "sd")]


def _data_set_rows(comparison: Comparison) -> Iterable[list[Shown]]:
    for i, data in enumerate(comparison.data_sets):
        for j, learner in enumerate(comparison.learners):
            numbers = [
                _number(values[score][i, j]) for score in SCORES for values in (comparison.means, comparison.deviations)
            ]
            yield [data, int(comparison.n_rows[i]), learner, *numbers]


def _pairs(comparison: Comparison) -> list[list[Shown]]:
    return [
        [score, a, b, versus.wins, versus.draws, versus.losses, _number(versus.p_value), _number(versus.median_ratio)]
        for score in LOSSES
        for a, b in combinations(comparison.learners, 2)
        for versus in [comparison.versus(score, a, b)]
    ]


def _write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[Shown]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(rows)


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
    """Plot learner a (vertical) against learner b (horizontal), one point per data set; below the diagonal, a wins.

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
    """Plot each curve with its deviation over the number of training rows, on a logarithmic axis."""
    figure, axes = _canvas(6, 4.2)
    for curve in curves:
        axes.errorbar(
            curve.n_train, curve.means, yerr=curve.deviations, fmt="o-", markersize=3.5, capsize=2, label=curve.learner
        )
    axes.set(xscale="log", xlabel="training rows", ylabel=NAMES[score], title=title)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    require_matplotlib("A report with pictures")
    from matplotlib.figure import Figure  # no pyplot: no global state, no display

    figure = Figure(figsize=(width, height), layout="tight")
    return figure, figure.subplots()


def _save(figure: Figure, path: Path) -> None:
    from matplotlib import rc_context

    # Without a date and with fixed identifiers the same numbers give the same file.
    with rc_context({"svg.hashsalt": "fewpass", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
