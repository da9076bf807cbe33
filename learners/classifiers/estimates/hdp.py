"""Context-tree probabilities from hierarchical Dirichlet processes: the state of a tree, and its deterministic
estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from learners.classifiers.estimates import hdp_kernels as kernels
from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.errors import Cancelled, InvalidParameter
from learners.kernels.arrays import Floats, Integers, Mask, freeze_arrays
from learners.models.parameters import Parameters
from learners.passes.engine import Advance
from learners.passes.threads import run_on_threads

TYINGS = ("level", "parent", "single")
ROOTS = ("unit", "dirichlet")
# The Gamma prior of the concentrations in the authors' program, and their cap.
AUTHORS_PRIOR = (2.0, 1.0)
LARGEST = 4000.0
ROOT_CONCENTRATION = 2.0
SWEEPS_PER_CONCENTRATION = 5
# A sampler is asked to stop only between two calls of its kernel: so many draws, times sweeps, take a tenth of a second.
CALL_ITEMS = 1 << 20

Tick = Callable[[float | None], None]  # told the share that is done, if it is another one; raises when all shall stop
Result = TypeVar("Result")


@dataclass(frozen=True)
class HDPParameters(Parameters):
    """Parameters of the hierarchical Dirichlet process and its sampler.

    Parameters
    ----------
    iterations : int or "auto"
        Sweeps of the sampler, for the estimator hdp alone; the first min(1000, iterations / 10) are not used. "auto" starts from the deterministic
        estimate and stops when the estimates have settled: when those of the two halves of the draws differ by less than 2 %
        (root mean square of the relative differences over the rows) and no split R-hat is above 1.1, after 1,000 to 50,000
        sweeps. A tree that has not settled by then gets the deterministic estimates; the model records the number of
        such trees.
    tying : "level", "parent" or "single"
        Which contexts share a concentration: those of one length, those with one parent, or all.
    root : "unit" or "dirichlet"
        The prior of the shortest context: one table per value, as in the authors' program, or a Dirichlet distribution.
    prior : tuple of two floats
        Shape and rate of the Gamma prior of the concentrations, at least 0 each. The authors' program uses (2, 1),
        their paper (0, 0). A smaller shape trusts deep contexts more.
    seed : int
        Start of the sampler's random numbers; the same seed gives the same model.

    Raises
    ------
    InvalidParameter
    """

    iterations: int | Literal["auto"] = 50_000
    tying: str = "level"
    root: str = "unit"
    prior: tuple[float, float] = AUTHORS_PRIOR
    seed: int = 0

    def __post_init__(self) -> None:
        if self.iterations != "auto" and not (isinstance(self.iterations, int) and 10 <= self.iterations <= 10**8):
            raise InvalidParameter("iterations", self.iterations, 'a whole number from 10 to 100,000,000, or "auto"')
        if self.tying not in TYINGS:
            raise InvalidParameter("tying", self.tying, f"one of {', '.join(TYINGS)}")
        if self.root not in ROOTS:
            raise InvalidParameter("root", self.root, f"one of {', '.join(ROOTS)}")
        if not (len(self.prior) == 2 and all(0 <= number <= 1e6 for number in self.prior)):
            raise InvalidParameter("prior", self.prior, "two numbers from 0 to 1,000,000: shape and rate")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise InvalidParameter("seed", self.seed, "a whole number from 0 to 2^63 - 1")


class Posterior(NamedTuple):
    """Posterior of one context tree.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), sections 4 and 5.
    """

    estimates: Estimates  # posterior means; hierarchical
    # (n_cells,) float64: posterior variance of each probability, by moments: of its Dirichlet distribution given the
    # counts above, of what it inherits, and between the draws.
    variance: Floats
    concentrations: Floats  # (n_groups,) float64: their means over the draws
    n_sweeps: int
    # The largest split R-hat of the logarithms of the concentrations and of the log likelihood; NaN without draws.
    r_hat: float
    # (n_draws,) float64: of the rows given the estimates of each draw, in nats: the trace to look at.
    log_likelihood: Floats
    # False if `iterations="auto"` ended without; the estimates are then the deterministic ones, and `r_hat` and
    # `log_likelihood` those of the draws that were dropped.
    is_settled: bool = True


class Chain:
    """Sampler of one tree.

    `stream` is the tree's number, which selects its random numbers, so that threads do not matter. `check` is
    called several times a second; an error that it raises stops sampling. With `is_sampled` it starts with draws;
    the deterministic solution needs neither draws nor the kernels for them.
    """

    def __init__(
        self,
        tree: ContextTree,
        parameters: HDPParameters,
        stream: int,
        check: Callable[[], object] = lambda: None,
        is_sampled: bool = True,
    ) -> None:
        self.tree, self.parameters, self.check = tree, parameters, check
        self.plan = build_hdp_plan(tree, parameters.tying, parameters.root)
        freeze_arrays(*(array for array in self.plan if isinstance(array, np.ndarray)))
        self.call_sweeps = max(1, CALL_ITEMS // max(1, self.plan.item_base.size))
        self.settings = np.array([*parameters.prior, LARGEST, ROOT_CONCENTRATION, SWEEPS_PER_CONCENTRATION])
        self.state = self._new_state(np.int64, stream)
        self.sums, self.n_draws, self.n_sweeps = np.zeros((2, tree.n_cells)), 0, 0
        self.log_likelihood: list[float] = []
        self._scratch = np.empty((3, tree.n_cells))
        arrays = (tree.parent, tree.cell_starts, tree.cell_count, tree.cell_parent)
        self._tree = kernels.Tree(*arrays, int(tree.level_starts[-2]), tree.n_values)
        if is_sampled:
            self._fill_first(self.state)
            kernels.draw_hdp_probabilities(self.plan, self.state, ROOT_CONCENTRATION)

    def _new_state(self, dtype: type[np.int64] | type[np.float64], stream: int) -> kernels.State:
        return kernels.State(
            n=self.plan.item_base.astype(dtype),
            weight=np.zeros(self.plan.item_base.size),
            concentration=np.full(self.plan.group_starts.size - 1, 2.0),
            node_total=self.tree.node_counts().astype(dtype),
            random=np.random.SeedSequence([self.parameters.seed, stream]).generate_state(1, np.uint64).view(np.uint64),
        )

    def _fill_first(self, state: kernels.State) -> None:
        """Initialize the tables as expected for a concentration of 2, from the deepest level up, summed into n."""
        starts = self.plan.item_starts.tolist()
        for first, last in zip(starts[-2:0:-1], starts[:1:-1], strict=True):
            tables = _first_tables(state.n[first:last])
            np.add.at(state.n, self.plan.item_parent[first:last], tables.astype(state.n.dtype))

    def sweep(self, n_sweeps: int, trace: Floats | None = None) -> None:
        """Run sweeps; writes the concentrations after each sweep to trace (n_sweeps, n_groups)."""
        trace = np.empty((0, 0)) if trace is None else trace
        for first in range(0, n_sweeps, self.call_sweeps):
            self.check()
            n_more = min(self.call_sweeps, n_sweeps - first)
            part = trace[first : first + n_more]
            kernels.run_hdp_gibbs_sweeps(self.plan, self.state, self.settings, self.n_sweeps, n_more, part)
            self.n_sweeps += n_more

    def draw(self) -> None:
        """Add the estimates of the current state to the sums."""
        self._add_estimates(self.state)

    def _add_estimates(self, state: kernels.State) -> None:
        plan, n = self.plan, state.n.astype(np.float64, copy=False)
        given = (self._tree, plan.item_cell, plan.child_group, n, state.concentration, ROOT_CONCENTRATION)
        kernels.add_hdp_estimates(*given, self._scratch, self.sums)
        leaves = slice(int(self.tree.cell_starts[self._tree.deepest]), None)
        self.log_likelihood.append(float((self.tree.cell_count[leaves] * np.log(self._scratch[1, leaves])).sum()))
        self.n_draws += 1

    def start_at_fixed_point(self, n_most: int = 200, tolerance: float = 1e-3) -> int:
        """Replace the state by the deterministic solution; returns the number of sweeps."""
        expected = self._new_state(np.float64, 0)
        self._fill_first(expected)
        spread = np.zeros(self.plan.item_base.size)
        n_sweeps, is_settled = 0, False
        while n_sweeps < n_most and not is_settled:
            self.check()
            n_more = min(self.call_sweeps, n_most - n_sweeps)
            given = (self.plan, expected, spread, self.settings)
            n_made = kernels.run_hdp_fixed_point(*given, n_sweeps == 0, n_more, tolerance)
            is_settled = n_made <= n_more
            n_sweeps += min(n_made, n_more)
        self.state.weight[:] = expected.weight
        self.state.concentration[:] = expected.concentration
        self._expected = expected
        return n_sweeps

    def draw_fixed_point(self) -> None:
        """Add the estimates at the deterministic solution to the sums."""
        self._add_estimates(self._expected)

    def solution(self) -> tuple[Floats, Floats]:
        """Return the solution found by `start_at_fixed_point`: customers (n_cells,), and concentrations (n_groups,).

        Customers are the rows at the deepest level, and above it the expected number of the children's tables.
        """
        customers = np.ones(self.tree.n_cells)
        customers[self.plan.item_cell] = self._expected.n
        leaves = slice(int(self.tree.cell_starts[self._tree.deepest]), None)
        customers[leaves] = self.tree.cell_count[leaves]
        return customers, self._expected.concentration

    def posterior(self, trace: Floats) -> Posterior:
        """Return the posterior from the sums and the concentrations (n_sweeps, n_groups) of their sweeps."""
        log_likelihood = np.array(self.log_likelihood)
        r_hat = float(np.max([split_r_hat(np.log(trace)), split_r_hat(log_likelihood[:, np.newaxis])]))  # NaN if one is
        probability = self.sums[0] / self.n_draws
        variance = np.maximum(self.sums[1] / self.n_draws - probability**2, 0.0)
        estimates = Estimates(probability, _rest(self.tree, probability), hierarchical=True)
        return Posterior(estimates, variance, trace.mean(axis=0), self.n_sweeps, r_hat, log_likelihood)


def _first_tables(n: Integers | Floats) -> Floats:
    """Return max(1, ⌊α (ψ(α + n) - ψ(α))⌋) of integers n with α = 2; never close enough to an integer for rounding to
    matter.
    """
    of_few = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(2, 66))])[np.minimum(n, 64).astype(np.int64)]
    x = np.maximum(n, 64) + 2.0
    of_many = np.log(x) - 0.5 / x - 1.0 / (12.0 * x * x) - (1.0 - np.euler_gamma)
    return np.maximum(np.floor(2.0 * np.where(n < 64, of_few, of_many)), 1.0)


def split_r_hat(trace: Floats) -> float:
    """Return the largest split R-hat of several quantities; near 1 if the two halves of a chain agree.

    For a trace (n_draws, n_quantities) float64: 1 for a constant quantity; NaN with fewer than four draws or
    without quantities.

    References
    ----------
    Gelman et al. (2013), Bayesian Data Analysis, third edition, section 11.4.
    """
    half = len(trace) // 2
    if half < 2 or trace.shape[1] == 0:
        return float("nan")
    halves = np.stack([trace[:half], trace[-half:]])
    within = halves.var(axis=1, ddof=1).mean(axis=0)
    between = half * halves.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r_hat = np.sqrt((half - 1) / half + between / (half * within))
    return float(np.where(within > 0, r_hat, np.where(between > 0, np.inf, 1.0)).max())


def _rest(tree: ContextTree, probability: Floats) -> Floats:
    """Return each node's probability of the values without a cell, relative to the node above."""
    starts = tree.cell_starts[:-1]
    own = np.add.reduceat(probability, starts)
    above = np.ones(tree.n_nodes)
    above[1:] = 1.0 - np.add.reduceat(probability[tree.cell_parent], starts)[1:]
    above[0] = np.maximum(tree.n_values - int(tree.cell_starts[1]), 1)
    # Where every value has a cell nobody asks; what rounding leaves of nothing must not become a negative probability.
    return np.where(above > 1e-12, np.maximum(1.0 - own, 1e-15) / np.maximum(above, 1e-12), 1.0)


