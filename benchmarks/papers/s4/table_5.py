"""Effective sample size of 50 circuits, top-down and bottom-up."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from benchmarks.papers.s4.chains import SETTINGS, bottom_up, effective_size, problem, top_down
from learners.circuits.bayesian.collapsed_sampler import Moves

# Top-down and bottom-up at C_s = 2, then at 4.
PAPER = {
    "housing": (17.3, 20.6, 17.4, 20.5),
    "german": (17.3, 20.6, 18.9, 19.4),
    "dermatology": (15.6, 20.6, 19.1, 20.1),
}
KEPT = 50


def measure(is_quick: bool) -> Measured:
    """Measure the effective sample sizes of the log-likelihood of the training rows."""
    seeds, sweeps = (2, 400) if is_quick else (5, 2_000)
    samplers = {
        "top-down": lambda one, seed: top_down(one, sweeps, KEPT, seed),
        "with moves of subtrees": lambda one, seed: top_down(one, sweeps, KEPT, seed, Moves()),
        "bottom-up": lambda one, seed: bottom_up(one, sweeps // 4, KEPT, seed),
    }
    rows = []
    for name in ("yacht",) if is_quick else ("yacht", *PAPER):
        for children in (2,) if is_quick else (2, 4):
            own: dict[str, list[float]] = {how: [] for how in samplers}
            for seed in range(seeds):
                one = problem(name, children, seed)
                for how, sample in samplers.items():
                    own[how].append(effective_size(sample(one, seed).train))
            of_paper = PAPER.get(name, ("",) * 4)[2 * (children // 4) : 2 * (children // 4) + 2]
            rows.append([name, children, *of_paper, *(mean_and_error(each, 1) for each in own.values())])
    return Measured(
        table(["set", "C_s", "paper, top-down", "bottom-up", *(f"ours, {how}" for how in samplers)], rows),
        "sets of the folder `mixed`, nine tenths of the rows.",
        f"0 to {seeds - 1}; the paper has 10.",
        f"effective sizes of {KEPT} circuits, evenly spread over the second half of {sweeps:,} sweeps ({sweeps // 4:,} bottom-up): mean and standard error.",
        (
            *SETTINGS,
            "the paper does not name the quantity; here it is the training log-likelihood, by n / (1 + 2 Σ ρ)",
            "the size is at most 50 for 50 samples here, about 20 in the paper's estimate",
        ),
    )


PAGE = Page("S4", "s4-table-5", "Table 5: effective sample size", measure)
