"""Exact answers of a discrete network for rows of evidence, each with its own pattern of missing values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.queries.array_answers import check_joint_cell_count
from learners.circuits.structures.from_network import NetworkTooLarge
from learners.circuits.variables import mask_unknown_codes
from learners.kernels.arrays import Array, Floats, Integers
from learners.passes.memory import memory_limit
from learners.registry.networks.arc_networks import DiscreteNetwork
from learners.registry.networks.elimination.orders import CliqueTree, clique_tree
from learners.registry.networks.elimination.propagation import (
    Beyond,
    Collected,
    Factor,
    Propagation,
    family_factor,
)
from learners.registry.networks.tree_tables import Table, TreeTable, table_rows

# Of each cell of all cliques: a double, and what a product or a message takes beside it.
BYTES_PER_CELL = 20
# Cells of the cliques of all rows that are answered together.
CELLS_AT_A_TIME = 1 << 22
MOST_KEPT_TREES = 32


class TablesTooLargeToSum(NetworkTooLarge):
    """Raised if the tables of an exact answer do not fit into memory."""

    def __init__(self, n_cells: int, most_bytes: int) -> None:
        n_bytes = n_cells * BYTES_PER_CELL
        ValueError.__init__(
            self,
            f"An exact answer needs tables of {n_cells:,} probabilities ({n_bytes / 2**30:,.1f} GiB), more than the "
            f"{most_bytes / 2**30:,.2g} GiB allowed (FEWPASS_MEMORY). Give more evidence, ask for fewer columns, ask for samples with "
            "their standard error (fewpass query --sample, or sampling in the query), train with fewer parents (a smaller k), or fold "
            "rare values (docs/limits.md#probabilities).",
        )
        self.n_cells = n_cells


class _Plan(NamedTuple):
    """Plan for an evidence pattern and a question: the families, a clique tree over their hidden variables, and the
    variables' positions.
    """

    families: tuple[int, ...]
    tree: CliqueTree
    position: dict[int, int]
    n_cells: int  # of all cliques, and of the tables that are read from context trees


class _Pass(NamedTuple):
    """Upward pass for rows, with the log (n_rows,) of each total."""

    propagation: Propagation
    collected: Collected
    logs: Floats


class Elimination:
    """Variable elimination in a network for each question; barren variables are skipped, known ones are not axes.

    Parameters
    ----------
    network : of discrete variables
    most_bytes : for the tables of an answer; by default FEWPASS_MEMORY
    pause : called between two tables; what it raises ends the answering

    References
    ----------
    Shachter (1986), Evaluating influence diagrams, section 4: barren nodes. Jensen, Lauritzen, Olesen (1990), Bayesian
    updating in causal probabilistic networks by local computations: messages up and down.
    """

    def __init__(
        self, network: DiscreteNetwork, most_bytes: int | None = None, pause: Callable[[], None] | None = None
    ) -> None:
        self.network, self.pause = network, pause or (lambda: None)
        self.most_bytes = memory_limit().n_bytes if most_bytes is None else most_bytes
        self.sizes = [table.shape[-1] for table in network.tables]
        self._plans: dict[tuple[object, ...], _Plan] = {}

    def with_pause(self, pause: Callable[[], None] | None) -> Elimination:
        """Return a copy that shares the clique trees but calls another pause function."""
        other = Elimination(self.network, self.most_bytes, pause)
        other._plans = self._plans
        return other

    def n_cells(self, observed: Iterable[int], targets: Iterable[int]) -> int:
        """Return the number of table cells that an answer about some variables needs, given others."""
        return self.plan(frozenset(observed), frozenset(targets)).n_cells

    def row_logs(self, x: Array, weights: Mapping[int, Floats]) -> Floats:
        """Return the log probability of rows, times the likelihoods of the given variables, (n_rows,) float64."""
        logs = np.empty(x.shape[1])
        for rows, observed in self._patterns(x):
            plan = self.plan(frozenset(observed), frozenset(weights))
            for part, known in self._chunks(plan, rows, observed):
                logs[part] = self.collected(plan, known, weights).logs
        return logs

    def row_marginals(
        self, x: Array, variables: Sequence[int], weights: Mapping[int, Floats]
    ) -> tuple[Floats, list[Floats]]:
        """Return logs as `row_logs`, and the marginal distribution of each variable, (n_rows, n_values). Raises
        ImpossibleEvidence.
        """
        logs = np.empty(x.shape[1])
        shares: list[Floats] = [np.zeros((x.shape[1], self.sizes[v])) for v in variables]
        for rows, observed in self._patterns(x):
            hidden = [v for v in variables if v not in observed]
            for v, own in zip(variables, shares, strict=True):
                if v in observed:
                    own[rows, observed[v]] = 1.0
            plan = self.plan(frozenset(observed), frozenset([*weights, *hidden]))
            place = _smallest_cliques(plan.tree, hidden)
            for part, known in self._chunks(plan, rows, observed):
                up = self._possible(plan, known, weights, part)
                logs[part] = up.logs
                beliefs = self.believed(up, set(place.values()), plan, known, weights)
                for v, own in zip(variables, shares, strict=True):
                    if v in place:
                        propagation, found = beliefs
                        own[part] = _normalised(propagation, propagation.reduced_to(found[place[v]], (v,), False))
        return logs, shares

    def row_tables(self, x: Array, variables: Sequence[int], weights: Mapping[int, Floats]) -> tuple[Floats, Floats]:
        """Return logs as `row_logs`, and the joint distribution of the variables, (n_rows, n_values, ...). Raises
        ImpossibleEvidence.
        """
        check_joint_cell_count([self.sizes[v] for v in variables])
        logs, tables = np.empty(x.shape[1]), np.zeros((x.shape[1], *(self.sizes[v] for v in variables)))
        for rows, observed in self._patterns(x):
            hidden = tuple(v for v in variables if v not in observed)
            plan = self.plan(frozenset(observed), frozenset([*weights, *hidden]), joint=hidden)
            for part, known in self._chunks(plan, rows, observed):
                up = self._possible(plan, known, weights, part)
                logs[part] = up.logs
                own: Floats = np.ones((part.size,))
                if hidden:
                    place = plan.tree.place_of(hidden)
                    propagation, found = self.believed(up, {place}, plan, known, weights)
                    own = propagation.reduced_to(found[place], hidden, False)
                    own = _normalised(propagation, own.reshape(own.shape[0], -1)).reshape(own.shape)
                    own = np.broadcast_to(own, (part.size, *own.shape[1:]))
                index = tuple(
                    observed[v][np.searchsorted(rows, part)] if v in observed else slice(None) for v in variables
                )
                for i, row in enumerate(part.tolist()):
                    tables[(row, *(at if isinstance(at, slice) else int(at[i]) for at in index))] = own[i]
        return logs, tables

    def row_draws(
        self, x: Array, n: int, rngs: Sequence[np.random.Generator], weights: Mapping[int, Floats]
    ) -> list[Floats]:
        """Draw n samples given each row, (n, n_variables) float64; NaN for variables that the network lacks.

        Raises ImpossibleEvidence.
        """
        known = mask_unknown_codes(x, np.array(self.sizes))
        drawn = []
        for row, rng in enumerate(rngs):
            observed = {v: known[[v], row].astype(np.int64) for v in self._observed(known[:, row])}
            plan = self.plan(frozenset(observed), frozenset(weights))
            up = self._possible(plan, observed, weights, np.array([row]))
            codes = np.full((len(self.sizes), n), -1, np.int64)
            for v, code in observed.items():
                codes[v] = code
            self._draw(plan, up, rng, codes)
            values = codes.T.astype(np.float64)
            values[values < 0] = np.nan
            drawn.append(values)
        return drawn

    def _draw(self, plan: _Plan, up: _Pass, rng: np.random.Generator, codes: Integers) -> None:
        """Draw the variables of the tree from the roots down, then all variables below it; OUT codes (n_variables, n)."""
        for place in reversed(range(len(plan.tree.cliques))):
            self.pause()
            clique = plan.tree.cliques[place]
            shape = [self.sizes[v] for v in clique.scope]
            n_own = len(clique.eliminated)
            table = up.collected.products[place].values.reshape(int(np.prod(shape[:n_own])), -1)
            above = np.zeros(codes.shape[1], np.int64)
            for v in clique.separator:
                above = above * self.sizes[v] + codes[v]
            own = _drawn_columns(table, above, rng, up.propagation.in_logs)
            for v, code in zip(clique.eliminated, np.unravel_index(own, shape[:n_own]), strict=True):
                codes[v] = code
        for v in self.network.order:
            if codes[v, 0] < 0:
                rows, above = table_rows(self.network.tables[v], codes[list(self.network.parents[v])])
                codes[v] = _drawn_columns(rows.T, above, rng, False)

    def _patterns(self, x: Array) -> Iterator[tuple[Integers, dict[int, Integers]]]:
        """Yield groups of rows with the same known variables, and the codes of these."""
        known = mask_unknown_codes(x, np.array(self.sizes))
        patterns, which = np.unique(~np.isnan(known), axis=1, return_inverse=True)
        for place in range(patterns.shape[1]):
            rows = np.flatnonzero(which.ravel() == place)
            observed = self._observed(known[:, rows[0]])
            yield rows, {v: known[v, rows].astype(np.int64) for v in observed}

    def _observed(self, row: Floats) -> list[int]:
        return [v for v in np.flatnonzero(~np.isnan(row)).tolist() if v not in self.network.left_out]

    def _chunks(
        self, plan: _Plan, rows: Integers, observed: Mapping[int, Integers]
    ) -> Iterator[tuple[Integers, dict[int, Integers]]]:
        """Yield as many rows as fit into memory together, with the codes of their evidence; one code if all rows have
        the same.
        """
        cells = max(plan.n_cells, 1)
        most = min(CELLS_AT_A_TIME, self.most_bytes // BYTES_PER_CELL)
        step = max(1, most // max(cells, len(self.sizes)))
        for first in range(0, rows.size, step):
            part = slice(first, first + step)
            known = {v: codes[part] for v, codes in observed.items()}
            yield rows[part], {v: codes[:1] if (codes == codes[0]).all() else codes for v, codes in known.items()}

    def plan(
        self,
        observed: frozenset[int],
        targets: frozenset[int],
        joint: tuple[int, ...] = (),
        last: frozenset[int] = frozenset(),
    ) -> _Plan:
        """Return the plan for a pattern and a question, cached for recent ones. Raises TablesTooLargeToSum."""
        key = (observed, targets, joint, last)
        plan = self._plans.get(key)
        if plan is None:
            families = self.network.ancestors([*observed, *targets])
            scopes = [own for v in families if (own := [u for u in (*self.network.parents[v], v) if u not in observed])]
            tree = clique_tree([*scopes, *([joint] if joint else [])], self.sizes, last)
            order = [v for clique in tree.cliques for v in clique.eliminated]
            read = [v for v in families if isinstance(self.network.tables[v], TreeTable)]
            n_read = sum(
                math.prod(self.sizes[u] for u in (*self.network.parents[v], v) if u not in observed) for v in read
            )
            plan = _Plan(tuple(families), tree, {v: i for i, v in enumerate(order)}, tree.n_cells + n_read)
            for old in list(self._plans)[: max(0, len(self._plans) - MOST_KEPT_TREES + 1)]:
                self._plans.pop(old, None)
            self._plans[key] = plan
        if plan.n_cells * BYTES_PER_CELL > self.most_bytes:
            raise TablesTooLargeToSum(plan.n_cells, self.most_bytes)
        return plan

    def collected(
        self,
        plan: _Plan,
        observed: Mapping[int, Integers],
        weights: Mapping[int, Floats],
        maximised: frozenset[int] = frozenset(),
    ) -> _Pass:
        """Run the upward pass with doubles, or with logarithms if these may underflow."""
        try:
            return self._pass(plan, observed, weights, maximised, in_logs=False)
        except Beyond:
            return self._pass(plan, observed, weights, maximised, in_logs=True)

    def _pass(
        self,
        plan: _Plan,
        observed: Mapping[int, Integers],
        weights: Mapping[int, Floats],
        maximised: frozenset[int],
        *,
        in_logs: bool,
    ) -> _Pass:
        parents, tables = self.network.parents, self.network.tables
        families: list[tuple[tuple[int, ...], Table]] = [((*parents[v], v), tables[v]) for v in plan.families]
        with np.errstate(divide="ignore"):
            of_weights = [((v,), logs) for v, logs in weights.items()]
            scale = sum(float(logs.max()) for _, logs in of_weights)
            families += [(scope, np.exp(logs - logs.max())) for scope, logs in of_weights]
        factors: list[Factor] = []
        total: Floats = np.full(1, scale)
        for scope, table in families:
            factor, logs = family_factor(scope, table, plan.position, observed)
            total = total + logs
            if factor.scope:
                factors.append(factor)
        if in_logs:
            with np.errstate(divide="ignore"):
                factors = [factor._replace(values=np.log(factor.values)) for factor in factors]
        propagation = Propagation(plan.tree, self.sizes, self.pause, maximised, in_logs=in_logs)
        collected = propagation.collect(factors)
        return _Pass(propagation, collected, total + collected.log_total)

    def _possible(
        self, plan: _Plan, observed: Mapping[int, Integers], weights: Mapping[int, Floats], rows: Integers
    ) -> _Pass:
        up = self.collected(plan, observed, weights)
        impossible = np.flatnonzero(np.broadcast_to(up.logs, rows.shape) == -np.inf)
        if impossible.size:
            raise ImpossibleEvidence(int(rows[impossible[0]]))
        return up

    def believed(
        self,
        up: _Pass,
        places: set[int],
        plan: _Plan,
        observed: Mapping[int, Integers],
        weights: Mapping[int, Floats],
    ) -> tuple[Propagation, dict[int, Factor]]:
        """Return the beliefs of cliques after the downward pass."""
        try:
            return up.propagation, up.propagation.distribute(up.collected, places)
        except Beyond:
            again = self._pass(plan, observed, weights, frozenset(up.propagation.maximised), in_logs=True)
            return again.propagation, again.propagation.distribute(again.collected, places)


def _smallest_cliques(tree: CliqueTree, variables: Sequence[int]) -> dict[int, int]:
    """Return the clique with the fewest cells that contains each variable."""
    targets, best = set(variables), dict[int, int]()
    for place, clique in enumerate(tree.cliques):
        for v in targets.intersection(clique.scope):
            if v not in best or clique.n_cells < tree.cliques[best[v]].n_cells:
                best[v] = place
    return best


def _normalised(propagation: Propagation, values: Floats) -> Floats:
    """Normalize to probabilities, (n_rows, n)."""
    if propagation.in_logs:
        values = np.exp(values - values.max(axis=1, keepdims=True))
    return values / values.sum(axis=1, keepdims=True)


def _drawn_columns(table: Floats, columns: Integers, rng: np.random.Generator, in_logs: bool) -> Integers:
    """Draw a row of a table (n_rows, n_columns) for each given column, with probability proportional to its entries,
    (n,).
    """
    used, which = np.unique(columns, return_inverse=True)
    own = table[:, used]
    if in_logs:
        own = np.exp(own - own.max(axis=0))
    ends = np.cumsum(own, axis=0)
    drawn = np.empty(columns.size, np.int64)
    at = rng.random(columns.size)
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(used.size + 1))
    for place in range(used.size):
        rows = order[starts[place] : starts[place + 1]]
        mass = ends[:, place]
        # Never an entry of zero: the first whose end is above.
        drawn[rows] = np.searchsorted(mass, at[rows] * mass[-1], side="right")
    return np.minimum(drawn, table.shape[0] - 1)
