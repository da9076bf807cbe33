"""Collapsed variational inference from several starts, to draws of a posterior as those of a sampler."""

from __future__ import annotations

import numpy as np

from learners.circuits.gibbs.chains import START, Run
from learners.circuits.gibbs.collapsed_vb import Expected, iterated, started
from learners.circuits.gibbs.diagnostics import Diagnostics
from learners.circuits.gibbs.layout import Layout
from learners.circuits.gibbs.parameters import drawn_parameters, mean_parameters
from learners.circuits.gibbs.priors import Prior
from learners.circuits.gibbs.sampler import Moves, RowBlocks, entered
from learners.circuits.gibbs.settings import AUTO, GibbsParameters
from learners.circuits.gibbs.store import Store
from learners.passes.engine import Advance, unheard

# Iterations end when one gains less than so many nats a row.
LEAST_GAIN = 1e-5


def inferred(
    prior: Prior,
    layout: Layout,
    store: Store,
    parameters: GibbsParameters,
    *,
    seed: tuple[int, ...],
    advance: Advance = unheard,
) -> Run:
    """Iterate from `chains` starts, which differ by how rows enter, and draw from the posterior of the best bound.

    A run that was killed starts again, and comes to the same.

    Parameters
    ----------
    prior : Prior
    layout : Layout
    store : Store
    parameters : GibbsParameters
        Of "auto" iterations each start ends when an iteration gains less than 1e-5 nats a row.
    seed : tuple of int
    advance : callable

    References
    ----------
    Zhao, Adel, Gordon, Amos (2016).
    """
    rows, found = store.rows(0), []
    most = parameters.most_iterations if parameters.iterations == AUTO else parameters.iterations
    least = LEAST_GAIN * rows.n_rows if parameters.iterations == AUTO else -np.inf
    for start in range(parameters.chains):
        random = np.random.default_rng([*seed, start, 0, START])
        first = entered(random, prior, rows, Moves(parameters.whole_moves, parameters.subtree_moves))
        found.append(_settled(prior, rows, started(first.tallies), most, least, advance))
    bounds = [trace[-1] for _, trace in found]
    posterior, _ = found[int(np.argmax(bounds))]
    trace = np.zeros((len(found), max(len(own) for _, own in found), 7))
    for chain, (_, own) in enumerate(found):
        trace[chain, :, 0] = own + own[-1:] * (trace.shape[1] - len(own))
    random = np.random.default_rng([*seed, parameters.chains, 0, START])
    draws = np.stack([layout.vector(drawn_parameters(random, prior, posterior)) for _ in range(parameters.draws)])
    is_settled = all(len(own) < most for _, own in found)
    told = Diagnostics(trace.shape[1], None, float(parameters.draws), is_settled, None, None)
    mean = layout.vector(mean_parameters(prior, posterior))
    return Run(draws, mean, [], trace, told, rows.n_rows, 1)


def _settled(
    prior: Prior, rows: RowBlocks, posterior: Expected, most: int, least: float, advance: Advance
) -> tuple[Expected, list[float]]:
    """The posterior when an iteration gains too little, and the bounds on the way."""
    bounds: list[float] = []
    for n in range(most):
        posterior, bound = iterated(prior, rows, posterior)
        bounds.append(bound)
        advance(n + 1, most, f"bound {bound:,.0f}")
        if n and bounds[-1] - bounds[-2] < least:
            break
    return posterior, bounds
