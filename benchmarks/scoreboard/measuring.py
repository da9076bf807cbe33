"""A learner on a table: what its processes take, and how good its answers are."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import NotDone, run_command
from benchmarks.scoreboard.peers import PEERS
from benchmarks.scoreboard.tables import Split
from learners.answer_checks import TOLERANCE
from learners.evaluation.metrics import evaluate
from learners.kernels.arrays import Floats

FEWPASS = ("auto", "eskdb", "kdb", "skdb", "nb")

LEAST_CPU_S = 0.05  # of a prediction beyond its start: less is chance


@dataclass
class Entry:
    """A learner on a table; what has no scores is not done, and `note` says why.

    Parameters
    ----------
    scores : dict of str to dict
        Error, RMSE, log loss and calibration error, by the percentage of the columns that is missing.
    n_invalid : int
        Rows that are no distribution, over all of these.
    train_s, train_cpu_s : float
        Of the whole process and its children, imports included.
    peak_mib : float
        Of the training process.
    size_ratio : float
        Bytes of the model ÷ bytes of the Parquet file that it learned from.
    rows_per_cpu_s : float
        Rows that the command predicts a processor second beyond its start, which is that of predicting one row; None where
        both take the same but for `LEAST_CPU_S`.
    start_cpu_s : float
        Of the command that predicts one row: what of the others is imports.
    """

    table: str
    learner: str
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    n_invalid: int = 0
    train_s: float | None = None
    train_cpu_s: float | None = None
    peak_mib: float | None = None
    size_ratio: float | None = None
    rows_per_cpu_s: float | None = None
    start_cpu_s: float | None = None
    note: str = ""


class Commands:
    """The processes that train and predict with one learner on one table.

    Parameters
    ----------
    learner : str
        Of fewpass, or a peer.
    files : Split
    folder : Path
        For the model and the answers.
    """

    def __init__(self, learner: str, files: Split, folder: Path) -> None:
        self.learner, self.files, self.folder = learner, files, folder
        self.is_peer = learner in PEERS
        folder.mkdir(parents=True)

    @property
    def train(self) -> list[str | Path]:
        """Learn from the training file."""
        if self.is_peer:
            module = [sys.executable, "-m", "benchmarks.scoreboard.peers"]
            return [*module, "train", self.learner, self.files.train, self.files.target, self.folder / "model"]
        options = ["--learner", self.learner, "--holdout", "0", "--workspace", self.folder / "workspace"]
        return [*_fewpass(), "train", self.files.train, "--target", self.files.target, "--name", "model", *options]

    def predict(self, rows: Path, answers: Path) -> list[str | Path]:
        """Answer a file."""
        if self.is_peer:
            module = [sys.executable, "-m", "benchmarks.scoreboard.peers"]
            return [*module, "predict", rows, self.folder / "model", answers]
        return [*_fewpass(), "predict", "model", rows, "--out", answers, "--workspace", self.folder / "workspace"]

    def predict_tests(self, share: float) -> list[str | Path]:
        """Answer the test file in which this share of the columns is missing."""
        return self.predict(self.files.tests[share], self.answers(share))

    def answers(self, share: float) -> Path:
        """Where the answers go."""
        return self.folder / f"answers-{100 * share:.0f}.parquet"

    @property
    def model_bytes(self) -> int:
        """Bytes of the form of the model that answers."""
        if self.is_peer:
            return (self.folder / "model").stat().st_size
        return sum(path.stat().st_size for path in (self.folder / "workspace").rglob("models/**/*.arrow"))


def _fewpass() -> list[str]:
    return [sys.executable, "-m", "service.cli"]


def measured(learner: str, files: Split, folder: Path, timeout_s: float) -> Entry:
    """Train and predict with a learner on a table; all of it may take so many seconds."""
    commands, entry = Commands(learner, files, folder), Entry(files.name, learner)
    ends_at = time.perf_counter() + timeout_s

    def left() -> float:
        return ends_at - time.perf_counter()

    try:
        trained = run_command(commands.train, timeout_s=timeout_s)
        started = run_command(commands.predict(files.one_row, folder / "one-answer.parquet"), timeout_s=left())
        answered = run_command(commands.predict_tests(0.0), timeout_s=left())
    except NotDone as error:
        entry.note = str(error)
        return entry
    entry.train_s, entry.peak_mib = trained.wall_s, trained.peak_bytes / 2**20
    entry.train_cpu_s = trained.cpu_s
    entry.size_ratio = commands.model_bytes / files.train.stat().st_size
    beyond_start = answered.cpu_s - started.cpu_s
    entry.rows_per_cpu_s = len(files.labels) / beyond_start if beyond_start >= LEAST_CPU_S else None
    entry.start_cpu_s = started.cpu_s
    _add_scores(entry, 0.0, commands)
    for share in sorted(files.tests.keys() - {0.0}):
        try:
            run_command(commands.predict_tests(share), timeout_s=left())
            _add_scores(entry, share, commands)
        except NotDone as error:
            entry.note += f"{100 * share:.0f} % missing: {error} "
    return entry


def _add_scores(entry: Entry, share: float, commands: Commands) -> None:
    found, n_invalid = quality(commands.answers(share), commands.files.labels)
    entry.scores[f"{100 * share:.0f}"] = found
    entry.n_invalid += n_invalid


def quality(answers: Path, labels: Sequence[object]) -> tuple[dict[str, float], int]:
    """Scores of a file of answers, and how many rows are no distribution: these count as knowing nothing."""
    table = pq.read_table(answers)
    columns = [name for name in table.column_names if name.startswith("probability_")]
    probabilities: Floats = np.stack([table[name].to_numpy() for name in columns], axis=1)
    is_valid = (np.abs(probabilities.sum(axis=1) - 1) <= TOLERANCE) & (probabilities >= 0).all(axis=1)
    probabilities[~is_valid] = 1 / len(columns)
    place = {name.removeprefix("probability_"): k for k, name in enumerate(columns)}
    for label in {str(label) for label in labels} - place.keys():  # classes that training never saw
        place[label] = len(place)
    probabilities = np.pad(probabilities, ((0, 0), (0, len(place) - len(columns))))
    found = asdict(evaluate(probabilities, np.array([place[str(label)] for label in labels])))
    names = {"error": "zero_one_loss", "rmse": "rmse", "log_loss": "log_loss", "ece": "ece"}
    return {name: found[field_name] for name, field_name in names.items()}, int((~is_valid).sum())
