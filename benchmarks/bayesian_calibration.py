"""How often 90 % credible intervals of a Bayesian circuit hold the truth, on data from circuits whose parameters come from the prior.

python -m benchmarks.bayesian_calibration              # 400 data sets
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.measuring import Figure, machine, report
from learners.circuits.bayesian.posterior_samples.samples import CircuitDraws
from learners.circuits.bayesian.posterior_samples.summary import summarised
from learners.circuits.bayesian.sampler.layout import layout_of
from learners.circuits.bayesian.sampler.parameters import parameters_given
from learners.circuits.bayesian.sampler.priors import Column, Prior, Strengths, given_prior
from learners.circuits.bayesian.sampler.sampler import InMemory, Moves, Tallies, lazy
from learners.circuits.bayesian.sampler.shape import complete_shape
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.queries.sampling import sample
from learners.kernels.arrays import Floats

COLUMNS = (
    Column(("categorical",), 3),
    Column(("gaussian", "exponential")),
    Column(("categorical",), 2),
    Column(("poisson",)),
)
STRENGTHS = Strengths(alpha=1.0, gaussian=2.0, rho=0.5, exponential=2.0, poisson=3.0, categorical=1.0)
LEVEL, N_DRAWS, THIN, BURN_IN = 0.9, 100, 4, 100
# Evidence of the marginal probabilities that are asked for: variable and value.
QUESTIONS: tuple[dict[int, float], ...] = ({0: 0}, {0: 1}, {2: 0}, {0: 0, 2: 0}, {0: 2, 2: 1}, {0: 0, 3: 2})


def prior_of(seed: int) -> Prior:
    """A prior with leaves that differ."""
    shape, rng = complete_shape(len(COLUMNS), 2, seed), np.random.default_rng(seed)
    n = shape.n_leaf_sums * 2
    return given_prior(shape, COLUMNS, STRENGTHS, rng.uniform(0.5, 4.0, n), rng.uniform(0.3, 1.5, n), seed)


def question_rows() -> Floats:
    """(n_variables, n_questions) float64."""
    x = np.full((len(COLUMNS), len(QUESTIONS)), np.nan)
    for q, given in enumerate(QUESTIONS):
        for v, value in given.items():
            x[v, q] = value
    return x


def covered(seed: int, n_rows: int, level: float = LEVEL) -> np.ndarray:
    """(n_questions,) bool: whether the interval of each marginal probability holds that of the circuit which the rows are from."""
    prior, random = prior_of(seed), np.random.default_rng([seed, 1])
    shape, layout, rows = prior.shape, layout_of(prior), question_rows()
    counts = np.zeros((shape.n_sums, shape.n_children), np.int32)
    nothing = Tallies(counts, prior.leaf.copy(), np.zeros(prior.n_cells, np.int32))
    known = layout.circuit(parameters_given(random, prior, nothing))
    x = sample(known, np.full((len(COLUMNS), 1), np.nan), n_rows, seed)[0]
    x[random.random(x.shape) < 0.1] = np.nan
    sampler = lazy(prior, InMemory(x), Moves(1, 4))
    state, vectors = sampler.init(random), []
    for sweep in range(BURN_IN + N_DRAWS * THIN):
        state, _ = sampler.step(random, state)
        if sweep >= BURN_IN and sweep % THIN == 0:
            vectors.append(layout.vector(parameters_given(random, prior, state.tallies)))
    drawn, n = np.stack(vectors, axis=1), layout.edge.size
    draws = CircuitDraws(layout.circuit_of(drawn[:, 0]), drawn[:n], drawn[n:])
    intervals = summarised(np.exp(draws.log_likelihoods(rows)), 1, level)
    truth = np.exp(log_values(known, rows))
    return (intervals.low <= truth) & (truth <= intervals.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400)
    parser.add_argument("--rows", type=int, nargs="*", default=[20, 100, 400])
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    figures = []
    for n_rows in args.rows:
        each = np.stack([covered(seed, n_rows) for seed in range(args.sets)])
        share, error = float(each.mean()), float(each.mean(axis=1).std(ddof=1) / np.sqrt(args.sets))
        detail = f"{args.sets} data sets, {len(QUESTIONS)} probabilities each; standard error {error:.3f}"
        figures.append(
            Figure(
                f"share of 90 % intervals that hold the truth, {n_rows} rows",
                share,
                share - 2 * error,
                share + 2 * error,
                ".85 to .95",
                "",
                detail,
            )
        )
    report("Calibration of Bayesian circuits", figures, machine(), args.json)


if __name__ == "__main__":
    main()
