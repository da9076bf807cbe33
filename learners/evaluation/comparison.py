"""Compare learners by the outcomes of a cross-validation: means, wins and losses, sign tests, ratios."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from learners.errors import EmptyData, InvalidArgument, InvalidParameter
from learners.evaluation.trial import Outcome
from learners.kernels.arrays import Floats, Integers

LOSSES = ("zero_one_loss", "rmse", "log_loss", "brier", "ece")
TIMES = ("train_s", "predict_s")
SCORES = (*LOSSES, *TIMES)
DECIMALS = 4


@dataclass(frozen=True)
class Versus:
    """Comparison of learner a with learner b over data sets; lower scores are better."""

    a: str
    b: str
    # `wins`, `draws`, `losses`: data sets where the mean of a is less, equal to four decimals, or more.
    wins: int
    draws: int
    losses: int
    p_value: float  # two-tailed sign test on wins and losses, draws left out
    median_ratio: float  # median over the data sets of (mean of a) / (mean of b)

    @property
    def record(self) -> str:
        """Wins, draws and losses, written wins–draws–losses."""
        return f"{self.wins}–{self.draws}–{self.losses}"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Mean scores over all folds and repetitions."""

    data_sets: tuple[str, ...]
    learners: tuple[str, ...]
    n_rows: Integers  # (n_data_sets,) int64: of the whole data set
    # `means`, `deviations`: of each score (n_data_sets, n_learners) float64, mean and sample standard deviation over the
    # trials; NaN where there is none.
    means: dict[str, Floats]
    deviations: dict[str, Floats]
    failures: tuple[Outcome, ...] = ()  # trials without scores
    notes: tuple[Outcome, ...] = ()  # trials whose answers were unusual

    def column(self, score: str, learner: str) -> Floats:
        """Return the means of one learner, (n_data_sets,). Raises InvalidParameter if it was not compared."""
        if learner not in self.learners:
            raise InvalidParameter("learner", learner, f"one of {', '.join(self.learners)}")
        return self.means[score][:, self.learners.index(learner)]

    def versus(self, score: str, a: str, b: str) -> Versus:
        """Compare learner a with learner b on the data sets that both have.

        References
        ----------
        Petitjean, Buntine, Webb, Zaidi (2018), section 6; Demšar (2006), section 3.1.4 (sign test).
        """
        of_a, of_b = self.column(score, a), self.column(score, b)
        both = ~(np.isnan(of_a) | np.isnan(of_b))
        of_a, of_b = of_a[both], of_b[both]
        rounded = np.round(of_a, DECIMALS) - np.round(of_b, DECIMALS)
        wins, losses = int((rounded < 0).sum()), int((rounded > 0).sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(of_a == of_b, 1.0, of_a / of_b)  # both zero is equal, too
        median = float(np.median(ratios)) if ratios.size else math.nan
        return Versus(a, b, wins, int((rounded == 0).sum()), losses, sign_test(wins, losses), median)

    def mean_ranks(self, score: str) -> Floats:
        """Return the mean rank of each learner over the data sets that all have, (n_learners,); equal means share their
        ranks.
        """
        means = np.round(self.means[score], DECIMALS)
        means = means[~np.isnan(means).any(axis=1)]
        below = (means[:, :, None] > means[:, None, :]).sum(axis=2)
        equal = (means[:, :, None] == means[:, None, :]).sum(axis=2)
        return (below + (equal + 1) / 2).mean(axis=0) if len(means) else np.full(means.shape[1], np.nan)


def sign_test(wins: int, losses: int) -> float:
    """Return the two-tailed p-value of the hypothesis that wins and losses are equally likely.

    References
    ----------
    Demšar (2006), Statistical comparisons of classifiers over multiple data sets, section 3.1.4.
    """
    n = wins + losses
    tail = sum(math.comb(n, i) for i in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**n))


def compare(outcomes: Iterable[Outcome]) -> Comparison:
    """Summarize outcomes, except those with a limit on the training rows.

    Raises EmptyData if there are no outcomes; InvalidParameter.
    """
    outcomes = list(outcomes) if isinstance(outcomes, Iterable) else [outcomes]
    for outcome in outcomes:
        if not isinstance(outcome, Outcome):
            raise InvalidArgument("outcomes", outcome, "Outcomes from cross_validate")
    outcomes = [outcome for outcome in outcomes if outcome.limit is None]
    if not outcomes:
        raise EmptyData("There are no outcomes to compare.")
    data_sets = tuple(dict.fromkeys(outcome.data for outcome in outcomes))
    learners = tuple(dict.fromkeys(outcome.learner for outcome in outcomes))
    by_pair: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.error is None:
            by_pair.setdefault((outcome.data, outcome.learner), []).append(outcome)
    sizes = {outcome.data: outcome.n_train + outcome.n_test for outcome in outcomes if outcome.error is None}
    spreads = {
        score: np.array(
            [[_spread(by_pair.get((data, learner), ()), score) for learner in learners] for data in data_sets]
        )
        for score in SCORES
    }
    return Comparison(
        data_sets,
        learners,
        np.array([sizes.get(data, 0) for data in data_sets], np.int64),
        {score: spread[:, :, 0] for score, spread in spreads.items()},
        {score: spread[:, :, 1] for score, spread in spreads.items()},
        failures=tuple(outcome for outcome in outcomes if outcome.error is not None),
        notes=tuple(outcome for outcome in outcomes if outcome.note is not None),
    )


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """A score against the number of training rows."""

    data: str
    learner: str
    n_train: Integers  # (n_points,) int64, ascending
    # `means`, `deviations`: (n_points,) float64.
    means: Floats
    deviations: Floats


def learning_curves(outcomes: Iterable[Outcome], score: str = "rmse") -> list[LearningCurve]:
    """Return one curve per data set and learner; trials with the same limit form a point at their mean number of rows."""
    points: dict[tuple[str, str], dict[int | None, list[Outcome]]] = {}
    for outcome in outcomes:
        if outcome.error is None:
            points.setdefault((outcome.data, outcome.learner), {}).setdefault(outcome.limit, []).append(outcome)
    curves = []
    for (data, learner), of_limit in points.items():
        rows = [
            (round(float(np.mean([trial.n_train for trial in trials]))), *_spread(trials, score))
            for trials in of_limit.values()
        ]
        n_train, means, deviations = (
            np.array(column) for column in zip(*sorted(rows, key=lambda row: row[0]), strict=True)
        )
        curves.append(LearningCurve(data, learner, n_train.astype(np.int64), means, deviations))
    return curves


def _spread(trials: Sequence[Outcome], score: str) -> tuple[float, float]:
    """Return the mean and sample standard deviation of a score, NaN if undefined."""
    values = np.array([trial.scores[score] for trial in trials])
    return values.mean() if values.size else np.nan, values.std(ddof=1) if values.size > 1 else np.nan
