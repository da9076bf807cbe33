"""Posterior means of the HDPs of context trees, by Gibbs sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.estimates.hdp import Chain, HDPParameters, Posterior, Tick, run_trees_in_parallel
from learners.kernels.arrays import Floats
from learners.passes.engine import Advance

SWEEPS_PER_DRAW = 10
BLOCK_SWEEPS = 100
AUTO_BURN_IN, AUTO_LEAST, AUTO_MOST = 100, 1000, 50_000
AUTO_DIFFERENCE, AUTO_R_HAT = 0.02, 1.1


def hdp_gibbs_estimates(
    trees: Sequence[ContextTree], parameters: HDPParameters, threads: int = 1, advance: Advance | None = None
) -> list[Posterior]:
    """Compute posterior means by Gibbs sampling, one chain per tree; trees are sampled in parallel, largest first.

    A sweep draws the pseudo-counts t of all cells given the probabilities of the inner nodes, from the leaves up
    with the probabilities integrated out on the way, then the concentrations, then the probabilities from the
    root down. The posterior of (t, α) equals that of the collapsed sampler and stays exactly invariant. The
    result does not depend on the number of threads. `advance` periodically receives (sweeps done, total sweeps);
    raising in it stops all threads.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 5; Teh, Jordan, Beal, Blei (2006), section 5.3, for the sampler with
    explicit probabilities.
    """
    sample = _sample_until_settled if parameters.iterations == "auto" else _sample

    def work(tree: ContextTree, i: int, tick: Tick) -> Posterior:
        return sample(Chain(tree, parameters, i, lambda: tick(None)), tick)

    return run_trees_in_parallel(trees, threads, advance, work)


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
    """Run as many sweeps as trace has rows, with a draw after every tenth and after the last."""
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
            posterior = chain.posterior(trace)
            # Without a concentration or draws there is no R-hat, and nothing that could move.
            if difference < AUTO_DIFFERENCE and not posterior.r_hat > AUTO_R_HAT:
                return posterior
            if chain.n_sweeps >= AUTO_MOST:
                return _deterministic(chain, posterior)
            n_more = min(len(trace), AUTO_MOST - chain.n_sweeps)


def _deterministic(chain: Chain, found: Posterior) -> Posterior:
    """Return the deterministic estimates instead of draws that did not converge."""
    chain.sums, chain.n_draws, chain.log_likelihood = np.zeros_like(chain.sums), 0, []
    chain.draw_fixed_point()
    solved = chain.posterior(chain.solution()[1][np.newaxis])
    return solved._replace(r_hat=found.r_hat, log_likelihood=found.log_likelihood, is_settled=False)
