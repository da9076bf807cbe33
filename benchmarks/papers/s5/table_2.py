"""AUROC of the other edges, given some true ones."""

from __future__ import annotations

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from benchmarks.papers.s5.problems import SETTINGS, known_edges, off_diagonal, posterior_of, problem
from learners.orders.queries.edges import posterior_edge_probabilities
from learners.orders.queries.known_network import area_under_roc_curve
from learners.orders.scores.known_edges import Edges

PAPER = {4: (".905 ± .073", ".903 ± .057"), 8: (".888 ± .089", ".933 ± .048"), 16: (".876 ± .081", ".957 ± .077")}


def measure(is_quick: bool) -> Measured:
    """Means over problems of 16 columns."""
    seeds = 8 if is_quick else 30
    found: dict[int, list[float]] = {0: [], **{n: [] for n in PAPER}}
    for seed in range(seeds):
        one = problem(16, seed)
        posterior, _ = posterior_of(one, seed, 400_000)
        for n, own in found.items():
            known = known_edges(one, n, seed)
            pairs = off_diagonal(16)
            for edge in known:
                pairs[edge] = False
            edges = posterior_edge_probabilities(posterior.sums(Edges(present=frozenset(known))))
            own.append(area_under_roc_curve(one.graph[pairs], edges[pairs]))
    rows = [[n, *PAPER.get(n, ("", "")), mean_and_error(own)] for n, own in found.items()]
    return Measured(
        table(["known edges", "paper, Gadget", "paper, TRUST-g", "ours"], rows),
        "problems of 16 columns and 32 expected edges, 100 rows.",
        f"0 to {seeds - 1}; the paper has 30.",
        "ours: mean and standard error over problems; the paper: mean and standard deviation over 30 runs.",
        SETTINGS,
    )


PAGE = Page("S5", "s5-table-2", "Table 2: AUROC given known edges", measure)
