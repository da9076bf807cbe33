"""A learned circuit with its schema, for storage, serving and queries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NotRequired, Self, cast

import numpy as np
import pyarrow as pa

from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.evaluation.circuit_compilation import compiled_circuit_with_weights
from learners.circuits.evaluation.evaluate import log_induced_trees, log_values
from learners.circuits.evaluation.leaf_distributions import leaf_modes_of_variable
from learners.circuits.evaluation.reweighted import Likelihoods
from learners.circuits.kernels import KIND_NAMES
from learners.circuits.map.query import prepared_map_circuit
from learners.circuits.queries import array_answers as answers
from learners.circuits.queries.array_answers import sample
from learners.circuits.queries.named_answers import Answer, Batches
from learners.circuits.queries.queries import answer_all, circuit_query_handlers
from learners.circuits.streaming.online import PseudoCounts, StreamingPosterior
from learners.circuits.variables import Columns, circuit_columns
from learners.errors import InvalidParameter, NoClass
from learners.kernels.arrays import Array, Arrays, Floats, Integers
from learners.models.model import Header, ModelDefaults
from learners.models.query import Query
from learners.schema import Chunk, Schema

PRIOR, STATE, START = "prior.", "state.", "start."


class CircuitHeader(Header):
    """The header of a stored `CircuitModel`."""

    # How a posterior goes on learning: `fold`, `projection`, `moments` and `numeric`.
    posterior: NotRequired[Mapping[str, Any]]
    # Of draws of a posterior: how many chains there were, and how sampling goes on, see `Sampled`.
    n_chains: NotRequired[int]
    sampling: NotRequired[Mapping[str, Any] | None]


class CircuitModel(ModelDefaults):
    """A sum-product network over the columns of a schema, including the class if there is a target.

    circuit: variable i is attribute i; the last one is the class, if the schema has a target.
    facts: how it was learned.
    posterior: from ADF or BMM, for continued learning on further rows.
    """

    kind: ClassVar[str] = "circuit"

    def __init__(
        self, schema: Schema, circuit: Circuit, facts: Mapping[str, object], posterior: StreamingPosterior | None = None
    ) -> None:
        self.schema, self.circuit, self.facts, self.posterior = schema, circuit, dict(facts), posterior
        # How the columns of the schema are the circuit's variables.
        self.columns: Columns = circuit_columns(circuit, schema)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_arrays, self.to_arrays()

    @property
    def n_edges(self) -> int:
        """The edges of the circuit."""
        return self.circuit.n_edges

    @property
    def is_compiled(self) -> bool:
        """True if the circuit exists; the circuit of a network is compiled on first use."""
        return True

    def predict_proba(self, chunk: Chunk) -> Floats:
        """Predict P(class | attributes), (n_rows, n_classes) float64, with missing and unseen values summed out.

        A row of probability zero gets the class's marginal distribution. Raises NoClass.
        """
        target = self.columns.class_variable
        if target is None:
            raise NoClass
        x = self.columns.rows_of_chunk(chunk, with_class=False)
        possible = self.row_logs(x) > -np.inf
        if possible.all():
            return self.class_posterior(x, target)
        probabilities = np.empty((chunk.n_rows, self.schema.n_classes))
        nothing = np.full((x.shape[0], 1), np.nan if x.dtype == np.float64 else -1, x.dtype)
        probabilities[~possible] = self.class_posterior(nothing, target)
        if possible.any():
            probabilities[possible] = self.class_posterior(np.ascontiguousarray(x[:, possible]), target)
        return probabilities

    def class_posterior(self, x: Array, variable: int) -> Floats:
        """Return P(class | attributes) of possible rows (n_variables, n_rows), (n_rows, n_classes) float64."""
        return answers.class_posterior(self.circuit, x, variable)

    def log_likelihood(self, chunk: Chunk) -> Floats:
        """Return the log probability of each row, including the class if the chunk has it, (n_rows,) float64."""
        return self.row_logs(self.columns.rows_of_chunk(chunk))

    def row_logs(self, x: Array) -> Floats:
        """Return the log probability (density) of rows (n_variables, n_rows), with missing values summed out, (n_rows,)
        float64.
        """
        return log_values(self.circuit, x)

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """Return the marginal distribution of each discrete variable given each row, (n_rows, n_values) float64. Raises
        ImpossibleEvidence.
        """
        return answers.marginals(self.circuit, x, variables)

    def row_means(self, x: Array, variables: Sequence[int]) -> Floats:
        """Return the expectation of numeric variables given each row, (n_rows, len(variables)) float64. Raises
        ImpossibleEvidence.
        """
        return answers.moments(self.circuit, x, variables)[0]

    def row_peaks(self, x: Array, v: int) -> Floats:
        """Return the modes of a numeric variable's densities, (n_peaks, n_rows) float64, the same for each row."""
        places = leaf_modes_of_variable(self.circuit, v)
        return np.broadcast_to(places[:, np.newaxis], (places.size, x.shape[1]))

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """Draw samples given each row, (n_rows, n, n_variables) float64; `numbers` (n_rows,) seed each row. Raises
        ImpossibleEvidence.
        """
        return sample(self.circuit, x, n, seed, numbers)

    def columns_without_missing_state(self) -> set[str]:
        """The columns in which a missing value is an unknown one, whatever training saw."""
        columns = self.columns
        return {
            name
            for name, n_values, offset in zip(columns.names, columns.n_values, columns.offsets, strict=True)
            if offset or not n_values
        }

    def prepare(self) -> None:
        """Build what all queries share in advance, so that the first query is fast."""
        compiled_circuit_with_weights(self.circuit)
        answers.linear_space_circuit(self.circuit)
        prepared_map_circuit(self.circuit)

    def answer(self, queries: Sequence[Query], pause: Callable[[], None] | None = None) -> list[Answer]:
        """Answer queries as `queries.answer_network_queries` does."""
        return answer_all(self.circuit, self.schema, queries, self.batches, pause)

    def batches(self, likelihoods: Likelihoods) -> Batches:
        """Return the handlers of each query kind, conditioned on the likelihoods of given variables."""
        return circuit_query_handlers(self.circuit, likelihoods)

    def structure(self) -> dict[str, object]:
        """Return the columns, and a description of the circuit."""
        nodes = [{"name": attribute.name, "role": "attribute"} for attribute in self.schema.attributes]
        if self.columns.class_variable is not None:
            nodes.insert(0, {"name": str(self.schema.target), "role": "class"})
        trees = {"log10_induced_trees": log_induced_trees(self.circuit) / math.log(10.0)}
        facts = {name: self.facts[name] for name in ("search", "shards") if name in self.facts}
        structure: dict[str, object] = {"nodes": nodes, "edges": [], "circuit": self.circuit.summary() | trees}
        return structure | ({"facts": facts} if facts else {})

    def to_arrays(self) -> tuple[CircuitHeader, dict[str, Array]]:
        """Return a header and named arrays for `from_arrays`."""
        header: CircuitHeader = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        arrays = dict(self.circuit.to_arrays())
        if self.posterior is not None:
            posterior = self.posterior
            header["posterior"] = posterior.spec | {"numeric": posterior.prior.numeric}
            arrays |= {PRIOR + "edge": posterior.prior.edge, PRIOR + "parameter": posterior.prior.parameter}
            arrays |= {STATE + name: np.array(array) for name, array in posterior.state_arrays().items()}
            arrays |= {START + name: array for name, array in posterior.structure.to_arrays().items()}
        return header, arrays

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`; the arrays may be memory-mapped and read-only."""
        stored = cast(CircuitHeader, header)
        schema = Schema.from_json(stored["schema"])
        circuit = Circuit.from_arrays({name: arrays[name] for name in CircuitArrays._fields})
        rule = stored.get("posterior")
        if rule is None:
            return cls(schema, circuit, stored["facts"])
        start = Circuit.from_arrays({name: arrays[START + name] for name in CircuitArrays._fields})
        prior = PseudoCounts(arrays[PRIOR + "edge"], arrays[PRIOR + "parameter"], rule["numeric"])
        columns = circuit_columns(start, schema)
        if rule["moments"] != "exact":
            raise InvalidParameter("moments", rule["moments"], "exact: other rules are no longer learned")
        empty = StreamingPosterior(start, prior, rule["projection"], columns.rows_of_chunk)
        state = {name.removeprefix(STATE): array for name, array in arrays.items() if name.startswith(STATE)}
        return cls(schema, circuit, stored["facts"], empty.with_state(state))

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables `columns`, `nodes` and `edges`, for SQL.

        After streaming learning, edges have a `variance`, and so do the `probabilities` of categorical leaves.
        """
        circuit = self.circuit
        return {
            "columns": pa.table(
                {
                    "variable": pa.array(range(len(self.columns.names)), pa.int64()),
                    "name": pa.array(self.columns.names, pa.string()),
                    "n_values": circuit.n_values,
                }
            ),
            "nodes": pa.table(
                {
                    "node": np.arange(circuit.n_nodes),
                    "kind": np.array(KIND_NAMES)[circuit.kind],
                    "variable": pa.array(circuit.variable, mask=circuit.variable < 0),
                }
            ),
            **self._weights(),
        }

    def _weights(self) -> dict[str, pa.Table]:
        circuit = self.circuit
        edges = {
            "parent": np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts)),
            "child": circuit.children,
            "weight": np.exp(circuit.log_weight),
        }
        if self.posterior is None:
            return {"edges": pa.table(edges)}
        of_edges, of_shares = self.posterior.weight_variances()
        is_share = ~np.isnan(of_shares)
        sizes = np.diff(circuit.leaf_starts)
        leaf = np.repeat(np.arange(circuit.n_nodes), sizes)[is_share]
        code = (np.arange(is_share.size) - np.repeat(circuit.leaf_starts[:-1], sizes))[is_share]
        names = [self.columns.labels(int(circuit.variable[v]))[at] for v, at in zip(leaf, code.tolist(), strict=True)]
        probabilities = {
            "leaf": leaf,
            "value": pa.array(names, pa.string()),
            "probability": np.exp(circuit.leaf_parameters[is_share]),
            "variance": of_shares[is_share],
        }
        return {"edges": pa.table(edges | {"variance": of_edges}), "probabilities": pa.table(probabilities)}
