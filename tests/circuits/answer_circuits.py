"""Small random circuits with numeric leaves among the discrete ones, and rows with missing values; public and learned circuits."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st

from learners import Source, drive
from learners.circuits.circuit import Circuit
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, INDICATOR, POISSON
from learners.circuits.structures.text import read_text
from learners.registry import recipes
from tests.circuits.map_circuits import random_circuit
from tests.conftest import PUBLIC_SETS
from tests.naive.map import categorical, mixture, value

CIRCUITS = PUBLIC_SETS.parent / "circuits"
needs_public_circuits = pytest.mark.skipif(
    not CIRCUITS.is_dir(), reason="the public circuits are not at ../shared/data/circuits"
)


def public_circuit(name):
    return read_text(CIRCUITS / f"{name}.spn.txt")


def public_rows(name, n_rows=None):
    """Rows to learn from and rows to test by, (n_variables, n_rows) each, of a public set of densities."""
    tables = (pq.read_table(PUBLIC_SETS.parent / "density" / f"{name}.{split}.parquet") for split in ("train", "test"))
    return (np.stack([column.to_numpy() for column in table[:n_rows].columns]) for table in tables)


def learned(
    data,
    target=None,
    overrides=None,
    given=None,
    *,
    learner="spn",
    threads=None,
    on_progress=None,
    checkpoints=None,
    **parameters,
):
    """What a learner of circuits makes of a table or a source."""
    source = Source.of_table(data) if isinstance(data, pa.Table) else data
    passes = recipes.learner(learner, parameters, target, given, overrides)
    return drive(passes, source, threads=threads, on_progress=on_progress, checkpoints=checkpoints)


def independent(shares):
    """One product of a categorical leaf of each variable."""
    return mixture([[categorical(*own) for own in shares]])


def with_numeric_leaves(rng, circuit, kinds):
    """The circuit with some variables' categorical leaves replaced by numeric ones."""
    kind, n_values = circuit.kind.copy(), circuit.n_values.copy()
    parameters = []
    for node in range(circuit.n_nodes):
        own = circuit.leaf_parameters[circuit.leaf_starts[node] : circuit.leaf_starts[node + 1]].tolist()
        numeric = kinds.get(int(circuit.variable[node]))
        if numeric is not None:
            kind[node] = numeric
            own = [float(rng.normal()), float(rng.uniform(0.5, 2))] if numeric == GAUSSIAN else [rng.uniform(0.5, 3)]
        parameters.append(own)
    n_values[list(kinds)] = 0
    return Circuit(
        circuit.arrays._replace(
            kind=kind,
            leaf_starts=np.cumsum([0, *map(len, parameters)]),
            leaf_parameters=np.concatenate(parameters),
            n_values=n_values,
        )
    )


@st.composite
def circuits_and_rows(draw, numeric=False, possible=False):
    """(circuit, rows as dicts, x): every row has its own pattern; variables in `numeric` circuits may be numeric; `possible` rows alone."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 6))
    circuit = random_circuit(rng, n, leaves=(CATEGORICAL,) if numeric else (INDICATOR, CATEGORICAL))
    if numeric:
        chosen = rng.permutation(n)[: rng.integers(1, n + 1)]
        kinds = {int(v): int(rng.choice([GAUSSIAN, POISSON, EXPONENTIAL])) for v in chosen}
        circuit = with_numeric_leaves(rng, circuit, kinds)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        given = np.flatnonzero(rng.random(n) < 0.5).tolist()
        rows.append({v: _value(rng, circuit, v) for v in given})
    rows = [row for row in rows if not possible or value(circuit, row) > 0]
    return circuit, rows, array_of(circuit, rows)


def _value(rng, circuit, v):
    if circuit.n_values[v]:
        return int(rng.integers(circuit.n_values[v]))
    kinds = set(circuit.kind[circuit.variable == v].tolist())
    return int(rng.poisson(2)) if POISSON in kinds else float(abs(rng.normal()))


def array_of(circuit, rows):
    """(n_variables, n_rows) float64 with NaN where a row says nothing."""
    x = np.full((circuit.n_variables, len(rows)), np.nan)
    for r, row in enumerate(rows):
        for v, code in row.items():
            x[v, r] = code
    return x
