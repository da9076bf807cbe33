"""EM in steps: after every so many rows, with steps that shrink."""

from __future__ import annotations

from typing import Self

import numpy as np
import pyarrow as pa

from learners.circuits.circuit import Circuit
from learners.circuits.em.em import ExpectedCounts, maximised
from learners.circuits.evaluation.evaluate import as_rows
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, POISSON, STUDENT
from learners.errors import InvalidParameter, StatisticMismatch
from learners.kernels.arrays import Array, Floats


class StepwiseEM:
    """EM that takes a step after every so many rows: new = (1 - η) old + η batch, with η = (t + 2)^-decay at step t.

    A fold: the order of the rows matters, their division into updates does not.

    Parameters
    ----------
    circuit : Circuit
        To start from.
    batch_rows : int
    decay : float
        In (0.5, 1].
    laplace : float
        Per count, for a whole data set of `rows_hint` rows.
    rows_hint : int
        What the Laplace prior is shared out over.

    References
    ----------
    Cappé, Moulines (2009), "On-line expectation-maximization algorithm"; Liang, Klein (2009), section 3.
    """

    def __init__(
        self, circuit: Circuit, batch_rows: int = 256, decay: float = 0.7, laplace: float = 0.1, rows_hint: int = 10_000
    ) -> None:
        if not 0.5 < decay <= 1:
            raise InvalidParameter("decay", decay, "above 0.5 and at most 1, or the steps do not settle")
        if batch_rows < 1:
            raise InvalidParameter("batch_rows", batch_rows, "one or more")
        self.batch_rows, self.decay, self.laplace, self.rows_hint = batch_rows, decay, laplace, rows_hint
        self.n_steps = 0
        self._circuit = circuit
        self._waiting: list[Array] = []
        self._means: tuple[Floats, Floats, Floats] | None = None

    def update(self, x: Array) -> None:
        """Learn from rows; those that do not fill a batch wait for the next.

        Parameters
        ----------
        x : (n_variables, n_rows) float64 or integers

        Raises
        ------
        InvalidEvidence
        """
        self._waiting.append(as_rows(self._circuit, x))
        rows = np.concatenate(self._waiting, axis=1)
        whole = rows.shape[1] - rows.shape[1] % self.batch_rows
        for first in range(0, whole, self.batch_rows):
            self._step(rows[:, first : first + self.batch_rows])
        self._waiting = [rows[:, whole:]]

    def circuit(self) -> Circuit:
        """The circuit after the rows so far, those that wait included."""
        last = StepwiseEM(self._circuit, self.batch_rows, self.decay, self.laplace, self.rows_hint)
        last.n_steps, last._means = self.n_steps, self._means
        rows = np.concatenate(self._waiting, axis=1) if self._waiting else np.empty((0, 0))
        if rows.shape[1]:
            last._step(rows)
        return last._circuit

    def to_arrow(self) -> pa.Table:
        """The state: one row of lists, from which `from_arrow` goes on as if there had been no break."""
        means = self._means or (np.empty(0), np.empty(0), np.empty((0, 3)))
        waiting = np.concatenate(self._waiting, axis=1) if self._waiting else np.empty((0, 0))
        columns = {
            "log_weight": self._circuit.log_weight,
            "leaf_parameters": self._circuit.leaf_parameters,
            "edge": means[0],
            "parameter": means[1],
            "leaf": means[2].ravel(),
            "waiting": waiting.astype(np.float64).ravel(),
            "steps": np.array([self.n_steps, waiting.dtype == np.uint8], np.float64),
        }
        return pa.table({name: pa.array([array], pa.list_(pa.float64())) for name, array in columns.items()})

    def from_arrow(self, table: pa.Table) -> Self:
        """The learner whose state `to_arrow` wrote, of the same structure and settings.

        Raises
        ------
        StatisticMismatch
            If it is the state of another circuit.
        """
        state = {name: table.column(name).combine_chunks().flatten().to_numpy() for name in table.column_names}
        circuit = self._circuit
        if (state["log_weight"].size, state["leaf_parameters"].size) != (circuit.n_edges, circuit.leaf_parameters.size):
            raise StatisticMismatch("The table holds the state of another circuit.")
        circuit = circuit.with_parameters(state["log_weight"], state["leaf_parameters"])
        read = type(self)(circuit, self.batch_rows, self.decay, self.laplace, self.rows_hint)
        read.n_steps = int(state["steps"][0])
        if read.n_steps:
            read._means = state["edge"], state["parameter"], state["leaf"].reshape(-1, 3)
        waiting = state["waiting"].reshape(circuit.n_variables, -1)
        read._waiting = [waiting.astype(np.uint8) if state["steps"][1] else waiting]
        return read

    def _step(self, rows: Array) -> None:
        counts = ExpectedCounts(self._circuit)
        counts.update(rows)
        n_possible = counts.n_rows - counts.n_impossible
        if not n_possible:
            return
        edge, parameter, leaf = counts.expected()
        leaf = _raw(self._circuit, leaf)
        found = (edge / n_possible, parameter / n_possible, leaf / n_possible)
        if self._means is None:
            self._means = found
        else:
            step = (self.n_steps + 2.0) ** -self.decay
            old = self._means
            edge, parameter, leaf = ((1 - step) * a + step * b for a, b in zip(old, found, strict=True))
            self._means = edge, parameter, leaf
        self.n_steps += 1
        edge, parameter, leaf = self._means
        leaf = _in_spreads(self._circuit, leaf)
        self._circuit = maximised(self._circuit, edge, parameter, leaf, self.laplace / self.rows_hint)


def _scales(circuit: Circuit) -> tuple[Floats, Floats]:
    """(n_nodes,) centre and spread in which the statistics of numeric leaves are."""
    centre, spread = np.zeros(circuit.n_nodes), np.ones(circuit.n_nodes)
    first = circuit.leaf_starts[:-1]
    counts, waits = (np.flatnonzero(circuit.kind == kind) for kind in (POISSON, EXPONENTIAL))
    gaussian = np.flatnonzero((circuit.kind == GAUSSIAN) | (circuit.kind >= STUDENT))
    centre[gaussian] = circuit.leaf_parameters[first[gaussian]]
    spread[gaussian] = circuit.leaf_parameters[first[gaussian] + 1]
    spread[counts] = circuit.leaf_parameters[first[counts]]
    spread[waits] = 1.0 / circuit.leaf_parameters[first[waits]]
    return centre, spread


def _raw(circuit: Circuit, leaf: Floats) -> Floats:
    """Σ, Σ x, Σ x² from the same of z."""
    centre, spread = _scales(circuit)
    n, z, z_squared = leaf.T
    squares = n * centre**2 + 2 * centre * spread * z + spread**2 * z_squared
    return np.stack([n, n * centre + spread * z, squares], axis=1)


def _in_spreads(circuit: Circuit, leaf: Floats) -> Floats:
    """Σ, Σ z, Σ z² from the same of x."""
    centre, spread = _scales(circuit)
    n, x, x_squared = leaf.T
    squares = (x_squared - 2 * centre * x + n * centre**2) / spread**2
    return np.stack([n, (x - n * centre) / spread, squares], axis=1)
