"""A network as a model: its circuit if small, or its Gaussian, and the network for elimination and interventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitHeader, CircuitModel
from learners.circuits.queries.named_answers import Answer
from learners.circuits.structures.from_network import MAX_EDGES
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Arrays, Floats, Integers
from learners.models.query import Query, Surprise
from learners.orders.lattice.graph_samples import Graph
from learners.registry.networks.arc_networks import ArcNetwork, DiscreteNetwork, GaussianNetwork
from learners.registry.networks.elimination.answers import answer_by_elimination, answer_exactly_or_by_samples
from learners.registry.networks.elimination.rows import Elimination, TablesTooLargeToSum
from learners.registry.networks.interventions import answer_after_intervention
from learners.registry.networks.model_networks import MOST_CELLS
from learners.registry.networks.tree_tables import TablesTooLarge, TreeTable
from learners.schema import Schema

SUM_TOLERANCE = 1e-6
# Beyond so many edges compiling a circuit takes longer than summing out, and its answers take as long.
MOST_QUERIED_EDGES = 200_000


class ArcModel(CircuitModel):
    """Base of models made from a network."""

    network: ArcNetwork

    def answer(self, queries: Sequence[Query], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answer queries as `queries.answer_all` does, and after an intervention as
        `interventions.answer_after_intervention` does.
        """
        is_cut = [not isinstance(query, Surprise) and bool(query.do) for query in queries]
        plain = [query for query, cut in zip(queries, is_cut, strict=True) if not cut]
        whole = iter(self._answer_uncut(plain, pause))
        return [
            answer_after_intervention(self.network, query, pause=pause) if cut else next(whole)
            for query, cut in zip(queries, is_cut, strict=True)
        ]

    def _answer_uncut(self, queries: Sequence[Query], pause: Callable[[], None] | None) -> list[Answer]:
        return super().answer(queries, pause)

    def structure(self) -> dict[str, object]:
        """Return the columns, the arcs, and a description of the circuit."""
        return super().structure() | {"edges": self._edges()}

    def _edges(self) -> list[dict[str, str]]:
        names = self.columns.names
        return [{"from": names[parent], "to": names[v]} for v, own in enumerate(self.network.parents) for parent in own]


