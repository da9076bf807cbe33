"""Markov chains of a sampler: burn-in, phases, draws, and convergence by ArviZ's diagnostics."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from learners.circuits.bayesian.circuit_layout import Layout, draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import Kept, LazySampler, Moves, Store
from learners.circuits.bayesian.priors import Prior
from learners.circuits.parameters import AUTO, GibbsParameters
from learners.errors import Cancelled
from learners.kernels.arrays import Array, Floats, Uint8s
from learners.passes.engine import Advance, ignore_progress
from learners.passes.threads import run_on_threads

MOST_R_HAT = 1.1
# Sweeps of the first phase when iterations are "auto".
FIRST_SWEEPS = 100
# What the random numbers of a sweep are for.
START, SWEEP, DRAW = range(3)


@dataclass(frozen=True)
class Phase:
    """Sweeps whose draws are kept."""

    # first, last: sweeps before the phase, and when it is over.
    first: int
    last: int

    def draws_at(self, n: int) -> list[int]:
        """Return at most n evenly spaced sweeps, including the last."""
        n = min(n, self.last - self.first)
        return [self.last - (self.last - self.first) * k // n for k in range(n)][::-1]


def chain_phases(parameters: GibbsParameters) -> list[Phase]:
    """Return the phases that a run may take; each has as many sweeps as all before it."""
    if parameters.iterations != AUTO:
        return [Phase(parameters.iterations // 2, parameters.iterations)]
    phases = [Phase(FIRST_SWEEPS, 2 * FIRST_SWEEPS)]
    while 2 * phases[-1].last <= parameters.most_iterations:
        phases.append(Phase(phases[-1].last, 2 * phases[-1].last))
    return phases


@dataclass
class Run:
    """Result of the chains."""

    # (n_draws, n_parameters) float64: weights of the sums' edges, then leaf parameters, in the layout's order; of one
    # chain after the other.
    draws: Floats
    # (n_parameters,) float64: posterior mean of these given the state of highest log joint among those drawn from.
    mean: Floats
    choices: list[np.ndarray]  # list of (n_rows, n_positions) uint8: last state of each chain
    trace: Floats  # (n_chains, n_sweeps, 7) float64: as in `sampler.Kept`
    diagnostics: Diagnostics


class _Chain:
    """One chain, resumed or new, which a thread runs through a phase."""

    def __init__(
        self, number: int, sampler: LazySampler, layout: Layout, store: Store, seed: tuple[int, ...], n_draws: int
    ) -> None:
        self.number, self.sampler, self.layout, self.store, self.seed = number, sampler, layout, store, seed
        self.draws = store.draws(number, n_draws, layout.n_parameters)
        self.trace: list[Floats] = []
        self.sweep, self.n_draws, self.best = 0, 0, -np.inf
        saved, n_children = store.load(number), sampler.prior.shape.n_children
        if saved is None or len(saved.choices) != sampler.rows.n_rows or saved.choices.max(initial=0) >= n_children:
            self.state = sampler.init(self.random(0, START))
            return
        self.state, self.trace = sampler.state_of(saved.choices), list(saved.trace)
        self.sweep, self.n_draws, self.best = saved.sweep, saved.n_draws, saved.best

    def random(self, sweep: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([*self.seed, self.number, sweep, purpose])

    def through(self, phase: Phase, n_draws: int, stopped: threading.Event) -> None:
        """Run sweeps to the end of a phase, drawing on the way."""
        at = phase.draws_at(n_draws)
        if self.sweep <= phase.first:
            self.n_draws, self.best = 0, -np.inf
        while self.sweep < phase.last:
            if stopped.is_set():
                raise Cancelled
            self.state, info = self.sampler.step(self.random(self.sweep, SWEEP), self.state)
            self.sweep += 1
            self.trace.append(np.concatenate([[info.log_joint], info.proposals.ravel()]))
            if self.n_draws < len(at) and self.sweep == at[self.n_draws]:
                self._draw()
            kept = Kept(self.sweep, self.state.choices, np.array(self.trace[-1:]), self.n_draws, self.best)
            self.store.save(self.number, kept)

    def _draw(self) -> None:
        prior, tallies, random = self.sampler.prior, self.state.tallies, self.random(self.sweep, DRAW)
        self.draws[self.n_draws] = self.layout.vector(draw_posterior_parameters(random, prior, tallies))
        self.n_draws += 1
        if self.state.log_joint > self.best:
            self.best = self.state.log_joint
            self.draws[-1] = self.layout.vector(draw_posterior_parameters(None, prior, tallies))


def run_chains(
    prior: Prior,
    layout: Layout,
    store: Store,
    parameters: GibbsParameters,
    *,
    seed: tuple[int, ...],
    known: Sequence[Uint8s] | None = None,
    threads: int = 1,
    advance: Advance = ignore_progress,
) -> Run:
    """Sample until the chains converge; the result depends on the seed, not on threads or interruptions of the run.

    known: the state of the first rows, (n_known, n_positions) uint8 for each chain; later rows are added at the
    start.
    """
    n_chains = parameters.chains
    per_chain = -(-parameters.draws // n_chains)
    moves = Moves(parameters.whole_moves, parameters.subtree_moves)
    samplers = [LazySampler(prior, store.rows(c), moves, None if known is None else known[c]) for c in range(n_chains)]
    chains = [_Chain(c, sampler, layout, store, seed, per_chain) for c, sampler in enumerate(samplers)]
    for phase in chain_phases(parameters):
        _through(chains, phase, per_chain, threads, advance)
        diagnostics = chain_diagnostics(_trace(chains, phase), phase.last, parameters.effective)
        if diagnostics.is_settled:
            break
    best = max(chains, key=lambda chain: chain.best)
    draws = np.concatenate([chain.draws[: chain.n_draws] for chain in chains])
    trace = _trace(chains, Phase(0, phase.last))
    choices = [chain.state.choices for chain in chains]
    return Run(draws, best.draws[-1].copy(), choices, trace, diagnostics)


def _through(chains: Sequence[_Chain], phase: Phase, n_draws: int, threads: int, advance: Advance) -> None:
    """Run all unfinished chains to the end of a phase."""
    stop = threading.Event()

    def report() -> None:
        done = sum(chain.sweep for chain in chains)
        advance(done, phase.last * len(chains), f"{done:,} sweeps{_in_words(chains)}")

    run_on_threads([partial(chain.through, phase, n_draws, stop) for chain in chains], threads, stop, report, "chain")


def _in_words(chains: Sequence[_Chain]) -> str:
    last = np.array([chain.trace[-1] for chain in chains if chain.trace])
    if not last.size:
        return ""
    whole, parts = (chain_acceptance_rate(last[:, first : first + 3]) or 0.0 for first in (1, 4))
    return f", log joint {last[:, 0].max():,.0f}, accepted {whole:.0%} of trees and {parts:.0%} of subtrees"


def _trace(chains: Sequence[_Chain], phase: Phase) -> Floats:
    return np.stack([np.array(chain.trace[phase.first : phase.last]) for chain in chains])


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of the phase whose draws are kept."""

    n_sweeps: int  # of each chain in all, those of earlier phases among them
    r_hat: float | None  # of the log joint, rank-normalised; None of a single chain
    effective: float  # effective sample size of the log joint
    is_settled: bool  # whether R-hat is at most 1.1, and the effective sample size what was asked for
    # whole_acceptance, subtree_acceptance: accepted among the proposals that change something; None without any.
    whole_acceptance: float | None
    subtree_acceptance: float | None


