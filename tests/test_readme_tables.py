"""The figures of the README are those of the stored results, and it is as short as it shall be."""

import json
import re
from pathlib import Path

from tests.support.docs import README

RESULTS = Path(__file__).parents[1] / "docs" / "results"
MOST_LINES = 120
# The rows of the README about large tables: table and rows of the stored page, learners by place; None where no figure stands.
LARGE = {
    "2.1 million flights, split at random": ("flights", 2_100_000, ("auto", "xgboost", "lightgbm")),
    "2.4 million flights before 25 May, asked about later ones": (
        "flights by time",
        2_383_928,
        ("auto", "xgboost", "lightgbm"),
    ),
}


def cells_of(name):
    """The cells of the row of a table of the README that has this name."""
    (row,) = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", README, re.MULTILINE)
    return [cell.strip() for cell in row.split("|")]


def loss_and_seconds(cell):
    return f"{cell['log_loss']:.3f}".removeprefix("0") + f" ({cell['train_cpu_s']:.0f} s)"


def test_the_table_of_speed_is_that_of_the_scoreboard():
    stored = json.loads((RESULTS / "scoreboard.json").read_text())["latest"]["entries"]
    by_name = {(each["table"], each["learner"]): each for each in stored}
    learners = ("auto", "kdb", "xgboost", "lightgbm", "catboost")
    for table in ("adult", "covtype_50k", "flights_nyc13", "orders"):
        for cell, learner in zip(cells_of(table), learners, strict=True):
            own = by_name[table, learner]
            if own["note"]:
                assert cell in own["note"], (table, learner)
            else:
                assert cell == f"{own['train_cpu_s']:.1f}; {own['rows_per_cpu_s']:,.0f}", (table, learner)


def test_the_losses_of_large_tables_are_the_stored_ones():
    stored = json.loads((RESULTS / "scale.json").read_text())["cells"]
    by_name = {(each["table"], each["rows"], each["learner"]): each for each in stored}
    for name, (table, n_rows, learners) in LARGE.items():
        shown = cells_of(name)
        for cell, learner in zip(shown, learners, strict=False):
            if learner is None:
                assert cell == ""
            else:
                assert cell.split(";")[0] == loss_and_seconds(by_name[table, n_rows, learner]), (name, learner)
    high = cells_of("2.1 million flights, split at random")[0].partition("`high` ")[2]
    assert high == loss_and_seconds(by_name["flights", 2_100_000, "auto high"])


def test_the_readme_is_short_and_in_order():
    assert len(README.splitlines()) <= MOST_LINES
    parts = (
        "**For you**",
        "**Not for you**",
        "make demo",
        "![",
        "```python",
        "On the command line",
        "## What `auto` is",
    )
    parts += ("## How accurate", "## How fast", "**Why not simply XGBoost?**", "## Limits", "## More")
    places = [README.index(part) for part in parts]
    assert places == sorted(places)
