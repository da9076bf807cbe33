"""Blocked Gibbs sampling for a circuit of any structure: induced trees given parameters, then parameters given the
trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from learners.circuits.bayesian.chains import Phase, chain_diagnostics, chain_phases
from learners.circuits.bayesian.circuit_draw_kernels import draw_and_count_induced_tree, draw_and_count_induced_trees
from learners.circuits.bayesian.circuit_draws import CircuitDraws
from learners.circuits.bayesian.circuit_layout import draw_gamma_or_mean, draw_leaf_parameters
from learners.circuits.bayesian.collapsed_sampler import MOST_IN_MEMORY
from learners.circuits.bayesian.leaf_kernels import FIRST, KIND, SECOND, SQUARES, TOTAL, N
from learners.circuits.bayesian.model import BayesianCircuit
from learners.circuits.bayesian.priors import Strengths
from learners.circuits.bayesian.tuning import untuned_prior_settings
from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, KIND_NAMES, POISSON, SUM
from learners.circuits.parameters import GibbsParameters
from learners.circuits.queries.array_answers import edge_posteriors_in_log_space, linear_space_circuit
from learners.circuits.variables import circuit_columns, mask_unknown_codes
from learners.errors import EmptyData, InvalidParameter, SchemaError
from learners.kernels.arrays import Floats, Integers, freeze_arrays
from learners.passes.engine import Advance
from learners.passes.learner import Rows
from learners.schema import Schema

# Least mean of counts and waiting times: that of numbers that are all zero.
LEAST_MEAN = 1e-6
# Columns of a trace: the log joint, up to a constant, and six of proposals, which this sampler has not.
TRACED = 7


class Counts(NamedTuple):
    """Counts of edges, cells and leaves over the induced trees of all rows."""

    edges: Integers  # (n_edges,) int64
    cells: Integers  # (n_parameters,) int64: of categorical leaves, the rows with each value
    # (n_nodes, 3) float64: of numeric leaves: rows, sum and sum of squares of their numbers less the column's centre.
    leaves: Floats


@dataclass(frozen=True, eq=False)
class ParameterPrior:
    """Independent priors of all weights and leaves: Dirichlet, Normal-Gamma around a column's mean and variance, and
    Gamma.
    """

    circuit: Circuit  # weights and values that are zero stay zero
    strengths: Strengths
    # centre, variance (n_variables,) float64: of numeric columns.
    centre: Floats
    variance: Floats

    def parameters(self, counts: Counts, random: np.random.Generator | None = None) -> tuple[Floats, Floats]:
        """Draw log weights (n_edges,) and leaf parameters from their posterior given counts; without `random`, return
        the means.

        References: Zhao, Adel, Gordon, Amos (2016), Collapsed variational inference for sum-product networks, section
        2; Yokoi, Sato (2024), table 8.
        """
        circuit, own = self.circuit, self.strengths
        parent = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
        log_weight = np.zeros(circuit.n_edges)
        of_sum = circuit.kind[parent] == SUM
        log_weight[of_sum] = _log_shares(
            random, counts.edges[of_sum] + own.alpha, circuit.log_weight[of_sum] > -np.inf, parent[of_sum]
        )
        leaf = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.leaf_starts))
        parameters = circuit.leaf_parameters.copy()
        in_table = circuit.kind[leaf] == CATEGORICAL
        parameters[in_table] = _log_shares(
            random, counts.cells[in_table] + own.categorical, parameters[in_table] > -np.inf, leaf[in_table]
        )
        first, second = draw_leaf_parameters(random, own, self._leaf_statistics(counts))
        at = circuit.leaf_starts[self.numeric]
        parameters[at] = first
        gaussian = circuit.kind[self.numeric] == GAUSSIAN
        parameters[at[gaussian] + 1] = second[gaussian]
        return log_weight, parameters

    @cached_property
    def numeric(self) -> Integers:
        """Numeric leaves."""
        return np.flatnonzero(self.circuit.kind >= GAUSSIAN)

    def _leaf_statistics(self, counts: Counts) -> Floats:
        """Return the priors and counts of the numeric leaves in the layout of `leaf_kernels`, (n_numeric, 8) float64."""
        kind, variable = self.circuit.kind[self.numeric], self.circuit.variable[self.numeric]
        leaf, centre = np.zeros((kind.size, 8)), self.centre[variable]
        leaf[:, KIND] = kind
        leaf[:, [N, TOTAL, SQUARES]] = counts.leaves[self.numeric]
        # Counts and waiting times are sums of the numbers themselves.
        leaf[kind != GAUSSIAN, TOTAL] += (leaf[:, N] * centre)[kind != GAUSSIAN]
        leaf[:, FIRST] = centre
        for code in (EXPONENTIAL, POISSON):
            leaf[kind == code, FIRST] = self._rate(code, variable[kind == code])
        leaf[:, SECOND] = self.strengths.gaussian * self.variance[variable]
        return leaf

    def _rate(self, kind: int, variable: Integers) -> Floats:
        """Return the second parameters of the Gamma priors under which counts and waiting times have their columns'
        means.
        """
        mean = np.maximum(self.centre[variable], LEAST_MEAN)
        return self.strengths.exponential * mean if kind == EXPONENTIAL else self.strengths.poisson / mean

    def log_density(self, circuit: Circuit) -> float:
        """Return the log density of a circuit's weights and leaves, up to a constant."""
        own, p = self.strengths, circuit.leaf_parameters
        in_table = np.repeat(circuit.kind == CATEGORICAL, np.diff(circuit.leaf_starts))
        total = 0.0
        for strength, logs in ((own.alpha, circuit.log_weight), (own.categorical, p[in_table])):
            total += (strength - 1.0) * float(logs[logs > -np.inf].sum())
        first, variable = circuit.leaf_starts[self.numeric], circuit.variable[self.numeric]
        kind, value = circuit.kind[self.numeric], p[first]
        gaussian = kind == GAUSSIAN
        precision = p[first[gaussian] + 1] ** -2.0
        far = own.gaussian * self.variance[variable] + 0.5 * own.rho * (value - self.centre[variable]) ** 2
        total += float(((own.gaussian - 0.5) * np.log(precision) - far[gaussian] * precision).sum())
        for code, shape in ((EXPONENTIAL, own.exponential), (POISSON, own.poisson)):
            rates = value[kind == code]
            total += float(((shape - 1.0) * np.log(rates) - self._rate(code, variable[kind == code]) * rates).sum())
        return total

    def no_rows(self) -> Counts:
        """Return counts of no rows."""
        circuit = self.circuit
        cells = np.zeros(circuit.leaf_parameters.size, np.int64)
        return Counts(np.zeros(circuit.n_edges, np.int64), cells, np.zeros((circuit.n_nodes, 3)))


