"""Seconds of a sweep, top-down and bottom-up."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s4.chains import SETTINGS, bottom_up, problem, top_down
from learners.circuits.bayesian.collapsed_sampler import Moves

# Top-down, bottom-up at C_s = 2, then at 4.
PAPER = {
    "yacht": (0.003, 0.088, 0.005, 0.603),
    "breast_ljubljana_277": (0.005, 0.170, 0.014, 1.938),
    "airfoil": (0.010, 0.303, 0.021, 2.047),
    "housing": (0.009, 0.445, 0.114, 6.616),
    "german": (0.050, 2.095, 1.298, 76.78),
    "abalone": (0.076, 1.574, 0.367, 17.38),
}


def measure(is_quick: bool) -> Measured:
    """One run of some sweeps each."""
    sweeps = 3 if is_quick else 20
    rows = []
    for name in list(PAPER)[:3] if is_quick else PAPER:
        for children in (2, 4):
            one = problem(name, children, 0)
            own, default, other = (
                1e3 * chain.seconds
                for chain in (
                    top_down(one, 5 * sweeps, 0, 0),
                    top_down(one, 5 * sweeps, 0, 0, Moves()),
                    bottom_up(one, sweeps, 0, 0),
                )
            )
            first, second = PAPER[name][2 * (children // 4) : 2 * (children // 4) + 2]
            of_paper = [
                f"{1e3 * first:.0f}",
                f"{1e3 * second:.0f}",
                f"×{second / first:.0f}",
            ]
            rows.append(
                [name, children, *of_paper, f"{own:.2f}", f"{default:.2f}", f"{other:.1f}", f"×{other / own:.0f}"]
            )
    heads = [
        "set",
        "C_s",
        "paper, top-down, ms",
        "bottom-up, ms",
        "ratio",
        "ours, top-down, ms",
        "with moves of subtrees, ms",
        "bottom-up, ms",
        "ratio",
    ]
    return Measured(
        table(heads, rows),
        "sets of the folder `mixed`, nine tenths of the rows.",
        "0",
        f"means of {5 * sweeps} sweeps top-down and {sweeps} bottom-up, CPU milliseconds of one thread.",
        SETTINGS,
    )


PAGE = Page("S4", "s4-table-4", "Table 4: time of a Gibbs iteration", measure)
