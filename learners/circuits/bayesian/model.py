"""A posterior over circuits with its schema, for storage, serving and queries; answers have standard errors and
credible intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from learners.circuits.bayesian.circuit_draws import LEVEL, CircuitDraws, log_mean_exp, summarise_draws
from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.errors import ImpossibleEvidence, InvalidCircuit
from learners.circuits.evaluation.reweighted import NOTHING, Likelihoods
from learners.circuits.model import CircuitHeader, CircuitModel
from learners.circuits.queries import queries
from learners.circuits.queries.array_answers import sample
from learners.circuits.queries.likelihoods import Read
from learners.circuits.queries.named_answers import Answer, Batches, Source, Summary
from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.circuits.variables import Columns
from learners.errors import InvalidArray, InvalidParameter, NoClass
from learners.kernels.arrays import Array, Arrays, Floats, Integers, Uint8s, read_only_array
from learners.kernels.random import random_bits_array
from learners.models.model import check_array_type_and_shape
from learners.models.query import Query
from learners.schema import Chunk, Schema

MAP_OF = "the posterior mean circuit"


def draws_query_handlers(draws: CircuitDraws, n_chains: int, likelihoods: Likelihoods = NOTHING) -> Batches:
    """Return the handlers of each query kind over all draws, chain by chain, each conditioned on the likelihoods.

    Each probability, density or mean is the mean over the draws, with its `standard_error` and `interval` (low
    and high end, of probability `level`), and `log_interval` of a probability or density. Distributions have
    `standard_errors` and `intervals` of the same form. The variance of a column is that of the mean distribution.
    Each sampled row comes from a random draw. MAP is `of` the posterior mean circuit, without interval.
    """
    source = _DrawsSource(*draws.given(likelihoods), n_chains)

    def most_probable(columns: Columns, query: Query, evidence: Read) -> list[Answer]:
        if source.is_impossible:
            raise ImpossibleEvidence(0)
        answers = queries.answer_map_query(draws.circuit, likelihoods, columns, query, evidence)
        return [answer | Answer(of=MAP_OF) for answer in answers]

    return {**source.batches, "map": most_probable}


class _DrawsSource(Source):
    """Answers averaged over all draws of a posterior."""

    level: ClassVar[Answer] = {"level": LEVEL}

    def __init__(self, draws: CircuitDraws, log_scale: Floats, n_chains: int) -> None:
        self.draws, self.log_scale, self.n_chains = draws, log_scale, n_chains

    def row_logs(self, x: Array) -> Floats:
        return self.draws.log_likelihoods(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> tuple[Floats, list[Summary]]:
        logs, by_variable = self.draws.marginals(x, variables)
        return logs, list(map(self.summary, by_variable))

    def row_tables(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary]:
        logs, tables = self.draws.conditional(x, variables)
        return logs, self.summary(tables)

    def row_moments(self, x: Array, variables: Sequence[int]) -> tuple[Floats, Summary, Floats]:
        logs, mean, variance = self.draws.moments(x, variables)
        return logs, self.summary(mean), variance.mean(axis=-1) + mean.var(axis=-1)

    def row_draws(self, x: Array, n: int, seed: int) -> Sequence[Floats]:
        return sample_posterior_predictive(self.draws, x, n, seed)

    def summary(self, values: Floats) -> Summary:
        return summarise_draws(values, self.n_chains)

    def log_means(self, logs: Floats) -> Floats:
        return log_mean_exp(logs)

    def mean_row_logs(self, x: Array) -> Floats:
        return self.draws.mean_logs(x)


def sample_posterior_predictive(draws: CircuitDraws, x: Array, n: int, seed: int) -> list[Floats]:
    """Draw n rows (n, n_variables) given each row of evidence, each from a random draw of the posterior.

    Raises ImpossibleEvidence, naming a row of probability zero.
    """
    rng = np.random.default_rng(seed)
    of_draw = rng.integers(0, draws.n_draws, n)
    seeds = rng.integers(0, 1 << 63, draws.n_draws)
    samples = [np.empty((n, x.shape[0])) for _ in range(x.shape[1])]
    for draw in np.unique(of_draw).tolist():
        circuit, places = draws.of(draw), np.flatnonzero(of_draw == draw)
        for row, rows in enumerate(samples):
            try:
                rows[places] = sample(circuit, x[:, [row]], places.size, int(seeds[draw]))[0]
            except ImpossibleEvidence as error:
                raise ImpossibleEvidence(row) from error
    return samples


WEIGHT, PARAMETER, TRACE, LEAF, CHOICES = "draws.weight", "draws.parameter", "trace", "prior.leaf", "state.choices."


@dataclass(frozen=True, eq=False)
class Sampled:
    """State with which the sampler continues on further rows."""

    # `coding`, `strengths` and `shares` as of `sampling`, the `seed`, and `turn`: how often rows were added.
    header: Mapping[str, Any]
    leaf: Floats  # (n_leaves, 2) float64: parameters of the leaves' priors
    choices: list[Uint8s]  # list of (n_rows, n_positions) uint8: state of each chain


class BayesianCircuit(CircuitModel):
    """A posterior over sum-product networks of one structure, as draws of their weights and leaf parameters.

    draws: chain by chain; its circuit is the posterior mean given the sampled state of highest log joint.
    facts: how it was learned, with the `diagnostics` of its chains.
    trace (n_chains, n_sweeps, 7) float64: log joint of every sweep, then unchanged, rejected and accepted
    proposals of whole trees, and of subtrees.
    sampled: state for continued learning; without it the model cannot continue.
    """

    kind: ClassVar[str] = "bayesian circuit"

    def __init__(
        self,
        schema: Schema,
        draws: CircuitDraws,
        n_chains: int,
        facts: Mapping[str, object],
        trace: Floats,
        sampled: Sampled | None = None,
    ) -> None:
        super().__init__(schema, draws.circuit, facts)
        self.draws, self.n_chains, self.trace, self.sampled = draws, n_chains, read_only_array(trace), sampled

    def prepare(self) -> None:
        """Build what all queries share in advance, so that the first query is fast."""
        super().prepare()
        self.draws.prepare()

    def predict_proba(self, chunk: Chunk) -> Floats:
        """Predict P(class | attributes), averaged over the draws, (n_rows, n_classes) float64; missing and unseen
        values are summed out.

        Raises NoClass.
        """
        return np.concatenate([p.mean(axis=-1) for p in self._class_draws(chunk)] or [self._nobody()])

    def credible_intervals(self, chunk: Chunk, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the bounds (n_rows, n_classes) float64 of the central credible interval of each P(class | attributes).

        Raises NoClass; InvalidParameter if the level is not between 0 and 1.
        """
        summaries = [summarise_draws(p, self.n_chains, level) for p in self._class_draws(chunk)]
        low, high = (np.concatenate([each[end] for each in summaries] or [self._nobody()]) for end in (2, 3))
        return low, high

    def _nobody(self) -> Floats:
        return np.empty((0, self.schema.n_classes))

    def _class_draws(self, chunk: Chunk) -> list[Floats]:
        """Return P(class | attributes) of every draw in blocks of rows, (n_rows, n_classes, n_draws) float64 each."""
        target = self.columns.class_variable
        if target is None:
            raise NoClass
        x = self.columns.rows_of_chunk(chunk, with_class=False)
        return [self.draws.class_posteriors(part, target) for part in self.draws.parts(x, self.schema.n_classes)]

    def row_logs(self, x: Array) -> Floats:
        """Return the log of the mean probability (density) of rows (n_variables, n_rows), (n_rows,) float64."""
        return self.draws.mean_logs(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """Return the marginal distribution of each discrete variable given each row, averaged over the draws, (n_rows,
        n_values) float64.
        """
        width = int(self.circuit.n_values[list(variables)].sum())
        parts = [self.draws.marginals(part, variables)[1] for part in self.draws.parts(x, width)]
        return [np.concatenate([p.mean(axis=-1) for p in each]) for each in zip(*parts, strict=True)]

    def row_means(self, x: Array, variables: Sequence[int]) -> Floats:
        """Return the expectation of numeric variables given each row, averaged over the draws, (n_rows, len(variables))
        float64.
        """
        parts = [self.draws.moments(part, variables)[1] for part in self.draws.parts(x, 2 * len(variables))]
        return np.concatenate([mean.mean(axis=-1) for mean in parts])

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """Draw samples given each row, (n_rows, n, n_variables) float64, each from a random draw of the posterior."""
        out = np.empty((x.shape[1], n, x.shape[0]))
        places = (numbers[:, np.newaxis] * n + np.arange(n)).astype(np.uint64)
        with np.errstate(over="ignore"):  # SplitMix64, from 0 to 2^31
            bits = random_bits_array(np.uint64(seed) + (places + np.uint64(1)) * GOLDEN) >> np.uint64(33)
        of_draw = bits.astype(np.int64) % self.draws.n_draws
        for draw in np.unique(of_draw).tolist():
            circuit, (rows, at) = self.draws.of(int(draw)), np.nonzero(of_draw == draw)
            own = numbers[rows] * n + at
            out[rows, at] = sample(circuit, np.ascontiguousarray(x[:, rows]), 1, seed, own)[:, 0]
        return out

    def warnings(self) -> list[str]:
        """Warn that the chains have not settled."""
        found = cast("dict[str, Any]", self.facts.get("diagnostics", {}))
        if found.get("is_settled", True):
            return []
        r_hat = "unknown" if found["r_hat"] is None else f"{found['r_hat']:.3g}"
        return [
            f"The chains have not settled after {found['n_sweeps']:,} sweeps (R-hat {r_hat}; effective sample size {found['effective']:.3g}): "
            "answers may be far off, and their intervals too narrow. Train with more iterations or chains, and compare."
        ]

    def answer(self, queries: Sequence[Query], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answer queries as every circuit does, with the warnings of the model."""
        warnings = self.warnings()
        return [one | Answer(warnings=warnings) if warnings else one for one in super().answer(queries, pause)]

    def batches(self, likelihoods: Likelihoods) -> Batches:
        """Return the handlers of each query kind, conditioned on the likelihoods of given variables."""
        return draws_query_handlers(self.draws, self.n_chains, likelihoods)

    def structure(self) -> dict[str, object]:
        """Return the columns, a description of the circuit, and the convergence of its chains."""
        facts: dict[str, object] = {"n_draws": self.draws.n_draws, "n_chains": self.n_chains}
        facts |= cast("dict[str, object]", self.facts.get("diagnostics", {}))
        return super().structure() | {"facts": facts}

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Return a header and named arrays for `from_arrays`."""
        header: CircuitHeader = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "facts": self.facts,
            "n_chains": self.n_chains,
            "sampling": None if self.sampled is None else self.sampled.header,
        }
        arrays = dict(self.circuit.to_arrays())
        arrays |= {WEIGHT: self.draws.weight, PARAMETER: self.draws.parameter, TRACE: self.trace}
        if self.sampled is not None:
            arrays[LEAF] = self.sampled.leaf
            arrays |= {f"{CHOICES}{chain}": choices for chain, choices in enumerate(self.sampled.choices)}
        return header, arrays

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        own = cast("CircuitHeader", header)
        circuit = Circuit.from_arrays({name: arrays[name] for name in CircuitArrays._fields})
        draws = CircuitDraws(circuit, arrays[WEIGHT], arrays[PARAMETER])
        sampled = None
        if own["sampling"] is not None:
            choices = [arrays[f"{CHOICES}{chain}"] for chain in range(own["n_chains"])]
            sampled = Sampled(own["sampling"], arrays[LEAF], choices)
        return cls(Schema.from_json(own["schema"]), draws, own["n_chains"], own["facts"], arrays[TRACE], sampled)

    def tables(self) -> dict[str, pa.Table]:
        """Return `columns`, `nodes` and `edges` of the posterior mean circuit, and `sweeps` of its chains, for SQL."""
        n_chains, n_sweeps = self.trace.shape[:2]
        names = ["log_joint"] + [
            f"{kind}_{became}" for kind in ("whole", "subtree") for became in ("unchanged", "rejected", "accepted")
        ]
        sweeps = {
            "chain": np.repeat(np.arange(n_chains), n_sweeps),
            "sweep": np.tile(np.arange(1, n_sweeps + 1), n_chains),
        }
        flat = self.trace.reshape(-1, self.trace.shape[2])
        columns = {name: flat[:, i] if i == 0 else flat[:, i].astype(np.int64) for i, name in enumerate(names)}
        return super().tables() | {"sweeps": pa.table(sweeps | columns)}


def check_drawn_circuit(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse draws of which one is not a circuit, and chains that do not fit them.

    Raises InvalidCircuit, InvalidParameter or InvalidArray.
    """
    own = cast("CircuitHeader", header)
    n_chains = own.get("n_chains")
    if type(n_chains) is not int or n_chains < 1:
        raise InvalidParameter("n_chains", n_chains, "a number of chains")
    circuit = Circuit.from_arrays({name: arrays[name] for name in CircuitArrays._fields})
    for name in (WEIGHT, PARAMETER):
        check_array_type_and_shape(arrays, name, np.float64, None, None)
    check_array_type_and_shape(arrays, TRACE, np.float64, n_chains, None, 7)
    draws = CircuitDraws(circuit, arrays[WEIGHT], arrays[PARAMETER])
    for draw in range(draws.n_draws):
        try:
            draws.of(draw)
        except InvalidCircuit as error:
            raise InvalidArray(PARAMETER, f"has a draw that is no circuit (draw {draw}: {error})") from error
