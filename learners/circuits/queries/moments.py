"""Moments of a circuit's weights after one more row, given Dirichlet priors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.evaluation.evaluate import relative_node_logs
from learners.circuits.kernels import SUM
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats

MOMENT_RULES = ("exact", "zhao2017")


class EdgePosteriors(NamedTuple):
    """Posterior probabilities to be in the induced tree of a row.

    Attributes
    ----------
    edge : (n_edges, n_rows) float64
        Of each edge of a sum; zero for edges of products.
    node : (n_nodes, n_rows) float64
        Of each node.
    """

    edge: Floats
    node: Floats


class Moments(NamedTuple):
    """Expectations of the weight of every edge of a sum, NaN for edges of products.

    Attributes
    ----------
    mean, second, log : (n_edges,) float64
        E[w], E[w²], E[log w].
    """

    mean: Floats
    second: Floats
    log: Floats


def edge_posteriors(circuit: Circuit, x: ArrayLike) -> EdgePosteriors:
    """How probable it is that an edge, or node, is in the induced tree of each row: λ = w V D / V_root.

    Parameters
    ----------
    x : (n_variables, n_rows) float64 or integers
        As in `evaluate.log_values`.

    Raises
    ------
    InvalidEvidence
    ImpossibleEvidence
        If a row has probability zero.

    References
    ----------
    Zhao, Gordon (2017), section 3.2.
    """
    values, derivatives = relative_node_logs(circuit, x)
    impossible = np.flatnonzero(values[-1] == -np.inf)
    if impossible.size:
        raise ImpossibleEvidence(int(impossible[0]))
    parent = np.repeat(np.arange(circuit.n_nodes), np.diff(circuit.child_starts))
    of_sum = np.flatnonzero(circuit.kind[parent] == SUM)
    edge = np.zeros((circuit.n_edges, values.shape[1]))
    below = circuit.log_weight[of_sum, None] + values[circuit.children[of_sum]]
    edge[of_sum] = np.exp(below + derivatives[parent[of_sum]] - values[-1])
    return EdgePosteriors(edge, np.exp(values + derivatives - values[-1]))


def posterior_moments(circuit: Circuit, pseudo_count: Floats, x: ArrayLike, rule: str = "exact") -> Moments:
    """Moments of the weights after one row, given independent Dirichlet priors at the sums.

    With "zhao2017" the term of the siblings is left out, as in the paper's equation 12: it takes what is not λ from the
    prior, though absorbing a sibling changes the marginal of a weight, too. So its means do not add up to one.

    Parameters
    ----------
    circuit : Circuit
        Its weights do not matter: they are the means of the prior.
    pseudo_count : (n_edges,) float64
        Positive on the edges of sums; those of products are not read.
    x : (n_variables,) or (n_variables, 1) float64 or integers
        The row, as in `evaluate.log_values`.
    rule : {"exact", "zhao2017"}

    Raises
    ------
    InvalidParameter, InvalidEvidence, ImpossibleEvidence

    References
    ----------
    Zhao, Gordon (2017), section 3 and equation 12.
    """
    if rule not in MOMENT_RULES:
        raise InvalidParameter("rule", rule, " or ".join(map(repr, MOMENT_RULES)))
    n_children = np.diff(circuit.child_starts)
    parent = np.repeat(np.arange(circuit.n_nodes), n_children)
    of_sum = circuit.kind[parent] == SUM
    alpha = np.where(of_sum, pseudo_count, 1.0)
    if not (alpha > 0).all():
        raise InvalidParameter("pseudo_count", float(alpha.min()), "positive at every edge of a sum")
    total = np.bincount(parent, alpha, circuit.n_nodes)[parent].astype(np.float64, copy=False)
    prior = circuit.with_parameters(np.where(of_sum, np.log(alpha / total), 0.0))
    x = np.asarray(x)
    posterior = edge_posteriors(prior, x[:, None] if x.ndim == 1 else x)
    share, reached = posterior.edge[:, 0], posterior.node[parent, 0]
    # What the sum's other edges absorb.
    others = np.maximum(reached - share, 0.0) if rule == "exact" else np.zeros_like(share)
    untouched = 1.0 - share - others

    def expected(moment: Callable[[Floats, Floats], Floats]) -> Floats:
        value = (
            untouched * moment(alpha, total) + share * moment(alpha + 1, total + 1) + others * moment(alpha, total + 1)
        )
        return np.where(of_sum, value, np.nan)

    return Moments(
        expected(lambda a, s: a / s),
        expected(lambda a, s: a * (a + 1) / (s * (s + 1))),
        expected(lambda a, s: scipy.special.psi(a) - scipy.special.psi(s)),
    )
