"""Precompilation: run every kernel that a request or a job may need, so that an image holds all of them compiled."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec

import numpy as np
import pyarrow as pa

from learners.counts.family_counts import Cells
from learners.counts.pairwise import PairwiseCounts
from learners.ensembles.large import LARGE_ROWS
from learners.models.estimation import Sampling
from learners.models.explanation import explain
from learners.models.model import Model
from learners.models.query import Edges, Effects, Graph, Graphs, Marginal, Paths, Score, StructureQuery
from learners.passes.engine import collect
from learners.passes.learner import drive, infer_schema
from learners.passes.memory import memory_limit
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.registry.model_kinds import kind_of, load_model
from learners.registry.networks.interventions import answer_after_intervention
from learners.registry.networks.network_answers import compile_model_circuit, model_arc_network
from learners.schema import Chunk, Schema
from learners.schema.encoding.batches import IndexCheck
from learners.schema.encoding.encode import Encoder, encode
from service.http.warm_up import (
    RUNS,
    TABLE,
    compile_learner_kernels,
    warm_up_model_queries,
    warm_up_predictions,
    warm_up_queries,
)
from service.requests.json_values import JSONObject

NUMBERS = pa.table({name: np.random.default_rng(i).normal(size=40) for i, name in enumerate("abcd")})
CIRCUITS: list[JSONObject] = [
    {"structure": "hclt", "learning": "em"},
    {"structure": "learnspn", "learning": "adf"},
    {"structure": "random", "learning": "bmm"},
    {"leaves": "gaussian", "learning": "em"},
    {"structure": "gaussian-mixture", "states": 2},
    {"leaves": "gaussian", "learning": "bmm"},
    {"leaves": "auto", "learning": "em"},
]
if find_spec("arviz_stats"):  # without it nothing is sampled
    CIRCUITS.append({"learner": "gibbs", "iterations": 4, "draws": 4})


STRUCTURES: list[JSONObject] = [{"method": "exact"}, {"method": "blocks", "candidates": 2, "sets": 100, "draws": 16}]


def precompile_in_processes(n_processes: int, tasks: Sequence[Callable[[], object]] | None = None) -> float:
    """Run learners and queries once (by default all), each in one of `n_processes` processes; return the seconds it
    took.
    """
    started = time.perf_counter()
    with ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn")) as pool:
        for future in [pool.submit(task) for task in (TASKS if tasks is None else tasks)]:
            future.result()
    return time.perf_counter() - started


def _compile_circuit(parameters: JSONObject) -> None:
    own = {name: value for name, value in parameters.items() if name != "learner"}
    model = drive(recipes.learner(parameters.get("learner", "spn"), own, "class"), Source.of_table(TABLE))
    model.predict_proba(encode(TABLE, model.schema))
    warm_up_model_queries(compile_model_circuit(model))


def _compile_average() -> None:
    average = drive(recipes.learner("tan", {"average": True}, "class"), Source.of_table(TABLE))
    average.predict_proba(encode(TABLE, average.schema))
    Encoder(average.schema).inputs.tails(TABLE.to_batches()[0])  # what monitoring asks of numbers


def _compile_trees() -> None:
    """Run the default learner on classes determined only by interactions, so that it grows trees."""
    random = np.random.default_rng(0)
    a, b, c = random.integers(0, 2, (3, 1200))
    words = {"many": np.arange(1200) % 300} | {"a": a, "b": b, "c": c, "class": a ^ b ^ c}
    wide = pa.table({name: pa.array(codes.astype(str)) for name, codes in words.items()})
    for table in (wide, wide.drop_columns(["many"])):
        model = _stored(drive(recipes.learner("auto", {}, "class"), Source.of_table(table)))
        for rows in (table, table.slice(0, 4)):
            model.predict_proba(encode(rows, model.schema))
            model.predict_proba(encode(rows.drop_columns(["b"]), model.schema))
        explain(model, encode(table.slice(0, 4), model.schema))


def _compile_sums() -> None:
    """Ask a network for few rows that lack a parent, with codes of 8 and 16 bits."""
    random, n_rows = np.random.default_rng(0), np.arange(1200)
    for n_values in (60, 300):
        words = {"many": n_rows % n_values, "few": n_rows % n_values // 3}
        words |= {"class": words["few"] % 2 ^ (random.random(1200) < 0.2)}
        table = pa.table({name: pa.array(codes.astype(int).astype(str)) for name, codes in words.items()})
        model = drive(recipes.learner("kdb", {}, "class"), Source.of_table(table))
        for column in ("many", "few"):
            model.predict_proba(encode(table.slice(0, 4).drop_columns([column]), model.schema))


def _stored(model: Model) -> Model:
    """Return a model as it is loaded from its stored form."""
    return load_model(*model.to_arrays())


def _compile_large() -> None:
    """Run the default learner on more rows than small tables have, and on values enough for hash tables."""
    random = np.random.default_rng(1)
    n = LARGE_ROWS + 1
    for n_values in (4, 1000):
        numbers = {name: random.normal(size=n) for name in "ab"}
        words = random.integers(0, n_values, n)
        label = (numbers["a"] > 0) ^ (words % 4 > 1)
        table = pa.table(numbers | {"word": words.astype(str), "class": label.astype(str)})
        model = _stored(drive(recipes.learner("auto", {}, "class"), Source.of_table(table)))
        model.predict_proba(encode(table.slice(0, 1000), model.schema))


def _compile_counts() -> None:
    """Count many rows and many values, which the learners' small tables lack."""
    n_rows = np.arange(1 << 16)
    many = {name: n_rows // 20**i % 20 for i, name in enumerate("abc")} | {"class": n_rows % 2}
    binary = {name: n_rows[:64] // 2**i % 2 for i, name in enumerate("abcde")} | {"class": n_rows[:64] % 3}
    for columns in (many, many | {"wide": n_rows % 300}, binary):
        source = Source.of_table(pa.table({name: np.char.mod("v%d", values) for name, values in columns.items()}))
        schema = infer_schema(source, "class")
        collect(PairwiseCounts(schema), source, threads=1)
        _compile_cells(encode(next(source.batches()), schema), schema)
    words = pa.RecordBatch.from_arrays([TABLE["word"].combine_chunks().dictionary_encode()], ["word"])
    assert IndexCheck().unsound_column(words) < 0


def _compile_cells(rows: Chunk, schema: Schema) -> None:
    """Compile counting with 32-bit and 64-bit keys."""
    members = np.arange(2)
    n_cells = schema.n_classes * int(schema.domain_sizes[members].prod())
    for n in (n_cells, 1 << 40):
        cells, others = (Cells(n, memory_limit(), None) for _ in range(2))
        for part in (cells, others):
            part.count(rows, members, schema.domain_sizes[members])
        cells.combine(others, 1)
        cells.distinct()


def _compile_structures(parameters: JSONObject) -> None:
    for table in (TABLE, NUMBERS):
        _ask_structures(drive(recipes.learner("orders", parameters, None), Source.of_table(table)))


def _ask_structures(learned: Model) -> None:
    """Ask every query of a model, as learned and as mapped."""
    header, arrays = learned.to_arrays()
    for array in arrays.values():
        array.setflags(write=False)
    for each in (learned, load_model(header, arrays)):
        model = kind_of(each).structures(each)
        queries: list[StructureQuery] = [Graph(), Score(), Graphs(2)]
        queries += [kind(prior=prior, n=4) for kind in (Edges, Paths) for prior in ("order", "graph")]
        if model.posterior.bge is not None:
            queries += [Effects(prior="order", n=4), Effects(prior="graph", n=4)]
        first, second = model.names[:2]
        queries.append(Edges(present=(f"{first}->{second}",), absent=(f"{second}->{first}",)))
        model.answer(queries)


def _compile_samples() -> None:
    """Compile sampled answers, which a network of this size does not otherwise need."""
    network = model_arc_network(drive(recipes.learner("nb", {}, "class"), Source.of_table(TABLE)))
    answer_after_intervention(network, Marginal({"word": "a"}, sampling=Sampling(error=0.5)), most_bytes=0)


TASKS: tuple[Callable[[], object], ...] = (
    partial(compile_learner_kernels, "kdb", {"k": 2}),
    warm_up_queries,  # takes longest
    warm_up_predictions,
    *(partial(compile_learner_kernels, name, parameters) for name, parameters in RUNS),
    *(partial(_compile_circuit, parameters) for parameters in CIRCUITS),
    _compile_average,
    _compile_trees,
    _compile_large,
    _compile_sums,
    _compile_counts,
    _compile_samples,
    *(partial(_compile_structures, parameters) for parameters in STRUCTURES),
)
DEMO: tuple[Callable[[], object], ...] = (
    *(partial(compile_learner_kernels, name, {}) for name in ("auto", "xgboost")),
    TASKS[0],
    warm_up_predictions,
)
"""What the demo runs."""
