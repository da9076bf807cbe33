"""Training of circuits as passes: the schema, the counts for the structure, the weights."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import cast

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import ExpectedCounts, em_passes
from learners.circuits.mixtures import mixture_learning as gaussians
from learners.circuits.model import CircuitModel
from learners.circuits.parameters import GAUSSIANS, CircuitParameters
from learners.circuits.streaming.online import StreamingPosterior, circuit_pseudo_counts
from learners.circuits.streaming.shards import learn_in_shards
from learners.circuits.structures import structure_search as choosing
from learners.circuits.structures.chow_liu import chow_liu
from learners.circuits.structures.column_models import (
    choose_column_models,
)
from learners.circuits.structures.densities import (
    Densities,
    minimum_leaf_deviations,
    replace_intervals_by_densities,
)
from learners.circuits.structures.from_file import circuit_fingerprint, read_circuit
from learners.circuits.structures.hidden_trees import hclt
from learners.circuits.structures.learnspn import learnspn
from learners.circuits.structures.random_regions import random_regions
from learners.circuits.variables import circuit_columns
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.passes.column_summaries import NO_CUTS
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Rows, RowWork
from learners.passes.statistic import Together
from learners.schema import Kept, Overrides, Schema

# States of hidden trees, unless the user says how many.
STATES = 8
# So many files of a stream stand in the facts by name.
NAMED_FILES = 1000


def spn(
    target: str | None,
    parameters: CircuitParameters,
    given: Schema | Kept | None = None,
    overrides: Overrides | None = None,
) -> Passes[CircuitModel]:
    """Train a sum-product network: two passes for schema and structure, then one for each iteration of EM, or one in
    total.

    target: the class column, the circuit's last variable.
    given: replaces the inferred schema; with `Kept`, the domains follow the data.
    overrides: column name to what `ColumnOverride.of` reads.
    Raises SourceError, CircuitFormatError if the file of structure "file" cannot be read, or holds no circuit;
    SchemaError if no column is left, a distribution does not support a column's numbers, or the circuit does not
    match the columns.
    References: Liu, Van den Broeck (2021); Peharz et al. (2019); Gens, Domingos (2013); Zhao, Gordon (2017).
    """
    read, cuts = read_circuit(parameters.circuit) if parameters.structure == "file" else (None, NO_CUTS)
    if parameters.actual_structure == GAUSSIANS and parameters.leaves is None:
        parameters = replace(parameters, leaves="gaussian")
    schema, densities, choices = yield from choose_column_models(target, parameters, given, overrides or {}, read, cuts)
    facts: dict[str, object] = {"learner": "spn", "parameters": asdict(parameters)}
    if choices:
        facts["leaves"] = {name: choice.facts() for name, choice in choices.items()}
    if parameters.actual_structure == GAUSSIANS:
        gaussians.require_gaussian_columns(schema)
        grown = yield from gaussians.grow_mixture_passes(schema, densities, parameters.minutes, parameters.states)
        return (yield from gaussians.learn_mixture(schema, densities, grown, parameters.passes, facts))
    if parameters.actual_structure == "auto":
        return (yield from auto_structure_recipe(schema, parameters, densities, facts))
    start = read or replace_intervals_by_densities((yield from _structure(schema, parameters)), densities)
    least = minimum_leaf_deviations(start, densities) if densities else None
    if read is not None:
        facts["circuit_sha256"] = circuit_fingerprint(read)
    if parameters.learning in ("adf", "bmm"):
        rows_of = circuit_columns(start, schema).rows_of_chunk
        for _ in range(parameters.stream_passes):
            prior = circuit_pseudo_counts(start, parameters.strength)
            empty = StreamingPosterior(start, prior, parameters.learning, rows_of=rows_of, narrowest=least)
            model = yield from streaming_update_recipe(schema, empty, facts, parameters.shards)
            start = model.circuit
        return model
    if parameters.learning == "em":
        rows_of_passes: list[int] = []
        learning = em_passes(
            start, parameters.passes, parameters.laplace, parameters.tolerance, _expecting(schema), least
        )
        circuit = yield from _record_row_counts(learning, rows_of_passes)
        return CircuitModel(schema, circuit, facts | {"em_passes": len(rows_of_passes), "n_rows": rows_of_passes[-1]})
    return CircuitModel(schema, start, facts | {"n_rows": (yield from _n_rows(schema))})


def auto_structure_recipe(
    schema: Schema, parameters: CircuitParameters, densities: dict[int, Densities], facts: dict[str, object]
) -> Passes[CircuitModel]:
    """Train the best of several structures by validation likelihood (`search.choose_circuit_structure`): one pass to
    draw rows, then EM over all rows.
    """
    counted: Together[PairwiseCounts, HoldOut] = yield choosing.structure_search_statistics(schema, parameters.sample)
    n_drawn = int(counted.second.sample.counts.sum())
    saw_all = not densities and n_drawn == counted.second.n_rows
    passes_of_all = min(parameters.passes, choosing.PASSES_OF_ALL) if saw_all else 0
    choice, valid = yield from choosing.structure_search_work(
        counted, parameters.minutes, parameters.laplace, parameters.seed, passes_of_all
    )
    start, n_passes = replace_intervals_by_densities(choice.circuit, densities), choice.n_passes_of_all
    make = _expecting(schema)
    if densities:
        least = minimum_leaf_deviations(start, densities)
        rows_of_passes: list[int] = []
        learning = em_passes(start, parameters.passes, choice.laplace, parameters.tolerance, make, least)
        circuit = yield from _record_row_counts(learning, rows_of_passes)
        n_passes = len(rows_of_passes)
    elif n_passes:
        circuit = start
    else:
        gains = partial(choosing.mean_validation_log_likelihood, schema, valid)
        circuit, n_passes = yield from choosing.em_passes_with_early_stopping(
            start, parameters.passes, make, lambda e: e.maximised(choice.laplace), gains
        )
    searched = {"laplace": choice.laplace, "tried": [tried.facts() for tried in choice.tried]}
    own = {"em_passes": n_passes, "n_rows": counted.second.n_rows, "search": searched}
    model = CircuitModel(schema, circuit, facts | own)
    if densities:
        return (
            yield from gaussians.better_of_circuit_and_mixture(model, densities, parameters.minutes, parameters.passes)
        )
    return model


def streaming_update_recipe(
    schema: Schema, posterior: StreamingPosterior, facts: Mapping[str, object], n_shards: int | None = 1
) -> Passes[CircuitModel]:
    """Update a posterior with further rows in one pass, in order or in shards (`shards.learn_in_shards`)."""

    def run(rows: Rows, threads: int, advance: Advance) -> tuple[StreamingPosterior, int]:
        for source in rows.sources:
            files.extend(source.files[number].path for number in dict.fromkeys(part.file for part in source.fragments))
        return learn_in_shards(rows, posterior, n_shards, threads, advance)

    files: list[str] = []
    learned: StreamingPosterior
    learned, n_learned = yield RowWork("learning row by row", schema, run)
    counts = {"n_rows": learned.n_rows, "n_impossible": learned.n_impossible, "shards": n_learned}
    # The order decides the weights; only the first files are named where there are many.
    order = {"n_files": len(files), "files_in_order": [path.rpartition("/")[2] for path in files[:NAMED_FILES]]}
    return CircuitModel(schema, learned.circuit(), dict(facts) | counts | order, learned)


def _structure(schema: Schema, parameters: CircuitParameters) -> Passes[Circuit]:
    if parameters.actual_structure in ("hclt", "chow-liu"):
        pairs: PairwiseCounts = yield PairwiseCounts(schema)
        if parameters.actual_structure == "chow-liu":
            return chow_liu(pairs)
        return hclt(pairs, parameters.states or STATES, parameters.seed)
    if parameters.structure == "random":
        margins: FamilyCounts = yield FamilyCounts(schema, [Family(i) for i in range(schema.n_attributes)])
        return random_regions(
            _shares(schema, margins),
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
    codes, sizes = choosing.codes_and_domain_sizes(schema, rows[:-1], rows[-1])
    return learnspn(codes, sizes, max_rows=parameters.sample, seed=parameters.seed)


def _shares(schema: Schema, margins: FamilyCounts) -> list[tuple[float, ...]]:
    """Return smoothed shares of the values of each variable, the class last; no value is impossible."""
    shares = []
    for i in range(schema.n_attributes):
        _, _, x, counts = margins.cells(i)
        of_value = np.bincount(x, counts, int(schema.domain_sizes[i])) + 1.0
        of_value = of_value[schema.attributes[i].first_code :]  # what is missing is summed out
        shares.append(tuple((of_value / of_value.sum()).tolist()))
    if schema.target is not None:
        of_class = margins.class_counts + 1.0
        shares.append(tuple((of_class / of_class.sum()).tolist()))
    return shares


def _expecting(schema: Schema) -> Callable[[Circuit], ExpectedCounts]:
    """Return a function that creates the empty statistic of an iteration from its circuit."""

    def make(circuit: Circuit) -> ExpectedCounts:
        return ExpectedCounts(circuit, schema, circuit_columns(circuit, schema).rows_of_chunk, schema.columns)

    return make


def _record_row_counts(
    passes: Generator[ExpectedCounts, ExpectedCounts, Circuit], n_rows: list[int]
) -> Generator[ExpectedCounts, ExpectedCounts, Circuit]:
    """Run the same passes, appending the number of rows counted in each."""
    try:
        statistic = next(passes)
        while True:
            counted = yield statistic
            n_rows.append(counted.n_rows)
            statistic = passes.send(counted)
    except StopIteration as end:
        return cast(Circuit, end.value)


def _n_rows(schema: Schema) -> Passes[int]:
    """Count the rows, if no other statistic has done so."""
    counted: FamilyCounts = yield FamilyCounts(schema, [])
    return int(counted.n_rows)