def _log_shares(
    random: np.random.Generator | None, pseudo_counts: Floats, is_possible: Floats, group: Integers
) -> Floats:
    """Return the log of a Dirichlet variate, or of its mean, for each group of neighbours; -inf where impossible."""
    weights = np.where(is_possible, draw_gamma_or_mean(random, pseudo_counts), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights / np.bincount(group, weights)[group]) if weights.size else weights)


@dataclass
class _Chain:
    """One chain of the sampler."""

    prior: ParameterPrior
    x: Floats
    seed: tuple[int, int]
    circuit: Circuit
    counts: Counts
    sweep: int = 0
    trace: list[float] = field(default_factory=list)
    draws: list[tuple[Floats, Floats]] = field(default_factory=list)
    best: float = -np.inf
    best_counts: Counts | None = None

    def step(self) -> None:
        """Draw the trees of all rows given the parameters, then the parameters given the trees."""
        random = np.random.default_rng([*self.seed, self.sweep])
        self.counts = draw_induced_tree_counts(self.circuit, self.x, self.prior, random)
        self.circuit = self.prior.circuit.with_parameters(*self.prior.parameters(self.counts, random))
        self.trace.append(float(log_values(self.circuit, self.x).sum()) + self.prior.log_density(self.circuit))
        self.sweep += 1

    def keep(self) -> None:
        """Keep the current parameters as a draw of the posterior."""
        self.draws.append((self.circuit.log_weight, self.circuit.leaf_parameters))
        if self.trace[-1] > self.best:
            self.best, self.best_counts = self.trace[-1], self.counts


def draw_induced_tree_counts(circuit: Circuit, x: Floats, prior: ParameterPrior, random: np.random.Generator) -> Counts:
    """Draw an induced tree of each row of x (n_variables, n_rows) given a circuit's parameters, and return their
    counts.
    """
    counts, arrays = prior.no_rows(), linear_space_circuit(circuit).arrays
    state = random.integers(0, 1 << 64, 1, dtype=np.uint64)
    values, stack = np.empty(circuit.n_nodes), np.empty(circuit.n_nodes, np.int64)
    is_left = np.zeros(x.shape[1], np.bool_)
    draw_and_count_induced_trees(arrays, x, prior.centre, state, values, stack, *counts, is_left)
    for row in np.flatnonzero(is_left).tolist():
        shares = edge_posteriors_in_log_space(circuit, x, row)
        freeze_arrays(shares)
        draw_and_count_induced_tree(
            arrays, shares, np.ones(circuit.n_nodes), x, row, prior.centre, state, stack, *counts
        )
    return counts


