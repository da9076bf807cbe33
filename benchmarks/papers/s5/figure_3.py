"""How often a posterior has any graph with some true edges: the lattice and samples of graphs."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.page import Measured, Page, table
from benchmarks.papers.s5.problems import SETTINGS, posterior_of, problem
from learners.orders.lattice.graph_samples import draw_graphs
from learners.orders.scores.known_edges import Edges, drop_noncandidate_edges

N_EDGES = (2, 4, 8, 16)


def measure(is_quick: bool) -> Measured:
    """Share of selections of true edges that have a positive probability."""
    seeds, selections, draws, sets = (3, 20, 10_000, 20_000) if is_quick else (30, 50, 10_000, 100_000)
    rows = []
    for d in (16, 32):
        held = {n: [0, 0, 0] for n in N_EDGES}
        for seed in range(seeds if d == 16 else max(1, seeds // 3)):
            one = problem(d, seed)
            posterior, _ = posterior_of(one, seed, sets)
            sums, rng = posterior.prior_sums, np.random.default_rng(seed)
            sample, true_edges = draw_graphs(sums, draws, seed).adjacency(), np.argwhere(one.graph)
            for n in N_EDGES:
                for _ in range(selections):
                    chosen = true_edges[rng.permutation(len(true_edges))[:n]]
                    edges = Edges(present=frozenset((int(a), int(b)) for a, b in chosen))
                    has_all = drop_noncandidate_edges(edges, posterior.scores) == edges
                    held[n][0] += has_all and posterior.sums(edges).log_z > -np.inf
                    held[n][1] += bool(sample[:, chosen[:, 0], chosen[:, 1]].all(axis=1).any())
                    held[n][2] += 1
        rows += [[d, n, f"{ours / total:.2f}", f"{drawn / total:.2f}"] for n, (ours, drawn, total) in held.items()]
    text = "The paper draws a figure without numbers: the shares of DiBS and Gadget, which are samples, fall with the number of edges; those of TRUST stay higher."
    heads = ["d", "true edges", "ours: our posterior has such graphs", f"ours: {draws:,} graphs drawn from it have"]
    return Measured(
        [text, "", *table(heads, rows)],
        f"problems of 16 and 32 columns, 100 rows, {selections} random selections of true edges each.",
        f"0 to {seeds - 1} at d = 16, a third of them at d = 32; the paper has 30 runs of 50 selections.",
        "shares over problems and selections.",
        (*SETTINGS, "the sample comes from our posterior; Gadget and DiBS were not run"),
    )


PAGE = Page("S5", "s5-figure-3", "Figure 3: coverage of known edges", measure)
