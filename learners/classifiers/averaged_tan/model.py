"""Tree-augmented naive Bayes, averaged over all trees: P(y | x) by a determinant for each class."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa

from learners.classifiers.averaged_tan.tree_average import TreePosterior, edge_probabilities
from learners.classifiers.averaged_tan.tree_average_kernels import add_log_tree_sums
from learners.classifiers.describe import schema_tables
from learners.classifiers.lookup.network_tables import in_parts
from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays, Floats, Integers, freeze
from learners.kernels.scaled_arithmetic import NOTHING, STEP
from learners.models.array_checks import refuse, typed
from learners.models.model import Header
from learners.schema import Chunk, Schema

# Below this many rows a thread costs more than it brings.
PARALLEL_ROWS = 256


class AveragedTrees:
    """The class posterior averaged over all tree-augmented networks and their parameters.

    Each row and class costs O(n^3) for n attributes, in place of O(n) of a single tree. An attribute that is absent, or whose value
    training never saw, is left out; the trees are as probable as before.

    `class_counts`, (c,) int64.
    `log_prior`, (c,) float64: log P(y).
    `alone`, (sum of v_i c,) float64: log P(x_i | y), tables (v_i, c) in turn.
    `log_weights`, (n, n) float64: of the edges, see `TreePosterior`.
    `ratios`, (sum of v_i v_j c,) float64: of the pairs i < j in turn.
    `facts`: what else is known of the training; JSON can hold it.

    References
    ----------
    Cerquides, López de Mántaras (2005), TAN classifiers based on decomposable distributions, section 4.
    """

    kind: ClassVar[str] = "averaged-trees"

    def __init__(
        self,
        schema: Schema,
        class_counts: Integers,
        log_prior: Floats,
        alone: Floats,
        log_weights: Floats,
        ratios: Floats,
        facts: Mapping[str, object],
    ) -> None:
        self.schema, self.class_counts, self.facts = schema, class_counts, dict(facts)
        self.log_prior, self.alone, self.log_weights, self.ratios = log_prior, alone, log_weights, ratios
        freeze(log_prior, alone, log_weights, ratios)

    @classmethod
    def of(
        cls, schema: Schema, class_counts: Integers, found: TreePosterior, facts: Mapping[str, object]
    ) -> AveragedTrees:
        """The model of a posterior."""
        alone = np.concatenate([table.ravel() for table in found.alone] or [np.empty(0)])
        ratios = np.concatenate([table.ravel() for table in found.ratios] or [np.empty(0)])
        return cls(schema, class_counts, found.log_prior, alone, found.log_weights, ratios, facts)

    @cached_property
    def _layout(self) -> tuple[Integers, Integers, Integers]:
        """Where the table of each pair, and of each attribute, begins; and the domain sizes."""
        sizes, n, c = self.schema.domain_sizes.astype(np.int64), self.schema.n_attributes, self.schema.n_classes
        i, j = np.triu_indices(n, 1)
        starts = np.zeros((n, n), np.int64)
        starts[i, j] = np.cumsum(np.concatenate([[0], (sizes[i] * sizes[j] * c)[:-1]]))[: i.size]
        return starts, np.cumsum(np.concatenate([[0], sizes[:-1] * c]))[:n].astype(np.int64), sizes

    @cached_property
    def _weights(self) -> tuple[Floats, Integers]:
        """The weights as mantissas and exponents; all divided by the largest, which no probability notices."""
        n = self.schema.n_attributes
        if n < 2:
            return np.zeros((n, n)), np.zeros((n, n), np.int64)
        logs = np.asarray(self.log_weights) - float(np.max(self.log_weights))
        finite = np.where(np.isfinite(logs), logs, 0.0)
        exponent = np.floor(finite / STEP)
        mantissa = np.maximum(1.0, np.exp(finite - exponent * STEP))
        is_edge = np.isfinite(logs)
        return np.where(is_edge, mantissa, 0.0), np.where(is_edge, exponent, NOTHING).astype(np.int64)

    def predict_proba(self, chunk: Chunk, threads: int | None = None) -> Floats:
        """(n_rows, n_classes) float64: class probabilities; by default one thread per core for many rows."""
        out = np.tile(np.asarray(self.log_prior), (chunk.n_rows, 1))
        if self.schema.n_attributes and chunk.n_rows:
            in_parts(chunk.n_rows, threads, lambda i, j: self._add(chunk.x[:, i:j], out[i:j]), PARALLEL_ROWS)
        out = np.exp(out - out.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    def _add(self, x: Array, out: Floats) -> None:
        x = np.ascontiguousarray(x)
        x.setflags(write=False)
        starts, alone_starts, sizes = self._layout
        mantissa, exponent = self._weights
        add_log_tree_sums(x, starts, sizes, self.ratios, mantissa, exponent, self.alone, alone_starts, out)

    @property
    def class_tables(self) -> list[Floats]:
        """Of each attribute log P(x_i | y), (v_i, n_classes)."""
        _, starts, sizes = self._layout
        n_classes = self.schema.n_classes
        cells = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [np.asarray(self.alone[first : first + n * n_classes]).reshape(n, n_classes) for first, n in cells]

    @cached_property
    def edge_probabilities(self) -> Floats:
        """(n, n) float64: how probable it is that two attributes are joined."""
        return edge_probabilities(np.asarray(self.log_weights))

    def structure(self) -> dict[str, object]:
        """The class, the attributes, and the edges of the most probable tree with their probabilities."""
        names, target = [attribute.name for attribute in self.schema.attributes], self.schema.target or "class"
        nodes: list[dict[str, object]] = [{"name": target, "role": "class", "n_values": self.schema.n_classes}]
        nodes += [{"name": a.name, "role": "attribute", "n_values": a.n_values} for a in self.schema.attributes]
        edges: list[dict[str, object]] = [{"from": target, "to": name, "rank": 0, "probability": 1.0} for name in names]
        edges += [
            {"from": names[i], "to": names[j], "rank": 1, "probability": float(self.edge_probabilities[i, j])}
            for i, j in best_tree(np.asarray(self.log_weights))
        ]
        return {"nodes": nodes, "edges": edges}

    def to_arrays(self) -> tuple[Header, Arrays]:
        """Header and named arrays, from which `from_arrays` makes an equal model."""
        header: Header = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        arrays = {name: np.asarray(getattr(self, name)) for name in ("class_counts", "log_prior", "alone", "ratios")}
        return header, arrays | {"log_weights": np.asarray(self.log_weights).ravel()}

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """The model of `to_arrays`; nothing is copied."""
        stored = cast(Header, header)
        schema = Schema.from_json(stored["schema"])
        n = schema.n_attributes
        weights = np.asarray(arrays["log_weights"]).reshape(n, n)
        one, two, three, four = (arrays[name] for name in ("class_counts", "log_prior", "alone", "ratios"))
        return cls(schema, one, two, three, weights, four, stored["facts"])

    def tables(self) -> dict[str, pa.Table]:
        """`attributes`, `classes`, and `edges` between attributes with their probabilities."""
        names = [attribute.name for attribute in self.schema.attributes]
        i, j = np.triu_indices(len(names), 1)
        of_schema = schema_tables(self.schema, self.class_counts)
        return {
            "attributes": of_schema["attributes"].select(["attribute", "name", "kind", "n_values"]),
            "classes": of_schema["classes"],
            "edges": pa.table(
                {
                    "one": pa.array([names[a] for a in i], pa.string()),
                    "other": pa.array([names[b] for b in j], pa.string()),
                    "probability": pa.array(self.edge_probabilities[i, j], pa.float64()),
                }
            ),
        }


def best_tree(log_weights: Floats) -> list[tuple[int, int]]:
    """The edges of the most probable tree, each from the node that is nearer to the first attribute (Prim 1957)."""
    n = len(log_weights)
    if not n:
        return []
    nearest, reach = np.zeros(n, np.int64), log_weights[0].copy()
    is_in, edges = np.zeros(n, bool), []
    is_in[0] = True
    for _ in range(n - 1):
        node = int(np.argmax(np.where(is_in, -np.inf, reach)))
        edges.append((int(nearest[node]), node))
        is_in[node] = True
        closer = ~is_in & (log_weights[node] > reach)
        reach[closer], nearest[closer] = log_weights[node][closer], node
    return edges


def check_trees(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that do not fit the schema: the kernel would read beyond them.

    Raises InvalidArray, naming the array.
    """
    schema = Schema.from_json(cast(Header, header)["schema"])
    sizes, n, c = schema.domain_sizes, schema.n_attributes, schema.n_classes
    i, j = np.triu_indices(n, 1)
    n_cells = {"class_counts": c, "log_prior": c, "alone": int(sizes.sum()) * c, "log_weights": n * n}
    n_cells["ratios"] = int((sizes[i] * sizes[j]).sum()) * c
    for name, size in n_cells.items():
        typed(arrays, name, np.int64 if name == "class_counts" else np.float64, size)
    for name in ("log_prior", "alone", "ratios"):
        refuse(name, ~np.isfinite(arrays[name]), "holds a value that is not finite")
    weights = arrays["log_weights"].reshape(n, n)
    if not (np.isfinite(weights[i, j]).all() and np.array_equal(weights, weights.T)):
        raise InvalidArray("log_weights", "is not symmetric, or holds a value that is not finite")