@dataclass(frozen=True)
class GivenStructure:
    """Sampling of the parameters of a circuit. Raises SchemaError if a leaf has no conjugate prior."""

    schema: Schema
    circuit: Circuit  # of which the structure counts, and which weights are zero
    parameters: GibbsParameters
    facts: Mapping[str, object]  # of the model
    seed: int

    def __post_init__(self) -> None:
        for node in np.flatnonzero(self.circuit.kind > EXPONENTIAL).tolist():
            name = self.schema.columns[self.circuit.variable[node]]
            raise SchemaError(
                f"Column {name!r} has {KIND_NAMES[int(self.circuit.kind[node])]} leaves, which sampling cannot learn: use gauss, pois or "
                "expo, or learning='em'.",
                name,
            )

    def learn(self, rows: Rows, threads: int, advance: Advance) -> BayesianCircuit:
        """Learn the model from all rows. Raises EmptyData; InvalidParameter if the rows do not fit in memory."""
        prior, x = self._prior(rows, advance)
        parameters = self.parameters
        per_chain = -(-parameters.draws // parameters.chains)
        chains = []
        for number in range(parameters.chains):
            first = prior.parameters(prior.no_rows(), np.random.default_rng([self.seed, number]))
            chains.append(_Chain(prior, x, (self.seed, number), self.circuit.with_parameters(*first), prior.no_rows()))
        with ThreadPoolExecutor(max(1, min(threads, len(chains))), thread_name_prefix="chain") as pool:
            for phase in chain_phases(parameters):
                at = set(phase.draws_at(per_chain))
                for chain in chains:
                    chain.draws, chain.best = [], -np.inf
                while chains[0].sweep < phase.last:
                    list(pool.map(_Chain.step, chains))
                    if chains[0].sweep in at:
                        for chain in chains:
                            chain.keep()
                    done = chains[0].sweep
                    advance(done, phase.last, f"{done:,} sweeps, log joint {max(c.trace[-1] for c in chains):,.0f}")
                diagnostics = chain_diagnostics(_trace(chains, phase), phase.last, parameters.effective)
                if diagnostics.is_settled:
                    break
        best = max(chains, key=lambda chain: chain.best)
        assert best.best_counts is not None
        mean = self.circuit.with_parameters(*prior.parameters(best.best_counts))
        of_sum = np.repeat(self.circuit.kind == SUM, np.diff(self.circuit.child_starts))
        drawn = [own for chain in chains for own in chain.draws]
        draws = CircuitDraws(
            mean,
            np.exp(np.stack([own[0][of_sum] for own in drawn], axis=1)),
            np.stack([own[1] for own in drawn], axis=1),
        )
        facts = dict(self.facts) | {"n_rows": x.shape[1], "diagnostics": asdict(diagnostics)}
        facts["strengths"] = asdict(prior.strengths)
        return BayesianCircuit(self.schema, draws, len(chains), facts, _trace(chains, Phase(0, phase.last)))

    def _prior(self, rows: Rows, advance: Advance) -> tuple[ParameterPrior, Floats]:
        """Return the prior, and the rows (n_variables, n_rows) float64, NaN where missing."""
        columns, sizes = circuit_columns(self.circuit, self.schema), self.circuit.n_values
        if rows.n_rows * sizes.size * 8 > MOST_IN_MEMORY:
            raise InvalidParameter(
                "learning",
                "gibbs",
                because=f"sampling of a given structure keeps all rows in memory, and {rows.n_rows:,} are too many",
            )
        parts, n_done = [], 0
        for chunk in rows.with_unseen():
            parts.append(mask_unknown_codes(columns.rows_of_chunk(chunk), sizes))
            n_done += chunk.n_rows
            advance(min(n_done, rows.n_rows), rows.n_rows, "reading rows")
        if not n_done:
            raise EmptyData("There are no rows to learn from.")
        x = np.ascontiguousarray(np.concatenate(parts, axis=1))
        centre, variance = np.zeros(sizes.size), np.ones(sizes.size)
        for v in np.flatnonzero(sizes == 0).tolist():
            known = x[v][~np.isnan(x[v])]
            if known.size:
                centre[v], variance[v] = known.mean(), known.var() or 1.0
        return ParameterPrior(
            self.circuit, untuned_prior_settings(self.parameters, sizes.size).strengths, centre, variance
        ), x


def _trace(chains: list[_Chain], phase: Phase) -> Floats:
    trace = np.zeros((len(chains), phase.last - phase.first, TRACED))
    trace[:, :, 0] = [chain.trace[phase.first : phase.last] for chain in chains]
    return trace
