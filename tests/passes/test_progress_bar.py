"""The bar of a training: on standard error if it is asked for, in units that are true."""

import io

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from fewpass import NB, FewPassClassifier
from learners.passes.engine import Progress
from learners.passes.progress_bar import console_progress_bar, progress_amount_text


@pytest.mark.parametrize(
    ("told", "words", "how_much"),
    [
        (Progress("counting pairs", 2, 3, 500, 1000, 0.5), "pass 2 of 3 (counting pairs)", "1,000 rows/s"),
        (Progress("counting pairs", 2, None, 0, 1000, 0.5), "pass 2 (counting pairs)", ""),
        (Progress("boosting trees", 2, 3, 12, 80, 1, unit="rounds"), "boosting trees", "12 of 80 rounds"),
        (Progress("sampling", 2, 3, 30, 200, 1, "settled", unit=""), "sampling: settled", "15%"),
    ],
)
def test_what_is_done_and_how_much(told, words, how_much):
    speed = told.rows_per_s if told.unit == "rows" else None
    assert told.words == words and progress_amount_text(told.unit, told.rows_done, told.rows_total, speed) == how_much


def test_a_training_is_silent_unless_it_is_to_tell(capfd):
    y = np.arange(40) % 2
    X = np.random.default_rng(0).normal(size=(40, 2)) + 3 * y[:, np.newaxis]
    NB().fit(X, y)
    assert capfd.readouterr() == ("", "")
    seen = []
    NB(verbose=True).fit(X, y, on_progress=seen.append)
    out, err = capfd.readouterr()
    assert out == "" and err.strip().startswith("learned in ") and seen


def test_units_are_those_of_the_work():
    """What is counted between passes is never called rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    seen = {}
    y = X[:, 0] + rng.normal(size=400) > 0
    FewPassClassifier(members=2).fit(X, y, on_progress=lambda at: seen.update({at.stage: at.unit}))
    assert {unit for stage, unit in seen.items() if stage.startswith(("reading", "counting"))} == {"rows"}
    assert (seen["weighting"], seen["cross-fitting"]) == ("networks", "folds")


def test_a_bar_takes_one_line_however_long_the_words_are():
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    with console_progress_bar(console) as bar:
        words = "choosing a circuit: a mixture of four hidden trees of six states, and more"
        bar.add_task(words, amount="45 of 100 networks")
        bar.refresh()
    lines = [text.plain for text in Text.from_ansi(console.file.getvalue().replace("\r", "\n")).split("\n")]
    assert max(map(len, lines)) <= 80 and any("circuit" in line and "45 of 100 networks" in line for line in lines)
