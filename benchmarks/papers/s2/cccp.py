"""CCCP, whose update is the normalised sum of λ, beside the product's EM and the streaming rules."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from benchmarks.papers.s2.published import (
    NO_NUMBERS,
    arrays_of,
    data,
    mean_log_likelihood,
    normalised,
    ours,
    random_counts,
    summed_shares,
    with_weights,
)
from learners.circuits.em.em import batch_em


def measure(is_quick: bool) -> Measured:
    """Test log-likelihood by passes."""
    seeds, n_rows, steps = (2, 4_000, (1, 2, 5, 20)) if is_quick else (5, 15_000, (1, 2, 5, 20, 50))
    rows = []
    for name in ("nltcs",) if is_quick else ("nltcs", "plants"):
        circuit, train, test = data(name, n_rows)
        kind, starts, children, variable, value = arrays_of(circuit)
        by_passes: dict[int, list[float]] = {n: [] for n in steps}
        differences = []
        for seed in range(seeds):
            first = normalised(circuit, random_counts(circuit, seed))
            weight = first
            for n in range(1, max(steps) + 1):
                sums = summed_shares(kind, starts, children, weight, variable, value, train)
                weight = normalised(circuit, np.maximum(sums, 1e-6))
                if n in steps:
                    by_passes[n].append(mean_log_likelihood(circuit, weight, test))
            em = batch_em(with_weights(circuit, first), train, max(steps), 1e-6)
            differences.append(
                abs(mean_log_likelihood(circuit, np.exp(em.log_weight), test) - by_passes[max(steps)][-1])
            )
        rows += [[name, f"CCCP, {n} passes", mean_and_error(own)] for n, own in by_passes.items()]
        for rule in ("adf", "bmm"):
            own = [
                mean_log_likelihood(circuit, ours(circuit, train, seed, rule, 1.0, 1), test) for seed in range(seeds)
            ]
            rows.append([name, f"the product's `{rule}`, 1 pass", mean_and_error(own)])
        rows.append([name, f"the product's EM less CCCP, {max(steps)} passes, at most", f"{max(differences):.1e}"])
    return Measured(
        [NO_NUMBERS, "", *table(["set", "way to learn", "test log-likelihood, nats"], rows)],
        f"the circuits that LearnSPN learned, {n_rows:,} training and 2,000 test rows.",
        f"0 to {seeds - 1}, of the random weights at the start",
        "means and standard errors over seeds.",
        (),
    )


PAGE = Page("S2", "s2-cccp", "CCCP, one pass and several", measure)
