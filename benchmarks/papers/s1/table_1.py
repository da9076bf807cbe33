"""The worked example: two data sets of one attribute and one class, estimated in every way."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from learners.classifiers.estimates.context_tree import ContextTree, context_tree_from_cells, m_estimates
from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
from learners.classifiers.estimates.hdp_sampler import hdp_gibbs_estimates

# Rows of each class with either value, and what the paper prints for the first value: MLE, m-estimate, HDP.
PAPER = {
    "set 1, Y = 0": ((2, 0), (1.00, 0.83, 0.89)),
    "set 1, Y = 1": ((20, 5), (0.80, 0.79, 0.79)),
    "set 2, Y = 0": ((2, 0), (1.00, 0.83, 0.86)),
    "set 2, Y = 1": ((4, 9), (0.31, 0.32, 0.34)),
}
PRIORS = {"prior (0, 0)": (0.0, 0.0), "prior (2, 1)": (2.0, 1.0)}


def example(number: int) -> ContextTree:
    """The context tree of the attribute in set 1 or 2."""
    counts = np.array([PAPER[f"set {number}, Y = {y}"][0] for y in range(2)])
    y, x = np.nonzero(counts)
    return context_tree_from_cells(y, np.empty((y.size, 0), np.int64), x, counts[y, x], 2)


def of_first_value(tree: ContextTree, probability: np.ndarray) -> list[float]:
    """Its probability in each class."""
    return [float(probability[tree.cell_starts[1 + y]]) for y in range(2)]


def hdp(tree: ContextTree, prior: tuple[float, float], seed: int | None, iterations: int) -> list[float]:
    """By sampling, or the deterministic estimate without a seed."""
    parameters = HDPParameters(iterations=iterations, prior=prior, seed=seed or 0)
    estimate = hdp_map_estimates if seed is None else hdp_gibbs_estimates
    return of_first_value(tree, estimate([tree], parameters)[0].estimates.probability)


def measure(is_quick: bool) -> Measured:
    """p(X = 0 | Y) in both sets."""
    n_seeds, iterations = (5, 50_000) if is_quick else (20, 50_000)
    rows = []
    for number in (1, 2):
        tree = example(number)
        of_m = of_first_value(tree, m_estimates(tree, 1.0).probability)
        columns = []
        for prior in PRIORS.values():
            drawn = [hdp(tree, prior, seed, iterations) for seed in range(n_seeds)]
            columns.append([mean_and_error(list(each), 4) for each in zip(*drawn, strict=True)])
            columns.append([f"{p:.4f}" for p in hdp(tree, prior, None, iterations)])
        for y in range(2):
            name = f"set {number}, Y = {y}"
            counts, (mle, m, of_hdp) = PAPER[name]
            own = [f"{counts[0] / sum(counts):.4f}", f"{of_m[y]:.4f}"]
            rows.append([name, list(counts), mle, own[0], m, own[1], of_hdp, *(column[y] for column in columns)])
    heads = ["rows of", "counts", "paper, MLE", "ours", "paper, m = 1", "ours", "paper, HDP"]
    heads += [f"`{way}`, {name}" for name in PRIORS for way in ("hdp", "hdp-map")]
    return Measured(
        table(heads, rows),
        "the two sets of the paper's table, whole.",
        f"0 to {n_seeds - 1}, of the sampler",
        f"means and standard errors over the seeds of {iterations:,} sweeps each.",
        (
            "under the prior (0, 0), which is improper, the concentration wanders between 0 and its cap of 4,000 on so few rows; "
            "chains of 50,000 sweeps differ as much as the standard errors indicate",
        ),
    )


PAGE = Page("S1", "s1-table-1", "Table 1: the worked example", measure)
