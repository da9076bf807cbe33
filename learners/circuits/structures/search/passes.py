"""The passes of structure "auto": counts and drawn rows, the search in memory, then EM over all rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.columns import columns_of
from learners.circuits.em.expected_sums import ExpectedSums, Model
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures import chow_liu
from learners.circuits.structures.search.search import FEWEST_ROWS, Choice, Tried, choose
from learners.counts.pairwise import PairwiseCounts
from learners.counts.row_samples import HoldOut
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.passes.statistic import Together
from learners.schema import Chunk, Schema

# Rows that are drawn: so many codes, at least the parameter `sample` of rows, at most so many rows.
CODES, MOST_ROWS = 20_000_000, 200_000
# Of every so many drawn rows one is not fitted but chosen by.
ONE_IN = 10
# Whole passes once the search has seen every row.
PASSES_OF_ALL = 2
SHARES = 1000


def drawing(schema: Schema, sample: int) -> Together[PairwiseCounts, HoldOut]:
    """What the search needs of the rows: one pass."""
    n_rows = max(sample, min(MOST_ROWS, CODES // (schema.n_attributes + 1)))
    return Together(PairwiseCounts(schema), HoldOut(schema, n_rows, room=0))


def split(rows: Chunk) -> tuple[Chunk, Chunk]:
    """Rows to fit and rows to choose by: of every ten, in the order of their hashes, the last is chosen by."""
    is_valid = np.arange(rows.n_rows) % ONE_IN == ONE_IN - 1
    return rows.rows(~is_valid), rows.rows(is_valid)


def searching(
    counted: Together[PairwiseCounts, HoldOut], minutes: float, laplace: float, seed: int
) -> Passes[tuple[Choice, Chunk]]:
    """The search as work between passes; of fewer than 50 rows the Chow-Liu tree, as there is nothing to choose by."""
    schema, pairs, drawn = counted.first.schema, counted.first, counted.second
    rows = drawn.occurrences(drawn.capacity)
    fit, valid = split(rows)
    if rows.n_rows < FEWEST_ROWS:
        circuit = chow_liu(pairs)
        tried = Tried("Chow-Liu tree", circuit.n_edges, 0, laplace, float("nan"), "too few rows to choose by")
        return Choice(circuit, laplace, [tried]), valid

    def run(threads: int, advance: Advance) -> Choice:
        def report(share: float, note: str) -> None:
            advance(int(min(1.0, share) * SHARES), SHARES, note)

        return choose(schema, fit, valid, pairs=pairs, minutes=minutes, threads=threads, seed=seed, report=report)

    choice: Choice = yield Work("choosing a circuit", run)
    return choice, valid


def polished(
    start: Model,
    n_passes: int,
    make: Callable[[Model], ExpectedSums[Model, Any]],
    maximised: Callable[[Any], Model],
    gains: Callable[[Model], float],
) -> Passes[tuple[Model, int]]:
    """EM over all rows until drawn rows gain nothing; returns the best model and the passes.

    `make` makes the statistic of a model, of which `maximised` makes the next one; `gains` says how well a model explains the
    rows to choose by.
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


def likelihood_of(schema: Schema, valid: Chunk, circuit: Circuit) -> float:
    """Mean log likelihood of drawn rows; of circuits with densities it is not known, as drawn rows are codes: NaN."""
    if schema.continuous or not valid.n_rows:
        return float("nan")
    return float(np.mean(log_values(circuit, columns_of(circuit, schema).rows_of_chunk(valid))))


def facts_of(choice: Choice) -> Mapping[str, object]:
    """What a model tells of the search."""
    return {"laplace": choice.laplace, "tried": [tried.facts() for tried in choice.tried]}
