"""Chains of the two samplers on a complete tree: top-down, the product's, and bottom-up, as the paper's baseline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.bayesian_circuits import table_of
from learners.circuits.bayesian.circuit_draws import log_mean_exp
from learners.circuits.bayesian.circuit_layout import build_circuit_layout, draw_posterior_parameters
from learners.circuits.bayesian.collapsed_sampler import InMemory, LazySampler, Moves
from learners.circuits.bayesian.column_families import assign_column_families
from learners.circuits.bayesian.fixed_structure_gibbs import ParameterPrior, draw_induced_tree_counts
from learners.circuits.bayesian.priors import Prior, complete_tree_shape
from learners.circuits.bayesian.tuning import uncentre_sampler_rows, untuned_prior_settings
from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.parameters import GibbsParameters
from learners.passes.column_summaries import ColumnSummaries, quantile_binned_schema
from learners.passes.engine import collect
from learners.passes.sources.source import Source
from learners.schema.encoding.encode import encode

Array = np.ndarray
SETTINGS = (
    "one family of leaves per column and position, drawn from those that suit the column, with Gaussian, exponential, Poisson and categorical leaves as the paper's",
    "priors are fitted to the rows and not tuned for 12 hours; outliers are kept; the sets are those of our data folder",
    "the prior of a leaf is centred on the mean and variance of its column in the bottom-up chain, and fitted position by position in the top-down chain",
    "our two samplers are both compiled, the paper's are both in Julia: compare the ratios",
)


class Problem(NamedTuple):
    """Coded training rows (n, columns), and training and test rows (columns, n) in the circuit's units."""

    prior: Prior
    coded: Array
    train: Array
    test: Array


class Chain(NamedTuple):
    """What a chain yields."""

    seconds: float  # of a sweep
    train: Array  # (n_kept,) mean log-likelihoods of the training rows
    test: float  # of the test rows, by the mean density of the kept circuits


def problem(name: str, children: int, seed: int, shares: int = 10) -> Problem:
    """A set of the folder `mixed`, a tenth of it to test on."""
    table = table_of(name)
    order = np.random.default_rng(seed).permutation(table.num_rows)
    n_test = table.num_rows // shares
    train, test = (table.take(pa.array(rows)) for rows in (order[n_test:], order[:n_test]))
    summaries = collect(ColumnSummaries(None, {}), Source.of_table(train), threads=1)
    schema, histograms = quantile_binned_schema(summaries, 8), {n: c.histogram for n, c in summaries.found.items()}
    schema, coding = assign_column_families(schema, histograms, "paper", seed=seed)
    coded = coding.rows(schema, encode(train, schema), 0)
    coded_test = coding.rows(schema, encode(test, schema), train.num_rows)
    prior = untuned_prior_settings(GibbsParameters(), coded.shape[1]).prior(
        complete_tree_shape(coded.shape[1], children, seed), coding, coded.astype(np.float64), seed
    )
    # (columns, rows)
    return Problem(prior, coded, *(uncentre_sampler_rows(coding, rows) for rows in (coded, coded_test)))


def top_down(one: Problem, sweeps: int, kept: int, seed: int, moves: Moves = Moves(1, 0)) -> Chain:  # noqa: B008
    """Whole trees alone are the paper's moves; the product's default also moves subtrees."""
    sampler, random = LazySampler(one.prior, InMemory(one.coded), moves), np.random.default_rng(seed)
    layout, state = build_circuit_layout(one.prior), sampler.init(np.random.default_rng(seed))
    sampler.step(random, state)  # loads kernels

    def sweep() -> None:
        nonlocal state
        state, _ = sampler.step(random, state)

    return run(
        one, sweep, lambda: layout.circuit(draw_posterior_parameters(random, one.prior, state.tallies)), sweeps, kept
    )


def bottom_up(one: Problem, sweeps: int, kept: int, seed: int) -> Chain:
    """States of all rows by evaluating the whole network, then weights and leaves given the states."""
    random, layout = np.random.default_rng(seed), build_circuit_layout(one.prior)
    sampler = LazySampler(one.prior, InMemory(one.coded), Moves(1, 0))
    start = sampler.init(np.random.default_rng(seed))
    circuit = layout.circuit(draw_posterior_parameters(random, one.prior, start.tallies))
    known = np.nan_to_num(one.train)
    own = ParameterPrior(
        circuit, one.prior.strengths, np.nanmean(one.train, axis=1), np.maximum(known.var(axis=1), 1e-12)
    )
    draw_induced_tree_counts(circuit, one.train[:, :2], own, random)  # loads kernels

    def sweep() -> None:
        nonlocal circuit
        counts = draw_induced_tree_counts(circuit, one.train, own, random)
        log_weight, leaves = own.parameters(counts, random)
        circuit = Circuit(circuit.arrays._replace(log_weight=log_weight, leaf_parameters=leaves))

    return run(one, sweep, lambda: circuit, sweeps, kept)


def run(one: Problem, sweep: Callable[[], None], circuit_of: Callable[[], Circuit], sweeps: int, kept: int) -> Chain:
    """Half of the sweeps are left out; `kept` circuits of the others, evenly spread, are measured."""
    at = set(np.linspace(sweeps // 2, sweeps - 1, kept).astype(int).tolist()) if kept else set()
    seconds, train, logs = 0.0, [], []
    for number in range(sweeps):
        started = time.process_time()
        sweep()
        seconds += time.process_time() - started
        if number in at:
            circuit = circuit_of()
            train.append(log_values(circuit, one.train).mean())
            logs.append(log_values(circuit, one.test))
    test = float(log_mean_exp(np.stack(logs)).mean()) if logs else float("nan")
    return Chain(seconds / sweeps, np.array(train), test)


def effective_size(trace: Array) -> float:
    """n / (1 + 2 Σ ρ), with autocorrelations up to the first that is not positive."""
    n, centred = len(trace), trace - trace.mean()
    variance = float(centred @ centred)
    if variance == 0:
        return float("nan")
    total = 0.0
    for lag in range(1, n):
        rho = float(centred[lag:] @ centred[:-lag]) / variance
        if rho <= 0:
            break
        total += rho
    return n / (1 + 2 * total)