def hdp_map_estimates(
    trees: Sequence[ContextTree],
    parameters: HDPParameters,
    threads: int = 1,
    advance: Advance | None = None,
    tolerance: float = 1e-3,
) -> list[Posterior]:
    """Estimate the same model with the expectation of t instead of draws, and the concentrations at a fixed point.

    Parameters and result as in `hdp_sampler.hdp_gibbs_estimates`, `tolerance` as in `hdp_map_solution`;
    `iterations` and `seed` are ignored.
    """

    def solve(tree: ContextTree, i: int, tick: Tick) -> Posterior:
        chain = Chain(tree, parameters, i, lambda: tick(None), is_sampled=False)
        chain.n_sweeps = chain.start_at_fixed_point(tolerance=tolerance)
        chain.draw_fixed_point()
        tick(1.0)
        return chain.posterior(chain.state.concentration[np.newaxis])

    return run_trees_in_parallel(trees, threads, advance, solve)


def hdp_map_solution(
    tree: ContextTree, parameters: HDPParameters, n_most: int, tolerance: float
) -> tuple[Floats, Floats]:
    """Return the solution behind `hdp_map_estimates` for one tree; see `Chain.solution`.

    Stops after `n_most` sweeps, or when no log concentration changes by more than the tolerance.
    """
    chain = Chain(tree, parameters, 0, is_sampled=False)
    chain.start_at_fixed_point(n_most, tolerance)
    return chain.solution()


