"""Probabilities of context trees from hierarchical Dirichlet processes: by Gibbs sampling, or deterministically."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from learners.classifiers.estimates import hdp_kernels as kernels
from learners.classifiers.estimates import hdp_map_kernels as map_kernels
from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.estimates.hdp_plan import ROOTS, TYINGS, plan_of
from learners.classifiers.estimates.hdp_threads import Tick, in_parallel
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, freeze
from learners.models.parameters import Parameters
from learners.passes.engine import Advance

PRIOR_SHAPE, PRIOR_RATE, LARGEST = 2.0, 1.0, 4000.0
ROOT_CONCENTRATION = 2.0
SWEEPS_PER_CONCENTRATION = 5
SWEEPS_PER_DRAW = 10
BLOCK_SWEEPS = 100
# A sampler is asked to stop only between two calls of its kernel: so many draws, times sweeps, take a tenth of a second.
CALL_ITEMS = 1 << 20
AUTO_BURN_IN, AUTO_LEAST, AUTO_MOST = 100, 1000, 50_000
AUTO_DIFFERENCE, AUTO_R_HAT = 0.02, 1.1


@dataclass(frozen=True)
class HDPParameters(Parameters):
    """Of the hierarchical Dirichlet process and its sampler.

    Parameters
    ----------
    iterations : int or "auto"
        Sweeps of the sampler, for the estimator hdp alone; the first min(1000, iterations / 10) are not used. "auto" starts from the deterministic
        estimate and stops when the estimates have settled: when those of the two halves of the draws differ by less than 2 %
        (root mean square of the relative differences over the rows) and no split R-hat is above 1.1, after 1,000 to 50,000
        sweeps. A tree that has not settled by then gets the deterministic estimates, and the model says how many did.
    tying : "level", "parent" or "single"
        Which contexts share how much they trust shorter ones: those of one length, those with one parent, or all.
    root : "unit" or "dirichlet"
        The prior of the shortest context: one table per value, as the authors' program has it, or a Dirichlet distribution.
    seed : int
        Start of the sampler's random numbers; the same seed gives the same model.

    Raises
    ------
    InvalidParameter
    """

    iterations: int | Literal["auto"] = 50_000
    tying: str = "level"
    root: str = "unit"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.iterations != "auto" and not (isinstance(self.iterations, int) and 10 <= self.iterations <= 10**8):
            raise InvalidParameter("iterations", self.iterations, 'a whole number from 10 to 100,000,000, or "auto"')
        if self.tying not in TYINGS:
            raise InvalidParameter("tying", self.tying, f"use one of {', '.join(TYINGS)}")
        if self.root not in ROOTS:
            raise InvalidParameter("root", self.root, f"use one of {', '.join(ROOTS)}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise InvalidParameter("seed", self.seed, "a whole number from 0 to 2^63 - 1")


class Posterior(NamedTuple):
    """What is known of one context tree.

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


class Solution(NamedTuple):
    """The deterministic solution of one context tree."""

    # (n_cells,) float64: rows at the deepest level, the expected number of tables of the children above it.
    customers: Floats
    concentrations: Floats  # (n_groups,) float64
    n_sweeps: int


