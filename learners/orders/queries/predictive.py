"""The most probable graph as a network, and predictive probabilities of further rows under it or all graphs, with
parameters integrated out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import scipy

from learners.errors import LearnerError, UnknownColumn
from learners.kernels.arrays import Array, Floats, Integers
from learners.models.estimation import Average
from learners.orders.lattice.graph_samples import Graph, bitset_nodes
from learners.orders.lattice.lattice import lattice_order_sums
from learners.orders.queries.queries import GraphQueries
from learners.orders.scores.bdeu_bge import BDeu, BGe, KeptRows
from learners.orders.scores.scores import family_scores_with_prior
from learners.schema import Schema
from learners.schema.encoding.encode import attribute_numbers

# A node and its parents.
Family = tuple[int, tuple[int, ...]]
# Cells of all nodes together.
MOST_CELLS = 1 << 20


class NoTables(LearnerError, ValueError):
    """Raised if the tables of a network were too large to store with its posterior."""

    def __init__(self) -> None:
        super().__init__(
            f"The tables of the most probable graph have more than {MOST_CELLS:,} probabilities, so they were not kept. Train with a "
            "smaller max_parents or max_values."
        )


class NoRows(LearnerError, ValueError):
    """Raised if the parameters of a graph cannot be counted because the model stores no rows."""

    def __init__(self) -> None:
        super().__init__(
            "The model keeps no rows to count the parameters of this graph from, only those of its best graph. Train again, with "
            "keep_rows=true (if the distinct rows fit into 16 MiB)."
        )


def predictive_conditional_tables(score: BDeu, parents: Graph) -> list[Floats]:
    """Return for each node the mean probability of its r values given the q combinations of parent values, (q, r)
    float64.

    The first parent's value varies slowest. Empty if all tables together have more than `MOST_CELLS` cells.
    """
    families = list(enumerate(parents))
    if n_family_table_cells(score, families) > MOST_CELLS:
        return []
    counts = posterior_dirichlet_counts(score, families)
    return [table / table.sum(axis=1, keepdims=True) for table in counts]


def n_family_table_cells(score: BDeu, families: Sequence[Family]) -> float:
    """Return the number of probabilities in the tables of some families."""
    return sum(float(np.prod(score.sizes[[*own, node]], dtype=np.float64)) for node, own in families)


def posterior_dirichlet_counts(score: BDeu, families: Sequence[Family]) -> list[Floats]:
    """Return for each family the rows of each combination of values plus the prior's pseudo-counts, (q, r) float64.

    Given a combination, the probabilities have a Dirichlet distribution with these parameters.

    References: Heckerman, Geiger, Chickering (1995), equation (23), with the prior of section 5.
    """
    sizes = score.sizes
    shapes = [(int(np.prod(sizes[list(own)])), int(sizes[node])) for node, own in families]
    counts = [np.full(q * r, score.ess / (q * r)) for q, r in shapes]
    for x, weights in score.rows.blocks():
        for place, (node, own) in enumerate(families):
            counts[place] += np.bincount(family_table_indices(node, own, x, sizes), weights, counts[place].size)
    return [of_family.reshape(shape) for of_family, shape in zip(counts, shapes, strict=True)]


def family_table_indices(node: int, own: tuple[int, ...], x: Array, sizes: Integers) -> Integers:
    """Return the index of each row's cell in the flat table (q, r) of a node and its parents, for codes x (d, n), (n,)
    int64.
    """
    cells = np.zeros(x.shape[1], np.int64)
    for column in (*own, node):
        cells = cells * sizes[column] + x[column]
    return cells


# Family scores, times distinct rows / 8 of nominal columns, that are made anew for all rows together: some seconds.
EXACT_WORK = 20_000_000
# Probabilities in the tables of all families that were drawn: 256 MiB.
MOST_TABLES = 1 << 25
ROWS_AT_A_TIME = 4096
# Log densities of rows under drawn graphs that are in memory at a time: 128 MiB.
MOST_LOGS = 1 << 24


def predictive_log_densities(bge: BGe, parents: Graph, x: Floats) -> Floats:
    """Return the log density of each row of x (n, d) under a graph, given the scored rows, (n,) float64.

    References: Geiger, Heckerman (2002), Parameter priors for directed acyclic graphical models, section 5: the
    posterior predictive of each set of columns is a t distribution, and a family's is the ratio of two of them.
    """
    return np.asarray(np.sum([_log_density(bge, node, own, x) for node, own in enumerate(parents)], axis=0))


def _log_density(bge: BGe, node: int, own: tuple[int, ...], x: Floats) -> Floats:
    """Return the log density of a node given its parents for each row of x (n, d), (n,)."""
    return _log_t(bge, [*own, node], x) - _log_t(bge, list(own), x)


def _log_t(bge: BGe, columns: list[int], x: Floats) -> Floats:
    """Return the log density of the given columns, a multivariate t distribution, (n,)."""
    size = len(columns)
    if not size:
        return np.zeros(len(x))
    n, alpha_mu = bge.n_rows, bge.prior.alpha_mu
    precision = n + alpha_mu
    mean = n * bge.mean[columns] / precision  # the prior's mean is zero
    lower = np.linalg.cholesky(bge.scale[np.ix_(columns, columns)])
    deviations = np.linalg.solve(lower, (x[:, columns] - mean).T)
    degrees = bge.degrees + 1.0
    factor = precision / (precision + 1.0)
    constant = (
        scipy.special.gammaln((degrees + size) / 2)
        - scipy.special.gammaln(degrees / 2)
        + size / 2 * np.log(factor / np.pi)
        - np.log(np.diag(lower)).sum()
    )
    return np.asarray(constant - (degrees + size) / 2 * np.log1p(factor * (deviations**2).sum(axis=0)))


def record_batch_matrix(batch: pa.RecordBatch, schema: Schema) -> Floats:
    """Return the numbers of a record batch, (d, n) float64; NaN if missing. Raises UnknownColumn."""
    columns = []
    for attribute in schema.attributes:
        if attribute.name not in batch.schema.names:
            raise UnknownColumn(attribute.name, batch.schema.names)
        columns.append(attribute_numbers(batch.column(attribute.name), attribute))
    return np.stack(columns)


def predictive_log_probabilities(tables: Sequence[Floats], parents: Graph, x: Integers, sizes: Integers) -> Floats:
    """Return the log probability of each row of codes x (d, n) by the tables (q, r) of a graph, (n,) float64; NaN for
    unseen values.
    """
    is_known = (x < sizes[:, np.newaxis]).all(axis=0)
    logs = np.where(is_known, 0.0, np.nan)
    x = np.where(is_known, x, 0)
    for node, own in enumerate(parents):
        logs += np.log(tables[node].ravel()[family_table_indices(node, own, x, sizes)])
    return logs


class GraphAverage:
    """Posterior predictive distribution of further rows, averaged over graphs, each row given the scored ones.

    Exact if all orders are summed, no edges are known, the prior is that of orders, and the sums for `n_rows`
    rows are few. Otherwise an average over drawn graphs, each with its parameters integrated out.

    average: its interval is not used.
    n_rows: approximate number of rows to evaluate.
    pause: called for each row or family; an error that it raises stops the evaluation.
    Raises NoRows if the model stores no rows of nominal columns to count; NoTables, UnknownColumn,
    InvalidParameter, ImpossibleEdges.
    """

    def __init__(
        self, engine: GraphQueries, average: Average, n_rows: int, pause: Callable[[], None] | None = None
    ) -> None:
        self.engine, self.average, self._pause = engine, average, pause or (lambda: None)
        posterior = engine.posterior
        if engine.score is None:
            raise NoRows
        self.score: BGe | BDeu = engine.score
        per_family = 1 if isinstance(self.score, BGe) else 1 + self.score.rows.n_distinct // 8
        self.is_exact = (
            average.prior == "order"
            and not (average.present or average.absent)
            and posterior.sets is None
            and engine.conditional is not None
            and n_rows * posterior.scores.logs.size * per_family <= EXACT_WORK
        )
        self.n_rows = 0
        if self.is_exact:
            return
        self.drawn, _ = engine.graphs_of(average, pause)
        graphs = [tuple(bitset_nodes(own) for own in row) for row in self.drawn.graphs.parents.tolist()]
        self.families = sorted({family for graph in graphs for family in enumerate(graph)})
        place = {family: i for i, family in enumerate(self.families)}
        of_graph = np.array([[place[family] for family in enumerate(graph)] for graph in graphs])
        # For each family in turn, the graphs that have it.
        self._with_family = np.split(
            np.argsort(of_graph, axis=None, kind="stable") // of_graph.shape[1],
            np.cumsum(np.bincount(of_graph.ravel()))[:-1],
        )
        self._excess = np.zeros(len(graphs))
        self._tables: list[Floats] = []  # of each family (q, r) float64, the log probabilities of its values
        if isinstance(self.score, BDeu):
            if n_family_table_cells(self.score, self.families) > MOST_TABLES:
                raise NoTables
            self._tables = [
                np.log(n / n.sum(axis=1, keepdims=True)) for n in posterior_dirichlet_counts(self.score, self.families)
            ]

    def log_likelihood(self, x: Array) -> Floats:
        """Return the log density of each row of x (d, n), codes or numbers, (n,) float64; NaN for missing or unseen
        values.
        """
        x, lost = np.array(x, np.float64), 0.0
        is_told = np.isfinite(x).all(axis=0)
        if isinstance(self.score, BGe):
            center, spread = self.engine.posterior.standard
            x = (x - center[:, np.newaxis]) / spread[:, np.newaxis]
            lost = float(np.log(spread).sum())
        else:
            is_told &= ((x >= 0) & (x < self.score.sizes[:, np.newaxis])).all(axis=0)
        logs = np.full(x.shape[1], np.nan)
        most = ROWS_AT_A_TIME if self.is_exact else min(ROWS_AT_A_TIME, MOST_LOGS // self.drawn.weights.size)
        for rows in np.array_split(np.flatnonzero(is_told), max(1, -(-x.shape[1] // most))):
            if rows.size:
                logs[rows] = (self._exactly if self.is_exact else self._by_draws)(x[:, rows]) - lost
        self.n_rows += int(np.count_nonzero(is_told))
        return logs

    def _exactly(self, x: Floats) -> Floats:
        """Return log Z with the row added minus log Z without it, where Z sums over all orders and graphs."""
        posterior, conditional = self.engine.posterior, self.engine.conditional
        assert conditional is not None
        candidates, logs = posterior.scores.candidates, []
        for row in x.T:
            self._pause()
            tables = score_with_added_row(self.score, row).tables(candidates, conditional.most)
            scores = family_scores_with_prior(tables, candidates, conditional.prior)
            logs.append(lattice_order_sums(scores, posterior.lattice).log_z)
        return np.array(logs) - posterior.prior_sums.log_z

    def _by_draws(self, x: Floats) -> Floats:
        logs = np.zeros((self.drawn.weights.size, x.shape[1]))
        for i, (node, own) in enumerate(self.families):
            self._pause()
            if isinstance(self.score, BGe):
                logs[self._with_family[i]] += _log_density(self.score, node, own, x.T)
            else:
                cells = family_table_indices(node, own, x.astype(np.int64), self.score.sizes)
                logs[self._with_family[i]] += self._tables[i].ravel()[cells]
        most = logs.max(axis=0)
        shares = np.exp(np.subtract(logs, most, out=logs), out=logs)
        mean = self.drawn.weights @ shares
        self._excess += shares @ (1.0 / mean)
        return np.asarray(most + np.log(mean))

    def to_json(self) -> dict[str, object]:
        """Return how the rows so far were averaged: `is_exact`, or the number of draws with the standard error of the
        mean log density.
        """
        if self.is_exact:
            return {"is_exact": True}
        answer: dict[str, object] = {"is_exact": False, "n": self.average.n, **self.drawn.effective_size}
        if self.n_rows:
            answer["standard_error"] = float(self.drawn.mean(self._excess / self.n_rows)[1])
        return answer


def score_with_added_row(score: BGe | BDeu, row: Floats) -> BGe | BDeu:
    """Return the score of the table with one more row (d,), in scored units."""
    if isinstance(score, BDeu):
        ((x, counts),) = score.rows.blocks()
        more = np.concatenate([x, row[:, np.newaxis].astype(x.dtype)], axis=1)
        return replace(score, rows=KeptRows(more, np.append(counts, 1)))
    n, away = score.n_rows, row - score.mean
    return BGe(n + 1, score.mean + away / (n + 1), score.scatter + n / (n + 1) * np.outer(away, away), score.prior)
