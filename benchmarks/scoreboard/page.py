"""The scoreboard as Markdown and JSON: the latest, and the one before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# The title of each column and how its numbers are written.
COSTS = {
    "train_s": ("train, s", ".1f"),
    "train_cpu_s": ("CPU s", ".1f"),
    "peak_mib": ("peak, MiB", ".0f"),
    "size_ratio": ("size", ".2f"),
    "rows_per_cpu_s": ("rows a CPU s", ",.0f"),
    "start_cpu_s": ("start, CPU s", ".2f"),
}
SCORES = {"error": "error", "rmse": "RMSE", "log_loss": "log loss", "ece": "ECE"}
HEAD = """# The scoreboard

`make scoreboard` trains and predicts with the `fewpass` command and with the boosting libraries, each in separate processes, from the same Parquet files: 70 % of the rows to train
on, 30 % to predict. The columns of the four scores are for complete rows, then for rows without 30 % and 70 % of the columns. Processor seconds are those of the
process and its children, imports included (– where they were not measured). The start is the command that predicts one row; rows a CPU second are those of the prediction beyond it. The size is that of the serving form of a model ÷ that of the Parquet file. *Not
done* gives the reason.
"""


def markdown(board: dict[str, Any]) -> str:
    """One table of all learners on all tables."""
    shares = sorted({share for entry in board["entries"] for share in entry["scores"]}, key=int)
    titles = [*SCORES.values(), *(f"{title}, {share} % missing" for share in shares[1:] for title in SCORES.values())]
    head = ["table", "learner", *titles, *(title for title, _ in COSTS.values()), "invalid rows"]
    lines = [_row(head), _row(["---", "---", *["---:"] * (len(head) - 2)])]
    lines += [_row(_cells(entry, shares)) for entry in board["entries"]]
    absent = [f"\nNo file, and so left out: {', '.join(board['absent'])}.\n"] if board["absent"] else []
    return "\n".join([_measured_on(board), "", *lines, *absent, ""])


def _measured_on(board: dict[str, Any]) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in board["machine"].items())
    return (
        f"Commit {board['commit']}, {board['date']}; {machine}. Rows that are not a distribution: {board['n_invalid']}."
    )


def _cells(entry: dict[str, Any], shares: Iterable[str]) -> list[str]:
    start = [entry["table"], entry["learner"]]
    if not entry["scores"]:
        return [*start, f"not done: {entry['note']}"]
    scores = [
        f"{entry['scores'][share][score]:.4f}" if share in entry["scores"] else "not done"
        for share in shares
        for score in SCORES
    ]
    costs = [_number(entry.get(name), form) for name, (_, form) in COSTS.items()]
    return [*start, *scores, *costs, str(entry["n_invalid"])]


def _number(value: float | None, form: str) -> str:
    """A number, or that it was not measured."""
    return "–" if value is None else f"{value:{form}}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def keep(board: dict[str, Any], folder: Path) -> None:
    """Write both files; what was the latest is the one before, or is replaced if it is of the same run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "scoreboard.json"
    kept = json.loads(path.read_text()) if path.is_file() else {"latest": None, "before": None}
    is_same_run = kept["latest"] is not None and all(kept["latest"][name] == board[name] for name in ("commit", "date"))
    before = kept["before"] if is_same_run else kept["latest"]
    path.write_text(json.dumps({"latest": board, "before": before}, indent=1) + "\n")
    parts = [HEAD, "## The latest\n", markdown(board)]
    parts += [] if before is None else ["## The one before\n", markdown(before)]
    (folder / "scoreboard.md").write_text("\n".join(parts))