class Chain:
    """The sampler of one tree.

    `stream` is which tree it is: each has its own random numbers, so that threads do not matter. `check` is called several
    times a second; what it raises ends the sampling. With `is_sampled` it begins with draws; the deterministic solution
    needs none, and no kernels that draw.
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
        self.plan = plan_of(tree, parameters.tying, parameters.root)
        freeze(*(array for array in self.plan if isinstance(array, np.ndarray)))
        self.call_sweeps = max(1, CALL_ITEMS // max(1, self.plan.item_base.size))
        self.settings = np.array([PRIOR_SHAPE, PRIOR_RATE, LARGEST, ROOT_CONCENTRATION, SWEEPS_PER_CONCENTRATION])
        self.state = self._new_state(np.int64, stream)
        self.sums, self.n_draws, self.n_sweeps = np.zeros((2, tree.n_cells)), 0, 0
        self.log_likelihood: list[float] = []
        self._scratch = np.empty((3, tree.n_cells))
        deepest = int(tree.level_starts[-2])
        self._tree = map_kernels.Tree(
            tree.parent, tree.cell_starts, tree.cell_count, tree.cell_parent, deepest, tree.n_values
        )
        if is_sampled:
            map_kernels.start_tables(self.plan, self.state)
            kernels.draw_probabilities(self.plan, self.state, ROOT_CONCENTRATION)

    def _new_state(self, dtype: type[np.int64] | type[np.float64], stream: int) -> kernels.State:
        n_groups = self.plan.group_starts.size - 1
        random = (
            np.random.SeedSequence([self.parameters.seed, stream])
            .generate_state(1, np.uint64)
            .astype(np.uint64, copy=False)
        )
        totals = self.tree.node_counts().astype(dtype)
        return kernels.State(
            n=self.plan.item_base.astype(dtype),
            weight=np.zeros(self.plan.item_base.size),
            concentration=np.full(n_groups, 2.0),
            node_total=totals,
            random=random,
        )

    def sweep(self, n_sweeps: int, trace: Floats | None = None) -> None:
        """Sample on; the concentrations after each sweep go to trace (n_sweeps, n_groups)."""
        trace = np.empty((0, 0)) if trace is None else trace
        for first in range(0, n_sweeps, self.call_sweeps):
            self.check()
            n_more = min(self.call_sweeps, n_sweeps - first)
            part = trace[first : first + n_more]
            kernels.run_sweeps(self.plan, self.state, self.settings, self.n_sweeps, n_more, part)
            self.n_sweeps += n_more

    def draw(self) -> None:
        """Add the estimates given the present state to the sums."""
        self._add_estimates(self.state)

    def _add_estimates(self, state: kernels.State) -> None:
        plan = self.plan
        map_kernels.add_estimates(
            self._tree,
            plan.item_cell,
            plan.child_group,
            state.n,
            state.concentration,
            ROOT_CONCENTRATION,
            self._scratch,
            self.sums,
        )
        leaves = slice(int(self.tree.cell_starts[self._tree.deepest]), None)
        self.log_likelihood.append(float((self.tree.cell_count[leaves] * np.log(self._scratch[1, leaves])).sum()))
        self.n_draws += 1

    def start_at_fixed_point(self, n_most: int = 200, tolerance: float = 1e-3) -> int:
        """Put the deterministic solution in place of the state; returns the sweeps it took."""
        expected = self._new_state(np.float64, 0)
        spread = np.zeros(self.plan.item_base.size)
        n_sweeps, is_settled = 0, False
        while n_sweeps < n_most and not is_settled:
            self.check()
            n_more = min(self.call_sweeps, n_most - n_sweeps)
            n_made = map_kernels.run_fixed_point(
                self.plan, expected, spread, self.settings, n_sweeps == 0, n_more, tolerance
            )
            is_settled = n_made <= n_more
            n_sweeps += min(n_made, n_more)
        self.state.weight[:] = expected.weight
        self.state.concentration[:] = expected.concentration
        self._expected = expected
        return n_sweeps

    def draw_fixed_point(self) -> None:
        """Add the estimates at the deterministic solution to the sums."""
        self._add_estimates(self._expected)

    def solution(self) -> Solution:
        """The deterministic solution, once `start_at_fixed_point` has found it."""
        customers = np.ones(self.tree.n_cells)
        customers[self.plan.item_cell] = self._expected.n
        leaves = slice(int(self.tree.cell_starts[self._tree.deepest]), None)
        customers[leaves] = self.tree.cell_count[leaves]
        return Solution(customers, self._expected.concentration, self.n_sweeps)

    def posterior(self, trace: Floats) -> Posterior:
        """What the sums say, and the concentrations (n_sweeps, n_groups) of the sweeps behind them."""
        log_likelihood = np.array(self.log_likelihood)
        r_hat = max(split_r_hat(np.log(trace)), split_r_hat(log_likelihood[:, np.newaxis]), key=_nan_first)
        probability = self.sums[0] / self.n_draws
        variance = np.maximum(self.sums[1] / self.n_draws - probability**2, 0.0)
        estimates = Estimates(probability, _rest(self.tree, probability), hierarchical=True)
        return Posterior(estimates, variance, trace.mean(axis=0), self.n_sweeps, r_hat, log_likelihood)


def split_r_hat(trace: Floats) -> float:
    """The largest split R-hat of several quantities: near 1 when the first and the second half of a chain agree.

    Of a trace (n_draws, n_quantities) float64: 1 for a quantity that never moves; NaN with fewer than four draws or
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


def _nan_first(value: float) -> float:
    return np.inf if np.isnan(value) else value


def _rest(tree: ContextTree, probability: Floats) -> Floats:
    """For each node the probability of the values without a cell, as a share of what it is at the node above."""
    starts = tree.cell_starts[:-1]
    own = np.add.reduceat(probability, starts)
    above = np.ones(tree.n_nodes)
    above[1:] = 1.0 - np.add.reduceat(probability[tree.cell_parent], starts)[1:]
    above[0] = np.maximum(tree.n_values - int(tree.cell_starts[1]), 1)
    # Where every value has a cell nobody asks; what rounding leaves of nothing must not become a negative probability.
    return np.where(above > 1e-12, np.maximum(1.0 - own, 1e-15) / np.maximum(above, 1e-12), 1.0)