def build_hdp_plan(tree: ContextTree, tying: str, root: str) -> kernels.Plan:
    """Build the sampling plan of a context tree; tying and root as in `HDPParameters`."""
    n_levels = tree.level_starts.size - 1
    levels = [slice(*tree.cell_starts[tree.level_starts[level : level + 2]].tolist()) for level in range(n_levels)]
    base, is_item, is_inner = _items(tree, levels)
    node_of_cell = tree.node_of_cell()
    parts = [np.flatnonzero(is_item[cells]) + cells.start for cells in levels]
    # Of one n after another, so that the branches of drawing t are foreseen.
    parts[-1] = parts[-1][np.argsort(base[parts[-1]], kind="stable")]
    item_cell = np.concatenate(parts)
    item_of_cell = np.full(tree.n_cells, -1, np.int64)
    item_of_cell[item_cell] = np.arange(item_cell.size)
    above = tree.cell_parent[item_cell]
    item_starts = np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64)
    node_level = np.repeat(np.arange(n_levels), np.diff(tree.level_starts))
    active_node, active_first, active_last = _active(
        node_of_cell[item_cell[: item_starts[-2]]], is_inner[item_cell[: item_starts[-2]]]
    )
    child_group, group_starts, group_nodes = _groups(tree, node_level, tying)
    return kernels.Plan(
        item_starts=item_starts,
        item_parent=np.where(above >= 0, item_of_cell[above], -1),
        item_base=base[item_cell],
        item_cell=item_cell,
        item_node=node_of_cell[item_cell],
        is_inner=is_inner[item_cell].astype(np.uint8),
        active_starts=np.searchsorted(node_level[active_node], np.arange(n_levels)),
        active_node=active_node,
        active_first=active_first,
        active_last=active_last,
        node_fixed=np.bincount(node_of_cell[~is_item], minlength=tree.n_nodes).astype(np.int64),
        node_parent=tree.parent,
        node_level=node_level,
        child_group=child_group,
        group_starts=group_starts,
        group_nodes=group_nodes,
        n_values=tree.n_values,
        is_unit_root=root == "unit",
    )