class NetworkModel(ArcModel):
    """A Bayesian network of discrete variables.

    A small network is compiled once to a circuit, which answers single rows many times faster. Larger networks
    eliminate variables for each question, or sample if that takes too much memory.

    `circuit`: if it is compiled already.
    `max_edges`: of a circuit that `circuit` compiles.
    `most_bytes`: for the tables of an exact answer without a circuit; by default FEWPASS_MEMORY.
    """

    kind: ClassVar[str] = "network"

    def __init__(
        self,
        network: DiscreteNetwork,
        circuit: Circuit | None = None,
        max_edges: int = MAX_EDGES,
        most_bytes: int | None = None,
    ) -> None:
        self.schema, self.facts, self.posterior = network.schema, dict(network.facts), None
        self.network: DiscreteNetwork = network
        self.columns = network.columns
        self.max_edges = max_edges
        self.elimination = Elimination(network, most_bytes)
        if circuit is not None:
            self.circuit = circuit

    @cached_property
    def circuit(self) -> Circuit:  # type: ignore[override]  # compiled when it is first needed
        """Circuit of the network, compiled once. Raises NetworkTooLarge."""
        return self.network.model(self.max_edges).circuit

    @cached_property
    def n_edges(self) -> int:
        """Number of edges of the circuit, which need not be compiled."""
        return int(self.circuit.children.size) if self.is_compiled else self.network.n_circuit_edges()

    @property
    def is_compiled(self) -> bool:
        """True if the circuit is compiled."""
        return "circuit" in vars(self)

    @property
    def has_small_circuit(self) -> bool:
        """True if the circuit is small enough to answer queries."""
        return self.n_edges <= min(MOST_QUERIED_EDGES, self.max_edges)

    def _answer_uncut(self, queries: Sequence[Query], pause: Callable[[], None] | None) -> list[Answer]:
        if self.has_small_circuit:
            return super()._answer_uncut(queries, pause)
        try:
            return answer_by_elimination(self.columns, self.elimination, queries, pause)
        except TablesTooLargeToSum:
            return [answer_exactly_or_by_samples(self.columns, self.elimination, query, pause) for query in queries]

    def prepare(self) -> None:
        """Compile a small circuit in advance, so that the first query is fast."""
        if self.has_small_circuit:
            super().prepare()

    @property
    def _is_summed(self) -> bool:
        """True if rows are answered by elimination because the circuit would be too large."""
        return not self.is_compiled and self.n_edges > self.max_edges

    def class_posterior(self, x: Array, variable: int) -> Floats:
        """Return P(class | attributes) of possible rows (n_variables, n_rows), (n_rows, n_classes) float64."""
        if not self._is_summed:
            return super().class_posterior(x, variable)
        hidden = np.array(x)
        hidden[variable] = -1 if hidden.dtype.kind == "i" else np.nan
        return self.row_marginals(hidden, [variable])[0]

    def row_logs(self, x: Array) -> Floats:
        """Return the log probability of rows (n_variables, n_rows), with missing values marginalized, (n_rows,)
        float64.
        """
        return self.elimination.row_logs(x, {}) if self._is_summed else super().row_logs(x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """Return the distribution of each variable given each row, (n_rows, n_values) float64 each. Raises
        ImpossibleEvidence.
        """
        if not self._is_summed:
            return super().row_marginals(x, variables)
        return self.elimination.row_marginals(x, variables, {})[1]

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """Draw samples given each row, (n_rows, n, n_variables) float64; `numbers` (n_rows,) seed each row. Raises
        ImpossibleEvidence.
        """
        if not self._is_summed:
            return super().row_draws(x, n, seed, numbers)
        rngs = [np.random.default_rng([seed, number]) for number in numbers.tolist()]
        return np.array(self.elimination.row_draws(x, n, rngs, {})).reshape(x.shape[1], n, x.shape[0])

    def structure(self) -> dict[str, object]:
        """Return the columns, the arcs, and a description of the circuit, if it is not too large."""
        if not self._is_summed:
            return super().structure()
        nodes = [{"name": name, "role": "attribute"} for name in self.columns.names]
        if self.columns.class_variable is not None:
            nodes.insert(0, {"name": nodes.pop()["name"], "role": "class"})
        n_cells = self.elimination.n_cells((), range(len(self.columns.names)))
        return {"nodes": nodes, "edges": self._edges(), "elimination": {"n_cells": n_cells}}

    def tables(self) -> dict[str, pa.Table]:
        """Return `columns`, `nodes` and `edges` of the circuit, for SQL; if it is too large, `columns`, `arcs` and
        `probabilities`. Raises TablesTooLarge.
        """
        if not self._is_summed:
            return super().tables()
        parents, tables = self.network.parents, self._tables_to_write()
        n_cells = [table.size for table in tables]
        return {
            "columns": pa.table(
                {
                    "variable": pa.array(range(len(parents)), pa.int64()),
                    "name": pa.array(self.columns.names, pa.string()),
                    "n_values": np.array(self.columns.n_values, np.int64),
                }
            ),
            "arcs": pa.table(
                {
                    "parent": np.array([parent for own in parents for parent in own], np.int64),
                    "child": np.repeat(np.arange(len(parents)), [len(own) for own in parents]),
                }
            ),
            "probabilities": pa.table(
                {
                    "variable": np.repeat(np.arange(len(parents)), n_cells),
                    "cell": np.concatenate([np.arange(n) for n in n_cells]),
                    "probability": np.concatenate([table.ravel() for table in tables]),
                }
            ),
        }

    def _tables_to_write(self) -> list[Floats]:
        """Return all tables. Raises TablesTooLarge if they are too large to expand and exist only as context trees."""
        tables = self.network.tables
        if any(isinstance(table, TreeTable) for table in tables):
            raise TablesTooLarge(sum(table.size for table in tables), MOST_CELLS)
        return self.network.dense_tables()

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Return a header and named arrays for `from_arrays`. Raises TablesTooLarge."""
        header: CircuitHeader = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        circuit = {} if self._is_summed else dict(self.circuit.to_arrays())
        arrays = {"n_values": np.array(self.columns.n_values, np.int64)} | circuit
        tables = np.concatenate([table.ravel() for table in self._tables_to_write()])
        return header, arrays | _parents_in_arrays(self.network.parents) | {"tables": tables}

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        stored = cast("CircuitHeader", header)
        schema = Schema.from_json(stored["schema"])
        has_circuit = all(name in arrays for name in CircuitArrays._fields)
        circuit = Circuit.from_arrays({name: arrays[name] for name in CircuitArrays._fields}) if has_circuit else None
        sizes = np.asarray(arrays["n_values"]).tolist()
        parents = _parents_of(arrays)
        shapes = [(*(sizes[parent] for parent in own), sizes[v]) for v, own in enumerate(parents)]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        flat = np.split(np.asarray(arrays["tables"]), ends[:-1])
        tables = tuple(table.reshape(shape) for table, shape in zip(flat, shapes, strict=True))
        return cls(DiscreteNetwork(schema, parents, tables, stored["facts"]), circuit)


class LinearModel(ArcModel, GaussianModel):
    """A linear Gaussian network, represented by its joint Gaussian.

    Raises InvalidCircuit if the covariance is not positive definite in floating point.
    """

    kind: ClassVar[str] = "linear network"

    def __init__(self, network: GaussianNetwork) -> None:
        joint = network.model()
        super().__init__(joint.schema, joint.mixture, network.facts)
        self.network: GaussianNetwork = network

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Return a header and named arrays for `from_arrays`."""
        network = self.network
        header: CircuitHeader = {"kind": self.kind, "schema": network.schema.to_json(), "facts": self.facts}
        weights = [network.weights[v, list(own)] for v, own in enumerate(network.parents)]
        arrays = {"intercepts": network.intercepts, "weights": np.concatenate(weights), "variances": network.variances}
        return header, arrays | _parents_in_arrays(network.parents)

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        stored = cast("CircuitHeader", header)
        d = arrays["intercepts"].size
        weights = np.zeros((d, d))
        weights[np.repeat(np.arange(d), arrays["n_parents"]), arrays["parents"]] = arrays["weights"]
        schema, equations = Schema.from_json(stored["schema"]), (arrays["intercepts"], weights, arrays["variances"])
        return cls(GaussianNetwork(schema, _parents_of(arrays), *equations, stored["facts"]))


def _parents_in_arrays(parents: Graph) -> dict[str, Array]:
    return {
        "parents": np.array([parent for own in parents for parent in own], np.int64),
        "n_parents": np.array([len(own) for own in parents], np.int64),
    }


def _parents_of(arrays: Arrays) -> Graph:
    parts = np.split(np.asarray(arrays["parents"]), np.cumsum(arrays["n_parents"])[:-1])
    return tuple(tuple(part.tolist()) for part in parts)


def check_linear_gaussian_network(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that are not a linear Gaussian network; the mixture checks that the numbers form a Gaussian.

    Raises LearnerError.
    """
    d = len(Schema.from_json(cast("CircuitHeader", header)["schema"]).attributes)
    _check_parents(arrays, d)
    for name, size in (("intercepts", d), ("weights", arrays["parents"].size), ("variances", d)):
        if arrays[name].dtype != np.float64 or arrays[name].shape != (size,):
            raise LearnerError(f"The network's {name} do not match its variables.")


def check_discrete_network(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that are not a network matching the stored circuit. Raises LearnerError."""
    del header
    sizes = np.asarray(arrays["n_values"])
    _check_parents(arrays, sizes.size)
    parts = np.split(np.asarray(arrays["parents"]), np.cumsum(arrays["n_parents"])[:-1])
    tables = np.asarray(arrays["tables"])
    if sizes.dtype != np.int64 or tables.dtype != np.float64 or not (tables >= 0).all():
        raise LearnerError("The network has negative probabilities.")
    at = 0
    for v, part in enumerate(parts):
        n_cells = int(np.prod(sizes[part], dtype=np.float64)) * int(sizes[v])
        rows = tables[at : at + n_cells]
        if rows.size != n_cells or not np.allclose(rows.reshape(-1, sizes[v]).sum(axis=1), 1.0, atol=SUM_TOLERANCE):
            raise LearnerError(
                f"The table of the network's variable {v} is not a distribution for each value of its parents."
            )
        at += n_cells
    if at != tables.size:
        raise LearnerError("The network has more probabilities than its variables need.")


def _check_parents(arrays: Arrays, d: int) -> None:
    own, n_parents = np.asarray(arrays["parents"]), np.asarray(arrays["n_parents"])
    are_whole = all(array.dtype == np.int64 for array in (own, n_parents))
    if not are_whole or n_parents.shape != (d,) or (n_parents < 0).any() or n_parents.sum() != own.size:
        raise LearnerError("The network's parents do not match its variables.")
    if own.size and not (own.min() >= 0 and own.max() < d):
        raise LearnerError("The network names parents that it does not have.")
    parents = [set(part.tolist()) for part in np.split(own, np.cumsum(n_parents)[:-1])]
    placed: set[int] = set()
    while new := {v for v in range(d) if v not in placed and parents[v] <= placed}:
        placed |= new
    if len(placed) < d:
        raise LearnerError("The network has a cycle.")
