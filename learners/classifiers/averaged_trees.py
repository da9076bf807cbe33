"""Tree-augmented naive Bayes averaged over all trees: P(y | x) from one determinant per class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, cast

import numpy as np
import pyarrow as pa
import scipy

from learners.classifiers.description import describe_schema_as_tables
from learners.classifiers.lookup.look_up_tables import run_in_row_ranges
from learners.classifiers.tree_sum_kernels import add_log_spanning_tree_sums, log_spanning_tree_sum_of_logs
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays, Floats, Integers, freeze_arrays
from learners.kernels.scaled_arithmetic import BIG, NOTHING, STEP
from learners.models.model import (
    Header,
    ModelDefaults,
    check_array_elements,
    check_array_type_and_shape,
    check_log_probabilities,
)
from learners.schema import Chunk, Schema

# Equivalent sample sizes from which the marginal likelihood chooses.
GRID = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)

# Below this many rows a thread costs more than it brings.
PARALLEL_ROWS = 256


class AveragedTrees(ModelDefaults):
    """Class posterior averaged over all tree-augmented networks and their parameters.

    Each row and class costs O(n^3) for n attributes, instead of O(n) for a single tree. An attribute with an
    absent or unseen value is left out; the trees keep their probabilities.

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
        freeze_arrays(log_prior, alone, log_weights, ratios)

    @classmethod
    def of(
        cls, schema: Schema, class_counts: Integers, found: TreePosterior, facts: Mapping[str, object]
    ) -> AveragedTrees:
        """Create the model from a posterior."""
        alone = np.concatenate([table.ravel() for table in found.alone] or [np.empty(0)])
        ratios = np.concatenate([table.ravel() for table in found.ratios] or [np.empty(0)])
        return cls(schema, class_counts, found.log_prior, alone, found.log_weights, ratios, facts)

    @cached_property
    def _layout(self) -> tuple[Integers, Integers, Integers]:
        """Offsets of the tables of each pair and of each attribute, and the domain sizes."""
        sizes, n, c = self.schema.domain_sizes.astype(np.int64), self.schema.n_attributes, self.schema.n_classes
        i, j = np.triu_indices(n, 1)
        starts = np.zeros((n, n), np.int64)
        starts[i, j] = np.cumsum(np.concatenate([[0], (sizes[i] * sizes[j] * c)[:-1]]))[: i.size]
        return starts, np.cumsum(np.concatenate([[0], sizes[:-1] * c]))[:n].astype(np.int64), sizes

    @cached_property
    def _weights(self) -> tuple[Floats, Integers]:
        """Edge weights as mantissas and exponents, all divided by the largest, which leaves the probabilities
        unchanged.
        """
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
        """Predict class probabilities, (n_rows, n_classes) float64; by default with one thread per core for many rows."""
        out = np.tile(np.asarray(self.log_prior), (chunk.n_rows, 1))
        if self.schema.n_attributes and chunk.n_rows:
            run_in_row_ranges(chunk.n_rows, threads, lambda i, j: self._add(chunk.x[:, i:j], out[i:j]), PARALLEL_ROWS)
        out = np.exp(out - out.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(out / out.sum(axis=1, keepdims=True))

    def _add(self, x: Array, out: Floats) -> None:
        x = np.ascontiguousarray(x)
        x.setflags(write=False)
        starts, alone_starts, sizes = self._layout
        mantissa, exponent = self._weights
        add_log_spanning_tree_sums(x, starts, sizes, self.ratios, mantissa, exponent, self.alone, alone_starts, out)

    @property
    def class_tables(self) -> list[Floats]:
        """Return log P(x_i | y) of each attribute, (v_i, n_classes)."""
        _, starts, sizes = self._layout
        n_classes = self.schema.n_classes
        cells = zip(starts.tolist(), sizes.tolist(), strict=True)
        return [np.asarray(self.alone[first : first + n * n_classes]).reshape(n, n_classes) for first, n in cells]

    @cached_property
    def edge_probabilities(self) -> Floats:
        """Posterior probability of an edge between each pair of attributes, (n, n) float64."""
        return tree_edge_probabilities(np.asarray(self.log_weights))

    def structure(self) -> dict[str, object]:
        """Return the class, the attributes, and the edges of the most probable tree with their probabilities."""
        names, target = [attribute.name for attribute in self.schema.attributes], self.schema.target or "class"
        nodes: list[dict[str, object]] = [{"name": target, "role": "class", "n_values": self.schema.n_classes}]
        nodes += [{"name": a.name, "role": "attribute", "n_values": a.n_values} for a in self.schema.attributes]
        edges: list[dict[str, object]] = [{"from": target, "to": name, "rank": 0, "probability": 1.0} for name in names]
        edges += [
            {"from": names[i], "to": names[j], "rank": 1, "probability": float(self.edge_probabilities[i, j])}
            for i, j in most_probable_tree_edges(np.asarray(self.log_weights))
        ]
        return {"nodes": nodes, "edges": edges}

    def to_arrays(self) -> tuple[Header, Arrays]:
        """Return a header and named arrays for `from_arrays`."""
        header: Header = {"kind": self.kind, "schema": self.schema.to_json(), "facts": self.facts}
        arrays = {name: np.asarray(getattr(self, name)) for name in ("class_counts", "log_prior", "alone", "ratios")}
        return header, arrays | {"log_weights": np.asarray(self.log_weights).ravel()}

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`, without copying."""
        stored = cast(Header, header)
        schema = Schema.from_json(stored["schema"])
        n = schema.n_attributes
        weights = np.asarray(arrays["log_weights"]).reshape(n, n)
        one, two, three, four = (arrays[name] for name in ("class_counts", "log_prior", "alone", "ratios"))
        return cls(schema, one, two, three, weights, four, stored["facts"])

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables `attributes`, `classes`, and `edges` between attributes with their probabilities."""
        names = [attribute.name for attribute in self.schema.attributes]
        i, j = np.triu_indices(len(names), 1)
        of_schema = describe_schema_as_tables(self.schema, self.class_counts)
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


def most_probable_tree_edges(log_weights: Floats) -> list[tuple[int, int]]:
    """Return the edges of the most probable tree, directed away from the first attribute (Prim 1957)."""
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


def check_averaged_trees(header: Mapping[str, object], arrays: Arrays) -> None:
    """Refuse arrays that do not fit the schema and would make the kernel read out of bounds.

    Raises InvalidArray, naming the array.
    """
    schema = Schema.from_json(cast(Header, header)["schema"])
    sizes, n, c = schema.domain_sizes, schema.n_attributes, schema.n_classes
    i, j = np.triu_indices(n, 1)
    n_cells = {"class_counts": c, "log_prior": c, "alone": int(sizes.sum()) * c, "log_weights": n * n}
    n_cells["ratios"] = int((sizes[i] * sizes[j]).sum()) * c
    for name, size in n_cells.items():
        check_array_type_and_shape(arrays, name, np.int64 if name == "class_counts" else np.float64, size)
    for name in ("log_prior", "alone", "ratios"):
        check_array_elements(name, ~np.isfinite(arrays[name]), "contains a value that is not finite")
    for name in ("log_prior", "alone"):
        check_log_probabilities(name, arrays[name])
    ratios = arrays["ratios"]  # the kernel scales them until they are in range, and others never are
    check_array_elements("ratios", (ratios < 0) | (ratios >= BIG), "contains a value that is not a ratio")
    weights = arrays["log_weights"].reshape(n, n)
    if not (np.isfinite(weights[i, j]).all() and np.array_equal(weights, weights.T)):
        raise InvalidArray("log_weights", "is not symmetric, or contains a value that is not finite")


@dataclass(frozen=True)
class TreePosterior:
    """Parameters of the class posterior averaged over all trees."""

    ess: float  # equivalent sample size of the prior
    log_prior: Floats  # (c,) float64: log P(y)
    alone: tuple[Floats, ...]  # tuple of (v_i, c) float64: log P(x_i | y)
    # (n, n) float64, symmetric, -inf on the diagonal: of the edges; a tree is as probable as their product.
    log_weights: Floats
    # tuple of (v_i, v_j, c) float64: P(x_i, x_j | y) / P(x_i | y) P(x_j | y) of the pairs i < j in turn.
    ratios: tuple[Floats, ...]
    log_evidence: float  # log marginal likelihood of the counts


def tree_posterior(pairs: PairwiseCounts, ess: float) -> TreePosterior:
    """Compute the posterior over undirected trees of the attributes, with the class as a parent of all, and the
    posterior mean parameters.

    The prior is uniform over trees and Dirichlet over the probabilities, with ess / (v_i v_j c) for each cell of
    a pair, so equivalent directions of a tree have the same parameters.

    References
    ----------
    Cerquides, López de Mántaras (2005), TAN classifiers based on decomposable distributions, section 4; Meilă, Jaakkola
    (2006), Tractable Bayesian learning of tree belief networks, section 4.
    """
    n, c = pairs.sizes.size, pairs.class_counts.size
    of_class = pairs.class_counts + ess / c
    log_evidence = float(
        _evidence(pairs.class_counts, ess / c).sum()
        + scipy.special.gammaln(ess)
        - scipy.special.gammaln(ess + pairs.n_rows)
    )
    of_classes = scipy.special.gammaln(ess / c) - scipy.special.gammaln(of_class)
    alone, own_evidence = [], np.empty(n)
    for i, margin in enumerate(pairs.margins):
        prior = ess / (margin.shape[0] * c)
        alone.append(np.log((margin + prior) / of_class))
        own_evidence[i] = _evidence(margin, prior).sum() + of_classes.sum()
    log_weights, ratios = np.full((n, n), -np.inf), []
    for i in range(n):
        for j in range(i + 1, n):
            table = pairs.table(i, j)
            prior = ess / table.size
            both = _evidence(table, prior).sum() + of_classes.sum()
            log_weights[i, j] = log_weights[j, i] = both - own_evidence[i] - own_evidence[j]
            joint = (table + prior) / of_class
            ratios.append(joint / np.exp(alone[i][:, np.newaxis] + alone[j][np.newaxis]))
    # Of all n^(n - 2) trees each is as probable beforehand.
    log_trees = log_spanning_tree_sum_of_logs(log_weights) - max(0, n - 2) * np.log(max(1, n))
    log_evidence += float(own_evidence.sum() + log_trees)
    log_prior = np.log(of_class / of_class.sum())
    return TreePosterior(ess, log_prior, tuple(alone), log_weights, tuple(ratios), log_evidence)


def _evidence(counts: Integers, prior: float) -> Floats:
    return np.asarray(scipy.special.gammaln(counts + prior) - scipy.special.gammaln(prior))


def empirical_bayes_tree_posterior(pairs: PairwiseCounts) -> TreePosterior:
    """Return the posterior for the equivalent sample size in `GRID` with the largest marginal likelihood."""
    return max((tree_posterior(pairs, ess) for ess in GRID), key=lambda found: found.log_evidence)


def tree_edge_probabilities(log_weights: Floats) -> Floats:
    """Compute the posterior probability of each edge in a random tree, (n, n) float64.

    An edge's probability is its weight over the effective conductance between its ends, which remains after all
    other nodes are eliminated. The nodes are divided into three groups, any two of which contain every pair of
    their nodes; eliminating each group once gives all pairs in O(n^3).

    References
    ----------
    Kirchhoff (1847); Lyons, Peres (2016), Probability on trees and networks, section 4.2.
    """
    probabilities = np.zeros_like(log_weights)
    _probabilities(log_weights, np.arange(len(log_weights)), log_weights, probabilities)
    return probabilities


def _probabilities(logs: Floats, nodes: Integers, log_weights: Floats, found: Floats) -> None:
    """Fill in the pairs of some nodes; logs (k, k): log weights of their edges after all other nodes are eliminated."""
    k = nodes.size
    if k < 2:
        return
    if k == 2:
        i, j = nodes
        found[i, j] = found[j, i] = np.exp(min(0.0, log_weights[i, j] - logs[0, 1]))
        return
    for third in np.array_split(np.arange(k), 3):
        others = np.setdiff1d(np.arange(k), third)
        rest = logs.copy()
        for node in third.tolist():
            edges = rest[node]
            through = edges[:, np.newaxis] + edges[np.newaxis] - np.logaddexp.reduce(edges)
            rest = np.logaddexp(rest, through)
            rest[node, :] = rest[:, node] = -np.inf
            np.fill_diagonal(rest, -np.inf)
        _probabilities(rest[np.ix_(others, others)], nodes[others], log_weights, found)
