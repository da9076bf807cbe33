"""Message passing in a clique tree, for several rows of evidence at once: up to the roots and down again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Floats, Integers
from learners.registry.networks.elimination.orders import CliqueTree
from learners.registry.networks.tree_tables import Table, table_given

# Nats between the largest and the least positive entry of a product of doubles that loses nothing.
MOST_SPREAD = 650.0


class Factor(NamedTuple):
    """A function of variables, in elimination order, and of the row."""

    scope: tuple[int, ...]
    values: Floats  # (n_rows or 1, sizes of the scope ...), the largest of each row 1; in logarithms 0
    # At least the nats between its largest and its least positive entry; not kept of logarithms.
    spread: float


class Beyond(ArithmeticError):
    """Raised if a product of doubles may underflow, so that logarithms are needed."""


class Collected(NamedTuple):
    """Result of the upward pass: the product in each clique, and its message to the parent."""

    products: list[Factor]
    messages: list[Factor | None]
    log_total: Floats  # (n_rows or 1,) float64: logarithm of the sum, or maximum, over everything


class Propagation:
    """Message passing over a clique tree.

    Parameters
    ----------
    tree : whose cliques hold the scopes of all factors
    sizes : of each variable's domain
    maximised : cliques whose variables are maximised, not summed; their parents are, too
    in_logs : whether factors and products are logarithms
    """

    def __init__(
        self,
        tree: CliqueTree,
        sizes: Sequence[int],
        pause: Callable[[], None],
        maximised: Collection[int] = frozenset(),
        *,
        in_logs: bool,
    ) -> None:
        self.tree, self.sizes, self.pause, self.maximised, self.in_logs = tree, sizes, pause, maximised, in_logs

    def collect(self, factors: Sequence[Factor]) -> Collected:
        """Pass messages up to the roots; every factor has variables. Raises Beyond."""
        waiting: list[list[Factor]] = [[] for _ in self.tree.cliques]
        log_total: Floats = np.zeros(1)
        for factor in factors:
            waiting[self.tree.place_of(factor.scope)].append(factor)
        products: list[Factor] = []
        messages: list[Factor | None] = []
        for place, clique in enumerate(self.tree.cliques):
            self.pause()
            product = self._product(waiting[place], clique.scope)
            waiting[place] = []
            products.append(product)
            summed = self._reduced(product.values, len(clique.eliminated), place in self.maximised)
            message, logs = self._normalised(clique.separator, summed, product.spread + math.log(clique.n_cells))
            log_total = log_total + logs
            if clique.parent >= 0:
                waiting[clique.parent].append(message)
            messages.append(message if clique.parent >= 0 else None)
        return Collected(products, messages, log_total)

    def distribute(self, collected: Collected, places: Collection[int]) -> dict[int, Factor]:
        """Pass messages down and return the beliefs of the cliques at some places; consumes the products. Raises
        Beyond.
        """
        needed = set[int]()
        for goal in places:
            place = goal
            while place >= 0 and place not in needed:
                needed.add(place)
                place = self.tree.cliques[place].parent
        last_child = {self.tree.cliques[place].parent: place for place in sorted(needed, reverse=True)}
        beliefs: dict[int, Factor] = {}
        found: dict[int, Factor] = {}
        for place in sorted(needed, reverse=True):
            self.pause()
            clique, product = self.tree.cliques[place], collected.products[place]
            message = collected.messages[place]
            if message is None:
                belief = product
            else:
                above = beliefs[clique.parent]
                marginal = self.reduced_to(above, clique.separator, place in self.maximised)
                down, _ = self._normalised(
                    clique.separator, self._divided(marginal, message.values), above.spread + message.spread + 50.0
                )
                belief = self._product([product, down], clique.scope)
                if last_child[clique.parent] == place and clique.parent not in found:
                    del beliefs[clique.parent]
            collected.products[place] = belief  # what is left of it is not needed
            beliefs[place] = belief
            if place in places:
                found[place] = belief
        return found

    def reduced_to(self, factor: Factor, scope: Sequence[int], is_maximised: bool) -> Floats:
        """Sum or maximize all other variables out of a factor, (n_rows, sizes of the scope ...)."""
        kept = set(scope)
        groups: list[tuple[bool, int]] = []  # neighbouring variables that stay, or go, as one axis
        for v in factor.scope:
            stays = v in kept
            if groups and groups[-1][0] == stays:
                groups[-1] = stays, groups[-1][1] * self.sizes[v]
            else:
                groups.append((stays, self.sizes[v]))
        values = factor.values.reshape(factor.values.shape[0], *(size for _, size in groups))
        # The first and the last axis are fast to sum, and leave little for those between.
        gone = [axis for axis, (stays, _) in enumerate(groups, 1) if not stays]
        for axis in sorted(gone, key=lambda axis: (axis > 1, axis < len(groups), -axis)):
            shape = values.shape
            own = values.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
            values = self._reduced_axis(own, is_maximised).reshape(*shape[:axis], 1, *shape[axis + 1 :])
        left = [v for v in factor.scope if v in kept]
        values = values.reshape(values.shape[0], *(self.sizes[v] for v in left))
        return np.transpose(values, [0, *(1 + left.index(v) for v in scope)])

    def _reduced_axis(self, values: Floats, is_maximised: bool) -> Floats:
        if is_maximised:
            return values.max(axis=1)
        if self.in_logs:
            with np.errstate(invalid="ignore"):
                return np.logaddexp.reduce(values, axis=1)
        if values.shape[2] == 1:
            return values[:, :, 0] @ np.ones(values.shape[1])[:, np.newaxis]
        return values.sum(axis=1)

    def _reduced(self, values: Floats, n_eliminated: int, is_maximised: bool) -> Floats:
        shape = values.shape
        n_gone = math.prod(shape[1 : 1 + n_eliminated])
        own = values.reshape(shape[0], n_gone, math.prod(shape[1 + n_eliminated :]))
        return self._reduced_axis(own, is_maximised).reshape(shape[0], *shape[1 + n_eliminated :])

    def _normalised(self, scope: tuple[int, ...], values: Floats, spread: float) -> tuple[Factor, Floats]:
        """Scale a factor so that the largest value of each row is one; returns it with the log of the divisor."""
        top = values.max(axis=tuple(range(1, values.ndim)), keepdims=True)
        if self.in_logs:
            is_zero = top == -np.inf
            factor = Factor(scope, values - np.where(is_zero, 0.0, top), 0.0)
            return factor, top.reshape(-1)
        with np.errstate(divide="ignore"):
            logs = np.log(top).reshape(-1)
        return Factor(scope, values / np.where(top > 0.0, top, 1.0), spread), logs

    def _divided(self, values: Floats, by: Floats) -> Floats:
        if self.in_logs:
            with np.errstate(invalid="ignore"):
                return np.where(by > -np.inf, values - by, -np.inf)
        shape = np.broadcast_shapes(values.shape, by.shape)
        return np.divide(values, by, out=np.zeros(shape), where=np.broadcast_to(by > 0.0, shape))

    def _product(self, factors: list[Factor], scope: tuple[int, ...]) -> Factor:
        """Multiply factors over all variables of a scope, small ones first."""
        spread = 0.0
        if not self.in_logs:
            spread = sum(factor.spread for factor in factors)
            if spread > MOST_SPREAD:  # a bound; look at what there is
                factors = [factor._replace(spread=_spread(factor.values)) for factor in factors]
                spread = sum(factor.spread for factor in factors)
                if spread > MOST_SPREAD:
                    raise Beyond
        queue = sorted(factors, key=lambda factor: -factor.values.size)
        place = {v: i for i, v in enumerate(scope)}
        while len(queue) > 1:
            first, second = queue.pop(), queue.pop()
            joint = tuple(sorted({*first.scope, *second.scope}, key=place.__getitem__))
            a, b = self._aligned(first, joint), self._aligned(second, joint)
            product = Factor(joint, a + b if self.in_logs else a * b, 0.0)
            at = len(queue)
            while at and queue[at - 1].values.size < product.values.size:
                at -= 1
            queue.insert(at, product)
        (factor,) = queue or [Factor((), np.full(1, 0.0 if self.in_logs else 1.0), 0.0)]
        values = self._aligned(factor, scope)
        shape = (values.shape[0], *(self.sizes[v] for v in scope))
        return Factor(scope, values if values.shape == shape else np.broadcast_to(values, shape), spread)

    def _aligned(self, factor: Factor, scope: tuple[int, ...]) -> Floats:
        own = set(factor.scope)
        return factor.values.reshape(factor.values.shape[0], *(self.sizes[v] if v in own else 1 for v in scope))


def _spread(values: Floats) -> float:
    """Return the nats between the largest and the smallest positive entry."""
    least = float(np.min(values, where=values > 0.0, initial=np.inf))
    return math.log(float(values.max()) / least) if least < np.inf else 0.0


def family_factor(
    scope: Sequence[int], table: Table, position: Mapping[int, int], observed: Mapping[int, Integers]
) -> tuple[Factor, Floats]:
    """Return a family's table given rows of evidence, scaled, and the log (n_rows or 1,) of the divisor.

    Parameters
    ----------
    table : (sizes of the scope ...) float64, or read from a tree
    position : of each hidden variable
    observed : codes (n_rows or 1,) of each variable that is known
    """
    known = [i for i, v in enumerate(scope) if v in observed]
    free = sorted((i for i, v in enumerate(scope) if v not in observed), key=lambda i: position[scope[i]])
    values = table_given(table, {i: observed[scope[i]] for i in known}, free)
    top = values.max(axis=tuple(range(1, values.ndim)), keepdims=True)
    values = values / np.where(top > 0.0, top, 1.0)
    with np.errstate(divide="ignore"):
        return Factor(tuple(scope[i] for i in free), values, _spread(values)), np.log(top).reshape(-1)
