"""A network of a file as a model: its circuit or Gaussian, and the network from which interventions start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Self, cast

import numpy as np

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitHeader, CircuitModel
from learners.circuits.queries.named_answers import Answer
from learners.circuits.structures.from_network import MAX_EDGES
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Arrays
from learners.models.query import Query, Surprise
from learners.orders.lattice.graph_samples import Graph
from learners.registry.networks.arc_networks import ArcNetwork, DiscreteNetwork, GaussianNetwork
from learners.registry.networks.interventions import answer_after_intervention
from learners.schema import Schema

SUM_TOLERANCE = 1e-6


class ArcModel(CircuitModel):
    """A model that is made of a network."""

    network: ArcNetwork

    def answer(self, queries: Sequence[Query], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answers as `queries.answer_all` tells them; those after an intervention as `interventions.answer_after_intervention` does."""
        is_cut = [not isinstance(query, Surprise) and bool(query.do) for query in queries]
        whole = iter(super().answer([query for query, cut in zip(queries, is_cut, strict=True) if not cut], pause))
        return [
            answer_after_intervention(self.network, query, pause=pause) if cut else next(whole)
            for query, cut in zip(queries, is_cut, strict=True)
        ]

    def structure(self) -> dict[str, object]:
        """The columns, the arcs, and what the circuit over them consists of."""
        names = self.columns.names
        edges = [
            {"from": names[parent], "to": names[v]} for v, own in enumerate(self.network.parents) for parent in own
        ]
        return super().structure() | {"edges": edges}


class NetworkModel(ArcModel):
    """A Bayesian network of discrete variables, compiled to a circuit.

    `circuit`: if it is compiled already.
    Raises NetworkTooLarge.
    """

    kind: ClassVar[str] = "network"

    def __init__(self, network: DiscreteNetwork, circuit: Circuit | None = None, max_edges: int = MAX_EDGES) -> None:
        compiled = network.model(max_edges).circuit if circuit is None else circuit
        super().__init__(network.schema, compiled, network.facts)
        self.network: DiscreteNetwork = network

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Header and named arrays, from which `from_arrays` makes the model again."""
        header, arrays = super().to_arrays()
        header["kind"] = self.kind
        tables = np.concatenate([table.ravel() for table in self.network.tables])
        return header, arrays | _parents_in_arrays(self.network.parents) | {"tables": tables}

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """The model of `to_arrays`; the arrays may be mapped and read-only."""
        stored = cast("CircuitHeader", header)
        schema = Schema.from_json(stored["schema"])
        circuit = Circuit.from_arrays({name: arrays[name] for name in CircuitArrays._fields})
        sizes = circuit.n_values.tolist()
        parents = _parents_of(arrays)
        shapes = [(*(sizes[parent] for parent in own), sizes[v]) for v, own in enumerate(parents)]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        flat = np.split(np.asarray(arrays["tables"]), ends[:-1])
        tables = tuple(table.reshape(shape) for table, shape in zip(flat, shapes, strict=True))
        return cls(DiscreteNetwork(schema, parents, tables, stored["facts"]), circuit)


class LinearModel(ArcModel, GaussianModel):
    """A linear Gaussian network, as the joint Gaussian of its numbers.

    Raises InvalidCircuit if the covariance is not positive definite in floating point.
    """

    kind: ClassVar[str] = "linear network"

    def __init__(self, network: GaussianNetwork) -> None:
        joint = network.model()
        super().__init__(joint.schema, joint.mixture, network.facts)
        self.network: GaussianNetwork = network

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Header and named arrays, from which `from_arrays` makes the model again."""
        network = self.network
        header: CircuitHeader = {"kind": self.kind, "schema": network.schema.to_json(), "facts": self.facts}
        weights = [network.weights[v, list(own)] for v, own in enumerate(network.parents)]
        arrays = {"intercepts": network.intercepts, "weights": np.concatenate(weights), "variances": network.variances}
        return header, arrays | _parents_in_arrays(network.parents)

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """The model of `to_arrays`; the arrays may be mapped and read-only."""
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
    """Refuse arrays that are no linear Gaussian network; numbers that make no Gaussian, its mixture refuses.

    Raises LearnerError.
    """
    d = len(Schema.from_json(cast("CircuitHeader", header)["schema"]).attributes)
    _check_parents(arrays, d)
    for name, size in (("intercepts", d), ("weights", arrays["parents"].size), ("variances", d)):
        if arrays[name].dtype != np.float64 or arrays[name].shape != (size,):
            raise LearnerError(f"The network's {name} do not fit its variables.")


def check_discrete_network(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that are no network of the circuit beside them. Raises LearnerError."""
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
                f"The table of the network's variable {v} is no distribution for each value of its parents."
            )
        at += n_cells
    if at != tables.size:
        raise LearnerError("The network has more probabilities than its variables need.")


def _check_parents(arrays: Arrays, d: int) -> None:
    own, n_parents = np.asarray(arrays["parents"]), np.asarray(arrays["n_parents"])
    are_whole = all(array.dtype == np.int64 for array in (own, n_parents))
    if not are_whole or n_parents.shape != (d,) or (n_parents < 0).any() or n_parents.sum() != own.size:
        raise LearnerError("The network's parents do not fit its variables.")
    if own.size and not (own.min() >= 0 and own.max() < d):
        raise LearnerError("The network names parents that it does not have.")
    parents = [set(part.tolist()) for part in np.split(own, np.cumsum(n_parents)[:-1])]
    placed: set[int] = set()
    while new := {v for v in range(d) if v not in placed and parents[v] <= placed}:
        placed |= new
    if len(placed) < d:
        raise LearnerError("The network has a cycle.")