def chain_diagnostics(trace: Floats, n_sweeps: int, effective: int) -> Diagnostics:
    """Compute the diagnostics of a phase from its trace (n_chains, n_sweeps, 7), see `sampler.Kept`, after n_sweeps in
    all.

    References: Vehtari, Gelman, Simpson, Carpenter, Bürkner (2021), "Rank-normalization, folding, and localization: an
    improved R-hat".
    """
    # Here, as it takes most of a second to import, which only who samples shall wait for.
    from arviz_stats.base.array import array_stats

    logs = trace[:, :, 0]
    n_effective, r_hat = float("nan"), None
    if logs.shape[1] >= 4 and np.ptp(logs) > 0:
        n_effective = float(array_stats.ess(logs, method="bulk"))
        if len(logs) > 1:
            r_hat = float(array_stats.rhat(logs))
    is_settled = r_hat is not None and r_hat <= MOST_R_HAT and n_effective >= effective
    whole, subtree = (chain_acceptance_rate(trace[:, :, first : first + 3]) for first in (1, 4))
    return Diagnostics(n_sweeps, r_hat, n_effective, is_settled, whole, subtree)


def chain_acceptance_rate(proposals: Array) -> float | None:
    """Return the share of accepted proposals (…, 3) among those that change something; None without any."""
    _, rejected, accepted = proposals.reshape(-1, 3).sum(axis=0).tolist()
    return accepted / (rejected + accepted) if rejected + accepted else None
