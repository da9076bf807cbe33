"""Circuits as sequences of passes: the schema, the counts that the structure needs, the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from learners.circuits.bayesian.given_structure.learning import GivenStructure
from learners.circuits.bayesian.posterior_samples.model import BayesianCircuit
from learners.circuits.bayesian.sampler.columns import BY_COLUMN, PAPER, coded
from learners.circuits.bayesian.sampler.learning import Sampling, sampling_of
from learners.circuits.bayesian.sampler.settings import NOT_OF_A_FILE, NOT_OF_SAMPLING, OF_SAMPLING, GibbsParameters
from learners.circuits.circuit import Circuit
from learners.circuits.columns import columns_of
from learners.circuits.em.em import ExpectedCounts, em_passes
from learners.circuits.mixtures import learning as gaussians
from learners.circuits.model import CircuitModel
from learners.circuits.streaming.online import StreamingPosterior, pseudo_counts_of
from learners.circuits.streaming.shards import in_shards
from learners.circuits.structures import Variable, chow_liu, hclt, learnspn, random_regions
from learners.circuits.structures.densities import CONJUGATE, Densities, narrowest, with_densities, with_distributions
from learners.circuits.structures.from_file import fingerprint, read_circuit
from learners.circuits.structures.search import passes as choosing
from learners.circuits.structures.search.column_models import (
    AUTO,
    ROW_BY_ROW,
    check_conjugate,
    modelled,
    require_columns,
)
from learners.circuits.structures.search.search import codes_of
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.errors import InvalidParameter
from learners.passes.column_summaries import NO_CUTS, ColumnSummaries, binned_schema
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Rows, RowWork
from learners.passes.statistic import Together
from learners.schema import Kept, Overrides, Schema
from learners.schema.schema import DISTRIBUTIONS, Distribution

GAUSSIANS = "gaussian-mixture"
# Of hidden trees, unless the user says how many.
STATES = 8


@dataclass(frozen=True)
class CircuitParameters(GibbsParameters):
    """How a circuit is made and learned; those of sampling are told at `GibbsParameters`. Raises InvalidParameter.

    Parameters
    ----------
    structure : "auto", "hclt", "chow-liu", "random", "learnspn", "gaussian-mixture" or "file"
        What the circuit looks like; "auto" takes what explains drawn rows best. That is one of trees, hidden trees, LearnSPN, mixtures of them (`search.choose`) and, where
        numeric columns have densities, mixtures of Gaussians. The others are a hidden Chow-Liu tree, Chow-Liu tree, random region graph,
        LearnSPN on a sample, a mixture of Gaussians with full covariances, or the circuit of a file. "auto" is for EM: with
        another learning, or where `states` are given, it means "hclt"; sampling has a complete binary circuit, or that of a file.
    minutes : float
        Minutes of work that "auto" may take, for two threads of a usual server. Counted, not timed: the circuit does not depend on
        the machine.
    circuit : str
        Path or URI of the circuit's file, for the structure "file": text or JSON. Variable i is attribute i, the class last.
    learning : "em", "adf", "bmm", "gibbs" or "none"
        How weights are learned: "em" in passes, "adf" and "bmm" row by row, "gibbs" by sampling, "none" not at all. These are
        batch EM; one pass of assumed density filtering or of Bayesian moment matching; a posterior over complete binary
        circuits, or over the weights and leaves of the structure of a file; or the structure's own weights.
    passes : int
        Most passes of EM over all rows; after "auto", which has made passes over drawn rows, 2 where these were all.
    tolerance : float
        EM ends when a pass gains less log likelihood per row than this.
    laplace : float
        Rows that EM adds to each count; "auto" chooses them itself.
    strength : float
        Rows that the structure's own weights stand for, in ADF and BMM.
    stream_passes : int
        Passes of ADF and BMM over the rows. After the first each starts at the means of the last, which stand for `strength` rows again, so that
        no row counts twice.
    shards : int, optional
        Parts of the rows that ADF and BMM learn side by side. They do so on threads, or by the workers of a cluster, once the
        first 20,000 rows are learned; by default one, and on a cluster one for each worker. The circuit depends on their number.
    states : int, optional
        States of each latent variable of "hclt", 8 unless given; components of "gaussian-mixture", chosen unless given.
    depth, sums, replicas : int
        Size of the structure "random": how deep it is, sums of each region, and copies.
    sample : int
        Most distinct rows that "learnspn" sees.
    n_bins : int
        Most intervals of a numeric column, or densities that it is a mixture of.
    leaves : "intervals", "auto", a distribution, "by-column" or "paper", optional
        How numeric columns are modelled for which the user says nothing else; by default "intervals", of "gaussian-mixture"
        "gaussian". "auto" chooses a
        distribution for each column by the likelihood of drawn rows (`structures.search.leaf_selection.chosen_leaves`); ADF and BMM, which learn
        "gaussian", "poisson" and "exponential" only, then take "gaussian". Of sampling: by default "by-column", families that
        the column asks for; or the families of Yokoi and Sato's paper.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.
    seed : int
        Start of the random numbers; the same seed gives the same model.
    """

    structure: Literal["auto", "hclt", "chow-liu", "random", "learnspn", "gaussian-mixture", "file"] = "auto"
    minutes: float = 10.0
    circuit: str = ""
    learning: Literal["em", "adf", "bmm", "gibbs", "none"] = "em"
    passes: int = 10
    tolerance: float = 1e-3
    laplace: float = 0.1
    strength: float = 10.0
    stream_passes: int = 1
    shards: int | None = None
    states: int | None = None
    depth: int = 3
    sums: int = 4
    replicas: int = 4
    sample: int = 20_000
    n_bins: int = 8
    leaves: Literal["intervals", "auto", "by-column", "paper"] | Distribution | None = None
    max_values: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole_numbers(
            passes=(1, 10_000),
            stream_passes=(1, 10_000),
            shards=(1, 1024),
            states=(1, 1024),
            depth=(1, 20),
            sums=(1, 1024),
            replicas=(1, 1024),
            sample=(100, 1_000_000),
            n_bins=(2, 256),
            max_values=(2, 65_000),
            seed=(0, 2**32 - 1),
        )
        if bool(self.circuit) != (self.structure == "file"):
            raise InvalidParameter("circuit", self.circuit, "name a file, and only with structure 'file'")
        for name in ("tolerance", "laplace"):
            if not 0 <= getattr(self, name) < 1e9:
                raise InvalidParameter(name, getattr(self, name), "zero or more")
        if not 0 < self.minutes <= 100_000:
            raise InvalidParameter("minutes", self.minutes, "above zero")
        if not 0 < self.strength < 1e9:
            raise InvalidParameter("strength", self.strength, "above zero")
        if self.learning != "gibbs":
            self.refuse(OF_SAMPLING, "only with learning='gibbs'")
        else:
            self.check_sampling()
            self.refuse(NOT_OF_SAMPLING, "learning='gibbs' does not use it: leave it out")
            if self.structure not in ("auto", "file"):
                raise InvalidParameter(
                    "structure", self.structure, "sampling has a structure of its own: leave it out, or use 'file'"
                )
            if self.structure == "file":
                self.refuse(NOT_OF_A_FILE, "sampling the structure of a file does not use it: leave it out")
            if self.leaves == AUTO:
                raise InvalidParameter("leaves", AUTO, f"sampling chooses leaves by itself: use {BY_COLUMN!r}")
        if self.structure == GAUSSIANS and self.learning != "em":
            raise InvalidParameter("learning", self.learning, f"{GAUSSIANS} is learned by em")
        if self.learning != "gibbs" and self.leaves in (BY_COLUMN, PAPER):
            raise InvalidParameter("leaves", self.leaves, "only with learning='gibbs'")
        if self.learning in ROW_BY_ROW and self.leaves in DISTRIBUTIONS and self.leaves not in CONJUGATE:
            raise InvalidParameter("leaves", self.leaves, f"{self.learning} learns only {', '.join(CONJUGATE)}")

    @property
    def actual_structure(self) -> str:
        """The structure that is made."""
        if self.structure != "auto":
            return self.structure
        return "auto" if self.learning == "em" and self.states is None else "hclt"


def spn(
    target: str | None,
    parameters: CircuitParameters,
    given: Schema | Kept | None = None,
    overrides: Overrides | None = None,
) -> Passes[CircuitModel]:
    """A sum-product network: two passes for schema and structure, then one for each iteration of EM, or one in all.

    target: the class column, then the circuit's last variable.
    given: instead of the schema that the columns would give; of `Kept` the domains follow the data.
    overrides: column name to what `ColumnOverride.of` reads.
    Raises SourceError, CircuitFormatError if the file of structure "file" cannot be read, or holds no circuit;
    SchemaError if no column is left, a distribution cannot have a column's numbers, or the circuit is not of the
    columns.
    References: Liu, Van den Broeck (2021); Peharz et al. (2019); Gens, Domingos (2013); Zhao, Gordon (2017).
    """
    if parameters.learning == "gibbs" and parameters.structure == "auto":
        return (yield from bayesian(target, parameters, given, overrides or {}))
    read, cuts = read_circuit(parameters.circuit) if parameters.structure == "file" else (None, NO_CUTS)
    if parameters.actual_structure == GAUSSIANS and parameters.leaves is None:
        parameters = replace(parameters, leaves="gaussian")
    schema, densities, choices = yield from modelled(target, parameters, given, overrides or {}, read, cuts)
    facts: dict[str, object] = {"learner": "spn", "parameters": asdict(parameters)}
    if choices:
        facts["leaves"] = {name: choice.facts() for name, choice in choices.items()}
    if parameters.actual_structure == GAUSSIANS:
        gaussians.require_densities(schema)
        grown = yield from gaussians.growing(schema, densities, parameters.minutes, parameters.states)
        return (yield from gaussians.learned(schema, densities, grown, parameters.passes, facts))
    if parameters.actual_structure == "auto":
        return (yield from chosen(schema, parameters, densities, facts))
    start = read or with_densities((yield from _structure(schema, parameters)), densities)
    least = narrowest(start, densities) if densities else None
    if read is not None:
        facts["circuit_sha256"] = fingerprint(read)
    if parameters.learning == "gibbs":
        sampler = GivenStructure(schema, start, parameters, facts, parameters.seed)
        return (yield RowWork("sampling", schema, sampler.learn, ""))
    if parameters.learning in ("adf", "bmm"):
        rows_of = columns_of(start, schema).rows_of_chunk
        for _ in range(parameters.stream_passes):
            prior = pseudo_counts_of(start, parameters.strength)
            empty = StreamingPosterior(start, prior, parameters.learning, rows_of=rows_of, narrowest=least)
            model = yield from continued(schema, empty, facts, parameters.shards)
            start = model.circuit
        return model
    circuit, n_rows = start, 0
    if parameters.learning == "em":
        counting: list[ExpectedCounts] = []
        learning = em_passes(
            start, parameters.passes, parameters.laplace, parameters.tolerance, _expecting(schema, counting), least
        )
        circuit = yield from learning
        n_rows = counting[-1].n_rows
        facts["em_passes"] = len(counting)
    return CircuitModel(schema, circuit, facts | {"n_rows": n_rows or (yield from _n_rows(schema))})


def chosen(
    schema: Schema, parameters: CircuitParameters, densities: dict[int, Densities], facts: dict[str, object]
) -> Passes[CircuitModel]:
    """The circuit that explains drawn rows best, of several structures (`search.choose`): a pass to draw, then EM over all rows."""
    counted: Together[PairwiseCounts, HoldOut] = yield choosing.drawing(schema, parameters.sample)
    choice, valid = yield from choosing.searching(counted, parameters.minutes, parameters.laplace, parameters.seed)
    start = with_densities(choice.circuit, densities)
    least = narrowest(start, densities) if densities else None
    counting: list[ExpectedCounts] = []
    n_drawn = int(counted.second.sample.counts.sum())
    saw_all = not densities and n_drawn == counted.second.n_rows
    most = min(parameters.passes, choosing.PASSES_OF_ALL) if saw_all else parameters.passes
    make = _expecting(schema, counting)
    if densities:
        circuit = yield from em_passes(start, most, choice.laplace, parameters.tolerance, make, least)
    else:
        gains = partial(choosing.likelihood_of, schema, valid)
        circuit, _ = yield from choosing.polished(start, most, make, lambda e: e.maximised(choice.laplace), gains)
    own = {"em_passes": len(counting), "n_rows": counted.second.n_rows, "search": choosing.facts_of(choice)}
    model = CircuitModel(schema, circuit, facts | own)
    if densities:
        return (yield from gaussians.rivalled(model, densities, parameters.minutes, parameters.passes))
    return model


def bayesian(
    target: str | None, parameters: CircuitParameters, given: Schema | Kept | None, overrides: Overrides
) -> Passes[CircuitModel]:
    """A posterior over circuits: one pass for the schema, one for the rows, which are then sampled.

    References: Yokoi, Sato (2024).
    """
    every = ColumnSummaries(target, overrides, max_values=parameters.max_values, n_bins=parameters.n_bins)
    summaries = yield every
    schema = given if isinstance(given, Schema) else binned_schema(summaries, parameters.n_bins)
    require_columns(schema)
    distributions = {name: override.distribution for name, override in every.overrides.items()}
    schema = with_distributions(schema, distributions, "intervals")
    check_conjugate(schema, parameters)
    histograms = {name: column.histogram for name, column in summaries.found.items()}
    in_intervals = {name for name, distribution in distributions.items() if distribution == "intervals"}
    schema, coding = coded(schema, histograms, parameters.leaves or BY_COLUMN, in_intervals, parameters.seed)
    facts = {"learner": "spn", "parameters": asdict(parameters)}
    sampling = Sampling(schema, coding, parameters, facts, parameters.seed)
    return (yield RowWork("sampling", schema, sampling.learn, ""))


def sampled_further(known: BayesianCircuit) -> Passes[CircuitModel]:
    """Sampling goes on with more rows: those that the model has, in the same order, and behind them new ones."""
    parameters: Any = known.facts["parameters"]
    # Versions before named a structure and other parameters here that sampling did not follow.
    used = {name: value for name, value in parameters.items() if name not in NOT_OF_SAMPLING}
    sampling = sampling_of(known, CircuitParameters(**(used | {"structure": "auto"})))
    return (yield RowWork("sampling", known.schema, partial(sampling.go_on, known), ""))


def continued(
    schema: Schema, posterior: StreamingPosterior, facts: Mapping[str, object], n_shards: int | None = 1
) -> Passes[CircuitModel]:
    """Learn rows on top of those that a posterior has learned: one pass, in their order or in shards (`shards.in_shards`)."""

    def run(rows: Rows, threads: int, advance: Advance) -> tuple[StreamingPosterior, int]:
        return in_shards(rows, posterior, n_shards, threads, advance)

    found: tuple[StreamingPosterior, int] = yield RowWork("learning row by row", schema, run)
    learned, n_learned = found
    counts = {"n_rows": learned.n_rows, "n_impossible": learned.n_impossible, "shards": n_learned}
    return CircuitModel(schema, learned.circuit(), dict(facts) | counts, learned)


def _structure(schema: Schema, parameters: CircuitParameters) -> Passes[Circuit]:
    if parameters.actual_structure in ("hclt", "chow-liu"):
        pairs: PairwiseCounts = yield PairwiseCounts(schema)
        if parameters.actual_structure == "chow-liu":
            return chow_liu(pairs)
        return hclt(pairs, parameters.states or STATES, parameters.seed)
    if parameters.structure == "random":
        margins: FamilyCounts = yield FamilyCounts(schema, [Family(i) for i in range(schema.n_attributes)])
        return random_regions(
            [Variable(probabilities=shares) for shares in _shares(schema, margins)],
            depth=parameters.depth,
            sums=parameters.sums,
            replicas=parameters.replicas,
            seed=parameters.seed,
        )
    drawn: HoldOut = yield HoldOut(schema, parameters.sample, room=0)
    counts = drawn.sample.counts
    if counts.sum() > parameters.sample:  # few different rows may stand for more than memory holds
        counts = np.random.default_rng(parameters.seed).multinomial(parameters.sample, counts / counts.sum())
    rows = np.repeat(drawn.sample.rows, counts, axis=0).T
    codes, sizes = codes_of(schema, rows[:-1], rows[-1])
    return learnspn(codes, sizes, max_rows=parameters.sample, seed=parameters.seed)


def _shares(schema: Schema, margins: FamilyCounts) -> list[tuple[float, ...]]:
    """Of the values of each variable, the class last; no value is impossible."""
    shares = []
    for i in range(schema.n_attributes):
        _, _, x, counts = margins.cells(i)
        of_value = np.bincount(x, counts, int(schema.domain_sizes[i])) + 1.0
        of_value = of_value[int(schema.attributes[i].has_missing) :]  # what is missing is summed out
        shares.append(tuple((of_value / of_value.sum()).tolist()))
    if schema.target is not None:
        of_class = margins.class_counts + 1.0
        shares.append(tuple((of_class / of_class.sum()).tolist()))
    return shares


def _expecting(schema: Schema, counting: list[ExpectedCounts]) -> Callable[[Circuit], ExpectedCounts]:
    """Makes the statistic of each iteration; `counting` gets them in turn."""

    def make(circuit: Circuit) -> ExpectedCounts:
        rows_of = columns_of(circuit, schema).rows_of_chunk
        counting.append(ExpectedCounts(circuit, schema, rows_of, schema.columns))
        return counting[-1]

    return make


def _n_rows(schema: Schema) -> Passes[int]:
    """How many rows there are, where nothing that was counted tells."""
    counted: FamilyCounts = yield FamilyCounts(schema, [])
    return int(counted.n_rows)
