"""EM over rows in memory, ended where other rows are explained best: steps after every few rows, then whole passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import ExpectedCounts, maximised
from learners.circuits.em.expected_sums import expected_of
from learners.circuits.evaluation.evaluate import log_values
from learners.kernels.arrays import Array, Floats, Integers

# Steps of stepwise EM shrink as (t + 2)^-DECAY.
DECAY = 0.6
STEP_ROWS = 512
LEAST_STEPS = 8
# Steps end, and so does a fit, when so many passes in a row gain less than GAIN nats a row.
PATIENCE = 2
GAIN = 2e-4
IMPOSSIBLE = -1e6


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to fit and rows to choose by."""

    # fit, valid (n_variables, n_rows) of integers or floats
    fit: Array
    valid: Array
    threads: int = 1

    def expected(self, circuit: Circuit, rows: Integers | slice) -> ExpectedCounts:
        """Expected counts of some rows to fit; the same on any number of threads."""
        return expected_of(partial(ExpectedCounts, circuit), self.fit[:, rows], self.threads)

    def score(self, circuit: Circuit) -> float:
        """Mean log likelihood of the rows to choose by; a row of probability zero counts as very improbable."""
        return float(np.maximum(log_values(circuit, self.valid), IMPOSSIBLE).mean())


@dataclass
class Fit:
    """A circuit while it is fitted."""

    circuit: Circuit  # as it is now
    laplace: float = 0.1  # rows added to each count
    seed: int = 0  # of the order of rows in steps
    best: Circuit = field(init=False)  # as it explained the rows to choose by best
    valid: float = -np.inf  # how well that was, in nats a row
    n_passes: int = 0
    work: float = 0.0  # rows times edges so far
    has_ended: bool = False
    _in_steps: bool = True
    _without_gain: int = 0
    _n_steps: int = 0
    _means: tuple[Floats, Floats, Floats] | None = None

    def __post_init__(self) -> None:
        self.best = self.circuit

    def advance(self, rows: Rows, work: float, report: Callable[[], None] = lambda: None) -> None:
        """Go on for about so much work, by whole passes, or until there is no gain.

        report: called after each pass; may raise.
        """
        if self.valid == -np.inf:
            self._note(rows.score(self.circuit))
            self._without_gain = 0
        until = self.work + work
        cost = float(rows.fit.shape[1]) * self.circuit.n_edges
        while not self.has_ended and self.work + cost <= until:
            self._one_pass(rows)
            self.work += cost
            self.n_passes += 1
            self._note(rows.score(self.circuit))
            report()
            if self._without_gain >= PATIENCE:
                self.has_ended = not self._in_steps
                self._in_steps, self._without_gain, self.circuit = False, 0, self.best

    def again(self, laplace: float) -> Fit:
        """A fit that goes on by whole passes from the best circuit, with another pseudo-count."""
        other = Fit(self.best, laplace, self.seed)
        other.valid, other._in_steps = self.valid, False
        return other

    def _note(self, valid: float) -> None:
        self._without_gain = 0 if valid > self.valid + GAIN else self._without_gain + 1
        if valid > self.valid:
            self.valid, self.best = valid, self.circuit

    def _one_pass(self, rows: Rows) -> None:
        if not self._in_steps:
            self.circuit = rows.expected(self.circuit, slice(None)).maximised(self.laplace)
            return
        for some in self._batches(rows.fit.shape[1]):
            self._step(rows.expected(self.circuit, some), rows.fit.shape[1])

    def _batches(self, n_rows: int) -> Iterator[Integers]:
        order = np.random.default_rng([self.seed, self.n_passes]).permutation(n_rows)
        n_batches = max(LEAST_STEPS, -(-n_rows // STEP_ROWS))
        yield from (part for part in np.array_split(order, n_batches) if part.size)

    def _step(self, counts: ExpectedCounts, n_rows: int) -> None:
        """One step of stepwise EM.

        References: Liang, Klein (2009), Online EM for unsupervised models, section 3.
        """
        n_possible = counts.n_rows - counts.n_impossible
        if not n_possible:
            return
        edge, parameter, leaf = (part / n_possible for part in counts.expected())
        if self._means is not None:
            step = (self._n_steps + 2.0) ** -DECAY
            old = self._means
            edge, parameter, leaf = (
                (1 - step) * a + step * b for a, b in zip(old, (edge, parameter, leaf), strict=True)
            )
        self._means = edge, parameter, leaf
        self._n_steps += 1
        self.circuit = maximised(self.circuit, edge, parameter, leaf, self.laplace / n_rows, None)
