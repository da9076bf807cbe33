"""Log values and derivatives of every node of a circuit at rows as in `log_values`, by the kernel that posteriors use."""

import numpy as np

from learners.circuits.evaluation.evaluate import _scratch, validate_circuit_rows
from learners.circuits.evaluation.evaluate_kernels import write_leaf_log_values, write_node_log_values


def node_log_values(circuit, x):
    """(n_nodes, n_rows) float64: log value of every node; exact, log 0 is -inf."""
    return _node_logs(circuit, x)[0]


def node_log_derivatives(circuit, x):
    """(n_nodes, n_rows) float64: log of the derivative of the root's value by every node's; exact also where children are zero.

    References
    ----------
    Darwiche (2003), section 4.2; Zhao, Gordon (2017), lemma 2.
    """
    return _node_logs(circuit, x)[1]


def _node_logs(circuit, x):
    x = validate_circuit_rows(circuit, x)
    log_leaf, values, derivatives = np.empty((3, circuit.n_nodes, x.shape[1]))
    write_leaf_log_values(circuit.arrays, x, log_leaf)
    write_node_log_values(circuit.arrays, log_leaf, *_scratch(circuit, x.shape[1]), values, derivatives)
    return values, derivatives
