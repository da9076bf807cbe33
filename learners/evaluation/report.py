"""A comparison as files: Markdown for people, CSV and JSON for programs, pictures for both."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

from learners.evaluation.comparison import LOSSES, SCORES, TIMES, Comparison, LearningCurve
from learners.evaluation.plots import NAMES, draw_learning_curves, draw_scatter
from learners.kernels.arrays import Floats

SIGNIFICANT = 0.05
TABLED = ("rmse", "zero_one_loss")


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
            drawn.append(folder / f"{score.replace('_', '-')}-{file_word(a)}-against-{file_word(b)}{suffix}")
            draw_scatter(comparison, score, a, b, drawn[-1], scale="log" if scale == "log" else "linear")
    for data in dict.fromkeys(curve.data for curve in curves):
        drawn.append(folder / f"learning-curve-{file_word(data)}{suffix}")
        draw_learning_curves([curve for curve in curves if curve.data == data], "rmse", drawn[-1], data)
    written[0].write_text(markdown(comparison, title, command, protocol, drawn))
    _write_csv(written[1], ["data_set", "n_rows", "learner", *_columns()], _data_set_rows(comparison))
    _write_csv(
        written[2], ["score", "a", "b", "wins", "draws", "losses", "p_value", "median_ratio"], _pairs(comparison)
    )
    written[3].write_text(json.dumps(summary(comparison, command), indent=1, allow_nan=False) + "\n")
    return written + drawn


def markdown(comparison: Comparison, title: str, command: str, protocol: str, pictures: Sequence[Path] = ()) -> str:
    """The comparison as a page."""
    lines = [f"# {title}", "", "```sh", command, "```", "", protocol, ""]
    lines += [
        "Less is better everywhere. Wins–draws–losses count data sets by their means, which draw when equal to four "
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


def summary(comparison: Comparison, command: str) -> dict[str, object]:
    """The comparison as JSON has it."""
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
        "pairs": [
            dict(zip(("score", "a", "b", "wins", "draws", "losses", "p_value", "median_ratio"), row, strict=True))
            for row in _pairs(comparison)
        ],
        "failures": [
            {"data_set": one.data, "learner": one.learner, "seed": one.seed, "fold": one.fold, "error": one.error}
            for one in comparison.failures
        ],
    }


def file_word(text: str) -> str:
    """A learner's or data set's name as part of a file name."""
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