def _items(tree: ContextTree, levels: list[slice]) -> tuple[Integers, Mask, Mask]:
    """Return for each cell its rows or number of fixed children, whether it is an item, and whether it has items below."""
    base = np.zeros(tree.n_cells, np.int64)
    is_item, is_inner = np.zeros(tree.n_cells, bool), np.zeros(tree.n_cells, bool)
    deepest = levels[-1]
    base[deepest] = tree.cell_count[deepest]
    is_item[deepest] = base[deepest] > 1
    for cells, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
        parent = tree.cell_parent[below] - cells.start
        n_children = np.bincount(parent, minlength=cells.stop - cells.start)
        n_items = np.bincount(parent, weights=is_item[below], minlength=cells.stop - cells.start).astype(np.int64)
        base[cells] = n_children - n_items
        is_item[cells] = (n_children > 1) | (n_items > 0)
        is_inner[cells] = n_items > 0
    return base, is_item, is_inner


def _active(node: Integers, is_inner: Mask) -> tuple[Integers, Integers, Integers]:
    """Return the nodes with inner items, and the range of items of each; items are sorted by node."""
    nodes, first = np.unique(node, return_index=True)
    last = np.append(first[1:], node.size)
    has_inner = np.add.reduceat(is_inner, first) > 0 if node.size else np.zeros(0, bool)
    return nodes[has_inner], first[has_inner].astype(np.int64), last[has_inner].astype(np.int64)


def _groups(tree: ContextTree, node_level: Integers, tying: str) -> tuple[Integers, Integers, Integers]:
    """Return the concentration group of each node's children, and the nodes of each group."""
    n_inner = int(tree.level_starts[-2])
    child_group = np.zeros(tree.n_nodes, np.int64)
    if tying == "level":
        child_group[:n_inner] = node_level[:n_inner]
    elif tying == "parent":
        child_group[:n_inner] = np.arange(n_inner)
    group = child_group[tree.parent[1:]]
    nodes = np.argsort(group, kind="stable") + 1
    starts = np.searchsorted(group[nodes - 1], np.arange(int(group.max(initial=0)) + 2))
    return child_group, starts.astype(np.int64), nodes.astype(np.int64)


def run_trees_in_parallel(
    trees: Sequence[ContextTree],
    threads: int,
    advance: Advance | None,
    work: Callable[[ContextTree, int, Tick], Result],
) -> list[Result]:
    """Process all trees in parallel, largest first, reporting the share of cells done."""
    sizes = np.array([tree.n_cells for tree in trees], np.int64)
    done = np.zeros(len(trees))
    is_stopped = Event()

    def task(i: int) -> Result:
        def tick(share: float | None) -> None:
            if share is not None:
                done[i] = share
            if is_stopped.is_set():
                raise Cancelled

        tick(None)
        return work(trees[i], i, tick)

    def report() -> None:
        if advance is not None:
            advance(int(done @ sizes), int(sizes.sum()))

    order = np.argsort(-sizes, kind="stable").tolist()
    results = run_on_threads([partial(task, i) for i in order], threads, is_stopped, report, "hdp")
    report()
    by_tree = dict(zip(order, results, strict=True))
    return [by_tree[i] for i in range(len(trees))]