def hdp_estimates(
    trees: Sequence[ContextTree], parameters: HDPParameters, threads: int = 1, advance: Advance | None = None
) -> list[Posterior]:
    """Posterior means by Gibbs sampling, one chain per tree; trees are sampled in parallel, the largest first.

    A sweep draws the pseudo-counts t of all cells given the probabilities of the inner nodes, from the leaves up with
    the probabilities integrated out on the way, then the concentrations, then the probabilities from the root down: the
    posterior of (t, α) is that of the collapsed sampler, and stays invariant exactly. The result does not depend on the
    number of threads. `advance` gets (sweeps done, sweeps in all) now and then; raising in it stops all threads.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 5; Teh, Jordan, Beal, Blei (2006), section 5.3, for the sampler with
    explicit probabilities.
    """
    sample = _sample_until_settled if parameters.iterations == "auto" else _sample

    def work(tree: ContextTree, i: int, tick: Tick) -> Posterior:
        return sample(Chain(tree, parameters, i, lambda: tick(None)), tick)

    return in_parallel(trees, threads, advance, work)


def hdp_map_estimates(
    trees: Sequence[ContextTree],
    parameters: HDPParameters,
    threads: int = 1,
    advance: Advance | None = None,
    tolerance: float = 1e-3,
) -> list[Posterior]:
    """The same model with the expectation of t in place of draws, and the concentrations at a fixed point.

    Parameters and result as of `hdp_estimates`, `tolerance` as of `hdp_map_solution`; `iterations` and `seed` do not matter.
    """

    def solve(tree: ContextTree, i: int, tick: Tick) -> Posterior:
        chain = Chain(tree, parameters, i, lambda: tick(None), is_sampled=False)
        chain.n_sweeps = chain.start_at_fixed_point(tolerance=tolerance)
        chain.draw_fixed_point()
        tick(1.0)
        return chain.posterior(chain.state.concentration[np.newaxis])

    return in_parallel(trees, threads, advance, solve)


def hdp_map_solution(tree: ContextTree, parameters: HDPParameters, n_most: int, tolerance: float) -> Solution:
    """What `hdp_map_estimates` makes its estimates of, for one tree.

    It ends after `n_most` sweeps, or when no logarithm of a concentration moves by more than the tolerance.
    """
    chain = Chain(tree, parameters, 0, is_sampled=False)
    chain.n_sweeps = chain.start_at_fixed_point(n_most, tolerance)
    return chain.solution()


def _sample(chain: Chain, tick: Tick) -> Posterior:
    n_sweeps = int(chain.parameters.iterations)
    burn_in = min(1000, n_sweeps // 10)
    for first in range(0, burn_in, BLOCK_SWEEPS):
        chain.sweep(min(BLOCK_SWEEPS, burn_in - first))
        tick(chain.n_sweeps / n_sweeps)
    trace = np.empty((n_sweeps - burn_in, chain.state.concentration.size))
    _draw_for(chain, trace, lambda: tick(chain.n_sweeps / n_sweeps))
    return chain.posterior(trace)


def _draw_for(chain: Chain, trace: Floats, tick: Callable[[], None]) -> None:
    """As many sweeps as trace has rows, with a draw after each tenth and after the last."""
    for first in range(0, len(trace), SWEEPS_PER_DRAW):
        chain.sweep(min(SWEEPS_PER_DRAW, len(trace) - first), trace[first : first + SWEEPS_PER_DRAW])
        chain.draw()
        if first % BLOCK_SWEEPS == 0:
            tick()


def _sample_until_settled(chain: Chain, tick: Tick) -> Posterior:
    chain.start_at_fixed_point()
    chain.sweep(AUTO_BURN_IN)
    traces, halves = [], []
    n_more = AUTO_LEAST // 2
    while True:
        before = chain.sums[0].copy(), chain.n_draws
        traces.append(np.empty((n_more, chain.state.concentration.size)))
        _draw_for(chain, traces[-1], lambda: tick(min(chain.n_sweeps / AUTO_MOST, 0.99)))
        halves.append((chain.sums[0] - before[0]) / (chain.n_draws - before[1]))
        trace = np.concatenate(traces)
        if len(halves) > 1:
            # Each batch is as long as all before it, so the last against the rest are two halves.
            relative = (halves[-1] - before[0] / before[1]) * chain.n_draws / chain.sums[0]
            difference = float(np.sqrt(np.average(relative**2, weights=chain.tree.cell_count)))
            found = chain.posterior(trace)
            # Without a concentration or draws there is no R-hat, and nothing that could move.
            if difference < AUTO_DIFFERENCE and not found.r_hat > AUTO_R_HAT:
                return found
            if chain.n_sweeps >= AUTO_MOST:
                return _deterministic(chain, found)
            n_more = min(len(trace), AUTO_MOST - chain.n_sweeps)


def _deterministic(chain: Chain, found: Posterior) -> Posterior:
    """The deterministic estimates in place of those of draws that have not settled."""
    chain.sums, chain.n_draws, chain.log_likelihood = np.zeros_like(chain.sums), 0, []
    chain.draw_fixed_point()
    solved = chain.posterior(chain.solution().concentrations[np.newaxis])
    return solved._replace(r_hat=found.r_hat, log_likelihood=found.log_likelihood, is_settled=False)
