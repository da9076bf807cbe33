"""Warm-up: run every kernel of the predict path once, before the first request has to wait for it.

`python -m service.http.warm_up SHARE OF` does so beside a server that has to compile them.
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import get_args

import pyarrow as pa

from learners.answer_checks import check_answer_distributions
from learners.circuits.model import CircuitModel
from learners.classifiers.lookup.lookup import LookupModel
from learners.kernels.jit import notify_on_kernel_compilation
from learners.models.evidence import Range
from learners.models.query import Conditional, Impute, Map, Marginal, Moments, Query, Sample, Solver, Surprise
from learners.models.record_classifier import record_classifier
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.passes.threads import available_cores
from learners.registry import recipes
from learners.registry.model_kinds import load_model
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import encode_json_columns, encode_json_records
from learners.schema.schema import Schema
from service.product.inference.queries import queryable_circuit
from service.requests.json_values import JSONObject

TABLE = pa.table(
    {
        "word": ["a", "b", "a", None] * 8,
        "number": [0.5, 1.5, float("nan"), 3.5] * 8,
        "class": ["yes", "no", "yes", "no"] * 8,
    }
)


WIDE = pa.table(
    {"many": [str(i % 300) for i in range(1200)], **{n: TABLE[n].to_pylist()[:24] * 50 for n in TABLE.column_names}}
)
# The search of circuits runs the same kernels, however short it is. Chains need an extra, and no request samples.
RUNS: tuple[tuple[str, JSONObject], ...] = (
    *((name, {"minutes": 1e-3} if name == "spn" else {}) for name in recipes.LEARNERS if name != "gibbs"),
    ("spn", {"structure": "hclt"}),
    ("kdb", {"estimator": "hdp", "iterations": 20}),
    ("kdb", {"estimator": "m"}),
)


def compile_learner_kernels(name: str, parameters: JSONObject) -> None:
    """Run one learner on a narrow and on a wide table, and let its models answer."""
    for table in (TABLE, WIDE):
        target = "class" if recipes.learner_recipe(name).takes_target else None
        model = drive(recipes.learner(name, parameters, target), Source.of_table(table))
        _encode_all(model.schema)
        if isinstance(model, LookupModel):
            model.log_terms(encode(table, model.schema))
            if model.variances:
                model.credible_intervals(encode(table, model.schema))


@cache
def warm_up_kernels() -> float:
    """Compile or load the kernels; return the seconds it took.

    Runs once for a process and all processes forked from it. Where kernels must be compiled, a process for each other
    core helps.
    """
    started = time.perf_counter()
    with _helpers():
        warm_up_predictions()
        warm_up_queries()
    return time.perf_counter() - started


@contextlib.contextmanager
def _helpers() -> Iterator[None]:
    """Start helper processes that compile the last kernels of the list once one is missing; this process then finds
    them on disk.
    """
    n_cores = available_cores()
    helpers: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        for share in range(1, n_cores):
            command = [sys.executable, "-m", "service.http.warm_up", str(share), str(n_cores)]
            helpers.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True))

    try:
        with notify_on_kernel_compilation(begin):
            yield
    finally:
        for helper in helpers:
            helper.terminate()
            helper.wait()


def warm_up_predictions() -> None:
    """Predict one row and many, on read-only arrays like the mapped ones."""
    model = drive(recipes.learner("kdb", {"k": 1}, "class"), Source.of_table(TABLE))
    header, arrays = model.to_arrays()
    for array in arrays.values():
        array.setflags(write=False)
    mapped = load_model(header, arrays)
    record_classifier(mapped)({"word": "a", "number": 1.0})
    mapped.predict_proba(encode_json_records([{"word": "b"}] * 2, mapped.schema))
    check_answer_distributions(mapped.predict_proba(encode(TABLE, mapped.schema)))
    assert isinstance(mapped, LookupModel)
    mapped.log_terms(encode(TABLE, mapped.schema))
    _encode_all(mapped.schema)


def warm_up_queries(begin: float = 0.0) -> None:
    """Run queries of every kind with every solver, on a network and on a circuit of densities.

    `begin` is the part of the queries, from 0 to 1, that comes last.
    """
    # Without pseudo-counts rows are impossible, which is found out in numbers of a wider range.
    warm_up_model_queries(
        queryable_circuit(drive(recipes.learner("nb", {"m": 0.0}, "class"), Source.of_table(TABLE))), begin
    )
    # A named structure: to search for the best one takes minutes.
    parameters: JSONObject = {"structure": "hclt", "leaves": "gaussian", "learning": "em", "passes": 1}
    warm_up_model_queries(
        queryable_circuit(drive(recipes.learner("spn", parameters, "class"), Source.of_table(TABLE))), begin
    )


def warm_up_model_queries(model: CircuitModel, begin: float = 0.0) -> None:
    """Ask a model of `TABLE` queries of every kind, starting at the fraction `begin` of the list and wrapping around."""
    queries: list[Query] = [
        Marginal({"word": "a", "number": 1.0}),
        Conditional(("class",), {"word": "a"}),
        Conditional(("class", "word"), {}, joint=True),
        Sample(2, {"number": 1.5}),
        Impute((), {"number": 1.5}),
        Surprise({"number": 1.5}, n=2),
        Conditional(("class",), {"word": ("a", "b")}, likely={"class": {"yes": 0.8, "no": 0.2}}),
        Map(("word", "class"), {"number": 1.5}, best=2),
    ]
    queries += [Map(("word", "class"), {"number": 1.5}, solver=solver) for solver in get_args(Solver)]
    if model.schema.continuous:
        queries.append(Moments(("number",), {"word": "a"}))
        queries.append(Conditional(("class",), {"number": Range(0.5, 2.0)}))
    first = round(begin * len(queries))
    for query in queries[first:] + queries[:first]:
        model.answer([query])
    model.answer([queries[0]] * 40)


def _encode_all(schema: Schema) -> None:
    """Encode Python values, and columns of Arrow types that are read value by value."""
    encode_json_columns({"word": ["a"], "number": [1.0]}, schema)
    rare = {"word": pa.array(["a", None], pa.string_view()), "number": pa.array([1, None]).cast(pa.decimal128(20))}
    encode(pa.table(rare), schema, with_class=False)


if __name__ == "__main__":
    warm_up_queries(int(sys.argv[1]) / int(sys.argv[2]))
    warm_up_predictions()
