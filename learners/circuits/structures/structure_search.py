"""Structure "auto": candidate structures, selected and stopped by validation likelihood, then EM over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import Fit, Rows
from learners.circuits.em.expected_sums import ExpectedSums, Model
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.chow_liu import chow_liu, hclt
from learners.circuits.structures.learnspn import learnspn
from learners.circuits.structures.random_regions import Make, k_means_row_clusters, mixture_of_clusters
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
# Passes in each round of the search, after which the better half goes on; those of the last round have all work that is left.
PASSES = (3, 6, 12)
# A candidate is left out if one pass over its rows would take more than this share of all work.
MOST_OF_A_PASS = 0.04
# Share of all work that the choice of pseudo-counts may take.
FOR_PSEUDO_COUNTS = 0.1
# Concentration of the initial weights of hidden trees: a small one makes their states differ (docs/results/density.md).
CONCENTRATION = 0.1
# Work of LearnSPN for each row and pair of columns, and its largest share of all work.
TESTS_OF_A_PAIR, MOST_OF_TESTS = 3.0, 0.25
LAPLACE = (0.1, 1.0, 10.0, 0.01)
FEWEST_ROWS = 50


@dataclass(frozen=True)
class Candidate:
    """A candidate structure."""

    name: str
    n_edges: float  # about how many it will have
    make: Callable[[], Circuit]  # makes the circuit to start from


@dataclass(frozen=True)
class Tried:
    """Result of a candidate."""

    name: str
    n_edges: int
    n_passes: int
    laplace: float  # rows added to each count
    valid: float  # mean log likelihood of the rows to choose by, in nats; NaN of a candidate that was left out
    # "ended" where nothing was gained any more, "stopped" where others were better, "out of work" at the end of the
    # budget, "too large" where one pass would have taken too much of it.
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
    states: Sequence[int] = (4, 8, 16, 32),
    report: Callable[[float, str], None] = lambda _share, _note: None,
) -> Choice:
    """Fit circuits of several structures, and return the one with the highest likelihood on validation rows.

    Candidates are Chow-Liu trees, hidden Chow-Liu trees of several sizes, LearnSPN, and mixtures of trees and of
    hidden trees. In each round all remaining candidates get the same number of passes, of stepwise EM and then of
    full passes, until they no longer improve, and the better half continues; the last ones get all remaining work.
    Then the best is refined with other pseudo-counts.

    Work is counted, not timed: the same rows give the same circuit however fast the machine is, and on any number
    of threads. k-means depends on floating point, so another kind of processor may find another circuit. Raises
    EmptyData if there are no rows of either kind, and InvalidParameter.

    fit, valid: rows to fit and rows to choose by.
    pairs: pairwise counts of all rows; by default those of `fit`.
    minutes: budget, in minutes of two threads of a typical server.
    states: numbers of states of hidden Chow-Liu trees.
    report: called with the share of finished work and the current candidate; may raise.
    References: Chow, Liu (1968); Liu, Van den Broeck (2021); Gens, Domingos (2013); Meila, Jordan (2000); Jamieson,
    Talwalkar (2016), Non-stochastic best arm identification (the halving).
    """
    if not fit.n_rows or not valid.n_rows:
        raise EmptyData("There are too few rows to choose a circuit.")
    if not minutes > 0:
        raise InvalidParameter("minutes", minutes, "more than zero")
    if pairs is None:
        pairs = PairwiseCounts(schema)
        pairs.update(fit)
    candidates, work = structure_candidates(schema, fit, pairs, states, seed), search_work_budget(minutes)
    left_out, fits = [], {}
    for candidate in candidates:
        if candidate.n_edges * fit.n_rows > MOST_OF_A_PASS * work and candidate is not candidates[0]:
            left_out.append(Tried(candidate.name, int(candidate.n_edges), 0, 0.0, np.nan, "too large"))
            continue
        report(0.0, f"making {candidate.name}")
        fits[candidate.name] = Fit(candidate.make(), seed=seed)
    # All candidates have the same variables, so the first one's rows are those of all.
    circuit = fits[candidates[0].name].circuit
    rows_of = circuit_columns(circuit, schema).rows_of_chunk
    rows = Rows(rows_of(fit), rows_of(valid), threads)
    return _raced(fits, left_out, rows, work, report)


def _raced(
    fits: dict[str, Fit], left_out: list[Tried], rows: Rows, work: float, report: Callable[[float, str], None]
) -> Choice:
    """Halve the candidates round by round, then try pseudo-counts."""
    alive, meter = dict(fits), _Meter(work * (1 - FOR_PSEUDO_COUNTS), report)
    for n_passes in (*PASSES, None):
        best = sorted(alive, key=lambda name: -alive[name].valid)
        alive = {
            name: alive[name] for name in best[: len(best) if n_passes == PASSES[0] else max(1, -(-len(best) // 2))]
        }
        for name, fit in alive.items():
            meter.spend(name, fit, rows, n_passes)
    alive = dict(sorted(alive.items(), key=lambda each: -each[1].valid))
    winner = next(iter(alive))
    others = [fits[winner].again(laplace) for laplace in LAPLACE if laplace != fits[winner].laplace]
    meter.left += work * FOR_PSEUDO_COUNTS
    for place, other in enumerate(others):
        own = _Meter(meter.left / (len(others) - place), report)
        meter.left -= own.left
        own.spend(f"{winner}, {other.laplace:g} rows added to each count", other, rows, None)
        meter.left += own.left
    chosen = max([fits[winner], *others], key=lambda fit: fit.valid)
    tried = [_became(name, fit, name in alive) for name, fit in fits.items()]
    tried += [_became(winner, other, True) for other in others]
    return Choice(chosen.best, chosen.laplace, sorted(tried, key=lambda each: -each.valid) + left_out)


class _Meter:
    """Remaining work."""

    def __init__(self, work: float, report: Callable[[float, str], None]) -> None:
        self.work, self.left, self.report = work, work, report

    def spend(self, name: str, fit: Fit, rows: Rows, n_passes: int | None) -> None:
        """Continue a fit for some passes, or until the work is spent."""
        cost = float(rows.fit.shape[1]) * fit.circuit.n_edges
        most = self.left if n_passes is None else min(self.left, n_passes * cost)
        before = fit.work
        fit.advance(rows, most, lambda: self.report(1 - (self.left - fit.work + before) / self.work, name))
        self.left -= fit.work - before


def _became(name: str, fit: Fit, is_last: bool) -> Tried:
    how = "ended" if fit.has_ended else "out of work" if is_last else "stopped"
    return Tried(name, fit.circuit.n_edges, fit.n_passes, fit.laplace, fit.valid, how)


def structure_candidates(
    schema: Schema, fit: Chunk, pairs: PairwiseCounts, states: Sequence[int], seed: int
) -> list[Candidate]:
    """Return the candidates of `choose_circuit_structure`; the first is always tried."""
    codes, sizes = codes_and_domain_sizes(schema, fit.x, fit.y)
    of_tree, n = float(sum(sizes) * max(sizes, default=1)), len(sizes)
    candidates = [Candidate("Chow-Liu tree", of_tree, partial(chow_liu, pairs))]
    for of_tree_states in states:
        make = partial(hclt, pairs, of_tree_states, seed, concentration=CONCENTRATION)
        candidates.append(Candidate(f"hidden tree of {of_tree_states} states", float(n * of_tree_states**2), make))
    # Its tests take work, too, and are counted as edges: see MOST_OF_TESTS.
    tests = n**2 * TESTS_OF_A_PAIR * MOST_OF_A_PASS / MOST_OF_TESTS
    candidates.append(Candidate("LearnSPN", tests, partial(learnspn, codes, sizes, seed=seed)))

    def mixed(n_parts: int, make: Make) -> Circuit:
        return mixture_of_clusters(schema, fit, k_means_row_clusters(codes, sizes, n_parts, seed), make)

    for n_parts in (4, 16):
        if fit.n_rows >= FEWEST_ROWS * n_parts:
            make = partial(mixed, n_parts, lambda pairs, _: chow_liu(pairs))
            candidates.append(Candidate(f"mixture of {n_parts} trees", n_parts * of_tree, make))

    def hidden_tree(of_states: int, pairs: PairwiseCounts, number: int) -> Circuit:
        return hclt(pairs, of_states, seed + number, concentration=CONCENTRATION)

    for n_parts, own in ((4, 6), (4, 12)):
        if fit.n_rows >= FEWEST_ROWS * n_parts:
            make = partial(mixed, n_parts, partial(hidden_tree, own))
            name = f"mixture of {n_parts} hidden trees of {own} states"
            candidates.append(Candidate(name, float(n_parts * n * own**2), make))
    return candidates


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
# Whole passes once the search has seen every row.
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
    counted: Together[PairwiseCounts, HoldOut], minutes: float, laplace: float, seed: int
) -> Passes[tuple[Choice, Chunk]]:
    """Run the search as work between passes; with fewer than 50 rows, use the Chow-Liu tree without validation."""
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
            schema, fit, valid, pairs=pairs, minutes=minutes, threads=threads, seed=seed, report=report
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
