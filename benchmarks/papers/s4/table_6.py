"""Test log-likelihood, top-down and bottom-up: tables 6 and 12."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from benchmarks.papers.s4.chains import SETTINGS, bottom_up, problem, top_down

# Top-down and bottom-up at C_s = 2, then at 4.
PAPER = {
    "yacht": (2.2, 1.0, 8.3, 5.0),
    "airfoil": (-12.57, -13.06, -6.57, -7.91),
    "breast_ljubljana_277": (-6.56, -7.29, -6.45, -6.90),
    "housing": (-24.07, -27.02, -18.40, -20.80),
    "german": (-17.52, -19.00, -15.33, -14.08),
    "wine_quality_white": (-2.96, -3.6, -2.57, -2.6),
    "abalone": (4.47, 1.10, 6.97, 2.94),
}
KEPT = 20


def measure(is_quick: bool) -> Measured:
    """Measure the log-likelihood of the mean density of 20 circuits."""
    seeds, sweeps = (2, 100) if is_quick else (5, 1_000)
    rows = []
    for name in list(PAPER)[:3] if is_quick else PAPER:
        for children in (2, 4):
            problems = [problem(name, children, seed) for seed in range(seeds)]
            own = [top_down(one, sweeps, KEPT, seed).test for seed, one in enumerate(problems)]
            other = [bottom_up(one, sweeps // 4, KEPT, seed).test for seed, one in enumerate(problems)]
            of_paper = PAPER[name][2 * (children // 4) : 2 * (children // 4) + 2]
            rows.append([name, children, *of_paper, mean_and_error(own, 2), mean_and_error(other, 2)])
    return Measured(
        table(["set", "C_s", "paper, top-down", "bottom-up", "ours, top-down", "ours, bottom-up"], rows),
        "sets of the folder `mixed`, a tenth of the rows to test on.",
        f"0 to {seeds - 1}; the paper has 10.",
        f"mean test log-likelihood in nats and its standard error, of {KEPT} circuits from the second half of {sweeps:,} sweeps top-down, {sweeps // 4:,} bottom-up.",
        SETTINGS,
    )


PAGE = Page("S4", "s4-table-6", "Tables 6 and 12: log-likelihood", measure)
