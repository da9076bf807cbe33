"""Structure "auto": hidden trees of growing size, selected and stopped by validation likelihood, then EM over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import batch_em
from learners.circuits.em.expected_sums import ExpectedSums, Model
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.chow_liu import chow_liu
from learners.circuits.structures.hidden_trees import HiddenTrees, HiddenTreeStart, TreeFit, TreeRows, refitted_trees
from learners.circuits.structures.random_regions import k_means_row_clusters
from learners.circuits.variables import circuit_columns
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.errors import EmptyData, InvalidParameter
from learners.kernels.arrays import Codes, Integers
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.passes.statistic import Together
from learners.schema import Chunk, Schema

# Edges of circuits that a thread takes a row through EM a second, by which minutes are counted as work: 230 to 270 million
# were measured on circuits of 1,000 to 18,000 edges, less on larger ones.
EDGES_A_SECOND = 150e6
THREADS = 2
# Matrix products take a row through so many edges of a hidden tree in the time of one edge of a circuit: 8 to 20 were measured.
EDGES_AT_ONCE = 12
# A size is left out if one pass of EM over circuits of its size would take more than this share of all work, where such passes
# follow, or if its circuit had more edges than MOST_EDGES.
MOST_OF_A_PASS = 0.04
MOST_EDGES = 1_000_000
# Concentration of the initial weights of hidden trees: a small one makes their states differ (docs/results/density.md).
CONCENTRATION = 0.1
STATES = (4, 8, 16, 32, 64, 128)
# Passes of stepwise EM over the rows to fit: as many as go over STEPPED rows, within bounds; and rows that are added to each
# distribution.
STEPPED, FEWEST_PASSES, MOST_PASSES = 400_000, 20, 60
ADDED = 1.0
# Trees of the mixtures, and the fewest rows for each.
TREES, ROWS_OF_A_TREE = 4, 50
# Twice as many states, which are four times as many edges, must gain so many nats a row.
LEAST_GAIN = 2e-3
# Rows added to each count of the Chow-Liu tree, and its passes of EM at most.
LAPLACE, PLAIN_PASSES = 0.1, 10
FEWEST_ROWS = 50


@dataclass(frozen=True)
class Tried:
    """Result of a candidate."""

    name: str
    n_edges: int
    n_passes: int
    laplace: float  # rows added to each count
    valid: float  # mean log likelihood of the rows to choose by, in nats; NaN of a candidate that was left out
    # "ended" where all passes were made or nothing was gained any more, "out of work" where the budget did not last,
    # "too large" where the circuit would have had too many edges.
    how: str

    def facts(self) -> dict[str, object]:
        """Return the fields as plain values."""
        return asdict(self) | {"valid": None if np.isnan(self.valid) else round(self.valid, 4)}


@dataclass(frozen=True, eq=False)
class Choice:
    """The selected circuit."""

    circuit: Circuit
    laplace: float
    tried: list[Tried]  # the best first
    n_passes_of_all: int = 0  # of EM over the rows of both kinds, with which the circuit ends


def search_work_budget(minutes: float) -> float:
    """Return the work (rows times edges) that two threads of a typical server process by EM in `minutes` minutes."""
    return minutes * 60 * THREADS * EDGES_A_SECOND


def choose_circuit_structure(
    schema: Schema,
    fit: Chunk,
    valid: Chunk,
    *,
    pairs: PairwiseCounts | None = None,
    minutes: float = 10.0,
    threads: int = 1,
    seed: int = 0,
    states: Sequence[int] = STATES,
    passes_of_all: int = 0,
    report: Callable[[float, str], None] = lambda _share, _note: None,
) -> Choice:
    """Fit circuits of several sizes, and return the one with the highest likelihood on validation rows.

    Candidates are the Chow-Liu tree, hidden Chow-Liu trees, and mixtures of hidden trees that start from clusters of
    rows. Hidden trees learn by stepwise EM. Their number of states doubles until the likelihood of the
    validation rows no longer improves, or until the work is spent.

    Work is counted, not timed: the same rows give the same circuit however fast the machine is, and on any number
    of threads. k-means adds up without rounding, and EM in one order. Raises EmptyData if there are no rows of either
    kind, and InvalidParameter.

    fit, valid: rows to fit and rows to choose by.
    pairs: pairwise counts of all rows; by default those of `fit`.
    minutes: budget, in minutes of two threads of a typical server.
    states: numbers of states of hidden Chow-Liu trees, ascending.
    passes_of_all: passes of EM over the rows of both kinds that end the search, where hidden trees are best. With 0,
    passes over a table follow, and their work limits the size of the circuit.
    report: called with the share of finished work and the current candidate; may raise.
    References: Chow, Liu (1968); Liu, Van den Broeck (2021), section 4.1; Liang, Klein (2009).
    """
    if not fit.n_rows or not valid.n_rows:
        raise EmptyData("There are too few rows to choose a circuit.")
    if not minutes > 0:
        raise InvalidParameter("minutes", minutes, "more than zero")
    of_fit = PairwiseCounts(schema)
    of_fit.update(fit)
    pairs = of_fit if pairs is None else pairs
    search = _Search(schema, fit, valid, pairs, search_work_budget(minutes), threads, seed, not passes_of_all, report)
    plain = _fitted_chow_liu_tree(schema, fit, valid, of_fit)
    search.tried.append(plain)
    grown = [search.grow(n_trees, states) for n_trees in (1, TREES) if n_trees * ROWS_OF_A_TREE <= fit.n_rows]
    best = max((own for own in grown if own is not None), key=lambda own: own.valid, default=None)
    tried = sorted(search.tried, key=lambda each: -np.inf if np.isnan(each.valid) else each.valid, reverse=True)
    if best is None or plain.valid >= best.valid:
        return Choice(chow_liu(pairs), LAPLACE, tried)
    trees = best.best
    if passes_of_all:
        report(1.0, "EM over all rows")
        trees = refitted_trees(trees, search.rows, best.added, passes_of_all)
    return Choice(trees.circuit(), best.laplace, tried, passes_of_all)


def _fitted_chow_liu_tree(schema: Schema, fit: Chunk, valid: Chunk, pairs: PairwiseCounts) -> Tried:
    """Return how well the Chow-Liu tree of some rows explains others; EM improves it where values are missing."""
    circuit = chow_liu(pairs)
    rows_of = circuit_columns(circuit, schema).rows_of_chunk
    x, others = rows_of(fit), rows_of(valid)
    highest, n_passes = float(log_values(circuit, others).mean()), 0
    while n_passes < PLAIN_PASSES:
        circuit, n_passes = batch_em(circuit, x, 1, LAPLACE), n_passes + 1
        now = float(log_values(circuit, others).mean())
        if now < highest + LEAST_GAIN:
            break
        highest = now
    return Tried("Chow-Liu tree", circuit.n_edges, n_passes, LAPLACE, highest, "ended")


class _Search:
    """Rows, the work that is left, and what was tried."""

    def __init__(
        self,
        schema: Schema,
        fit: Chunk,
        valid: Chunk,
        pairs: PairwiseCounts,
        work: float,
        threads: int,
        seed: int,
        is_streamed: bool,
        report: Callable[[float, str], None],
    ) -> None:
        self.schema, self.chunk, self.start = schema, fit, HiddenTreeStart(pairs)
        own, self.sizes = codes_and_domain_sizes(schema, fit.x, fit.y)
        others, _ = codes_and_domain_sizes(schema, valid.x, valid.y)
        self.rows = TreeRows(own, others, self.start.shares, threads)
        self.work, self.left, self.seed, self.is_streamed, self.report = work, work, seed, is_streamed, report
        self.tried: list[Tried] = []

    def grow(self, n_trees: int, states: Sequence[int]) -> TreeFit | None:
        """Fit a hidden tree, or a mixture of them, of more and more states until nothing is gained; returns the best,
        or None if even the first is too large.
        """
        best: TreeFit | None = None
        starts = self._starts(n_trees)
        for n_states in states:
            fitted = self._fit(starts, n_states)
            if fitted is None or (best is not None and fitted.valid < best.valid + LEAST_GAIN):
                break
            best = fitted
        return best

    def _starts(self, n_trees: int) -> list[tuple[float, HiddenTreeStart]]:
        """Return each tree's share of the rows, and where it starts from: a cluster of rows."""
        if n_trees == 1:
            return [(1.0, self.start)]
        cluster = k_means_row_clusters(self.rows.fit, self.sizes, n_trees, self.seed)
        starts = []
        for name in np.unique(cluster).tolist():
            pairs = PairwiseCounts(self.schema)
            pairs.update(self.chunk.rows(cluster == name))
            starts.append((float(np.mean(cluster == name)), HiddenTreeStart(pairs)))
        return starts

    def _fit(self, starts: Sequence[tuple[float, HiddenTreeStart]], n_states: int) -> TreeFit | None:
        """Fit hidden trees, or return None if they are too large or would take more work than is left."""
        name = f"hidden tree of {n_states} states"
        if len(starts) > 1:
            name = f"mixture of {len(starts)} hidden trees of {n_states} states"
        n_rows = self.rows.fit.shape[1]
        n_edges = len(starts) * (len(self.sizes) * n_states**2 + sum(self.sizes) * n_states)
        n_passes = min(max(STEPPED // n_rows, FEWEST_PASSES), MOST_PASSES)
        of_a_pass = float(n_rows) * n_edges
        how = ""
        if n_edges > MOST_EDGES or (self.is_streamed and of_a_pass > MOST_OF_A_PASS * self.work):
            how = "too large"
        elif n_passes * of_a_pass / EDGES_AT_ONCE > self.left:
            how = "out of work"
        if how:
            self.tried.append(Tried(name, n_edges, 0, ADDED / n_states, np.nan, how))
            return None

        def spend() -> None:
            self.left -= of_a_pass / EDGES_AT_ONCE
            self.report(1.0 - self.left / self.work, name)

        self.report(1.0 - self.left / self.work, name)
        mixing = np.array([share for share, _ in starts])
        trees = tuple(start.tree(n_states, self.seed + i, CONCENTRATION) for i, (_, start) in enumerate(starts))
        fitted = TreeFit(HiddenTrees(mixing, trees), ADDED, n_passes, self.seed)
        fitted.run(self.rows, spend)
        self.tried.append(Tried(name, n_edges, fitted.n_passes, fitted.laplace, fitted.valid, "ended"))
        return fitted


def codes_and_domain_sizes(schema: Schema, x: Codes, y: Codes | None) -> tuple[Integers, list[int]]:
    """Return codes (n_variables, n_rows) int64 of attributes and classes, and the domain sizes; missing is -1, and
    summed out.
    """
    missing = np.array([attribute.first_code for attribute in schema.attributes], np.int64)
    codes = x.astype(np.int64) - missing[:, np.newaxis]
    sizes = (schema.domain_sizes - missing).tolist()
    if schema.target is not None and y is not None:
        codes = np.concatenate([codes, y[np.newaxis].astype(np.int64)])
        sizes.append(schema.n_classes)
    return codes, sizes


# Rows that are drawn: so many codes, at least the parameter `sample` of rows, at most so many rows.
CODES, MOST_ROWS = 20_000_000, 200_000
# One in so many drawn rows is kept for the choice instead of fitted.
ONE_IN = 10
# Passes over all rows that end the search, if it has seen every row.
PASSES_OF_ALL = 2
SHARES = 1000


def structure_search_statistics(schema: Schema, sample: int) -> Together[PairwiseCounts, HoldOut]:
    """Return the statistics that the search needs, collected in one pass."""
    n_rows = max(sample, min(MOST_ROWS, CODES // (schema.n_attributes + 1)))
    return Together(PairwiseCounts(schema), HoldOut(schema, n_rows, room=0))


def split_fit_and_validation_rows(rows: Chunk) -> tuple[Chunk, Chunk]:
    """Split rows into training and validation rows: of every ten, in hash order, the last is for validation."""
    is_valid = np.arange(rows.n_rows) % ONE_IN == ONE_IN - 1
    return rows.rows(~is_valid), rows.rows(is_valid)


def structure_search_work(
    counted: Together[PairwiseCounts, HoldOut], minutes: float, laplace: float, seed: int, passes_of_all: int
) -> Passes[tuple[Choice, Chunk]]:
    """Run the search as work between passes; with fewer than 50 rows, use the Chow-Liu tree without validation.

    passes_of_all: see `choose_circuit_structure`.
    """
    schema, pairs, drawn = counted.first.schema, counted.first, counted.second
    rows = drawn.occurrences(drawn.capacity)
    fit, valid = split_fit_and_validation_rows(rows)
    if rows.n_rows < FEWEST_ROWS:
        circuit = chow_liu(pairs)
        tried = Tried("Chow-Liu tree", circuit.n_edges, 0, laplace, float("nan"), "too few rows to choose a circuit")
        return Choice(circuit, laplace, [tried]), valid

    def run(threads: int, advance: Advance) -> Choice:
        def report(share: float, note: str) -> None:
            advance(int(min(1.0, share) * SHARES), SHARES, note)

        return choose_circuit_structure(
            schema,
            fit,
            valid,
            pairs=pairs,
            minutes=minutes,
            threads=threads,
            seed=seed,
            passes_of_all=passes_of_all,
            report=report,
        )

    choice: Choice = yield Work("choosing a circuit", run)
    return choice, valid


def em_passes_with_early_stopping(
    start: Model,
    n_passes: int,
    make: Callable[[Model], ExpectedSums[Model, Any]],
    maximised: Callable[[Any], Model],
    gains: Callable[[Model], float],
) -> Passes[tuple[Model, int]]:
    """Run EM over all rows until drawn rows gain nothing; returns the best model and the number of passes.

    `make` creates the statistic of a model, from which `maximised` computes the next model; `gains` returns how
    well a model explains the validation rows.
    """
    model = best = start
    highest, done = gains(start), 0
    for _ in range(n_passes):
        expected = yield make(model)
        done += 1
        model = maximised(expected)
        now = gains(model)
        if now <= highest:
            break
        best, highest = model, now
    return best, done


def mean_validation_log_likelihood(schema: Schema, valid: Chunk, circuit: Circuit) -> float:
    """Return the mean log likelihood of drawn rows; NaN for circuits with densities, because drawn rows are codes."""
    if schema.continuous or not valid.n_rows:
        return float("nan")
    return float(np.mean(log_values(circuit, circuit_columns(circuit, schema).rows_of_chunk(valid))))
