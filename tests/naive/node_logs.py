"""Log values and derivatives of every node of a circuit, by the kernel that posteriors use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.evaluate import NO_LOGS, _scratch, as_rows
from learners.circuits.evaluation.extended_range_kernels import node_logs
from learners.kernels.arrays import Floats


def node_log_values(circuit: Circuit, x: ArrayLike) -> Floats:
    """Log value of every node at each row; exact, log 0 is -inf.

    Parameters
    ----------
    circuit : Circuit
    x : (n_variables, n_rows) float64 or integers
        As in `log_values`.

    Returns
    -------
    (n_nodes, n_rows) float64

    Raises
    ------
    InvalidEvidence
    """
    x = as_rows(circuit, x)
    logs = np.empty((circuit.n_nodes, x.shape[1]))
    node_logs(circuit.arrays, NO_LOGS, x, np.arange(x.shape[1]), *_scratch(circuit, x.shape[1]), logs, NO_LOGS)
    return logs


def node_log_derivatives(circuit: Circuit, x: ArrayLike) -> Floats:
    """Log of the derivative of the root's value by every node's, at each row; exact also where children are zero.

    Parameters
    ----------
    circuit : Circuit
    x : (n_variables, n_rows) float64 or integers
        As in `log_values`.

    Returns
    -------
    (n_nodes, n_rows) float64

    Raises
    ------
    InvalidEvidence

    References
    ----------
    Darwiche (2003), section 4.2; Zhao, Gordon (2017), lemma 2.
    """
    x = as_rows(circuit, x)
    logs = np.empty((circuit.n_nodes, x.shape[1]))
    node_logs(circuit.arrays, NO_LOGS, x, np.arange(x.shape[1]), *_scratch(circuit, x.shape[1]), NO_LOGS, logs)
    return logs
