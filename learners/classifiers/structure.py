"""Structure learning: the parents of each attribute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.counts.family_counts import Family
from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairwise import PairCounts
from learners.kernels.arrays import Floats, Integers

# Two values of (conditional) mutual information within this many nats count as equal, so that the structure does not
# hang on the last bit of a floating-point sum; the column order decides then.
TIE_NATS = 1e-12


@dataclass(frozen=True)
class Structure:
    """Attributes of a network in tree order, and the attribute parents of each; acyclic by construction.

    The class is a parent of every attribute and is not listed. Raises ValueError if a parent does not precede its
    child.
    """

    order: tuple[int, ...]  # attributes in the model; parents come before children
    # For each entry of `order` its parents, in the order of the levels of the context tree.
    parents: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        seen: set[int] = set()
        for attribute, parents in zip(self.order, self.parents, strict=True):
            if attribute in seen or not seen.issuperset(parents):
                raise ValueError(f"Attribute {attribute} occurs twice, or before one of its parents {parents}.")
            seen.add(attribute)

    def prefix(self, n_attributes: int, k: int) -> Structure:
        """Keep the first attributes of the order, with the first k parents of each."""
        return Structure(self.order[:n_attributes], tuple(parents[:k] for parents in self.parents[:n_attributes]))

    def families(self) -> tuple[Family, ...]:
        """Return the families to count."""
        return tuple(Family(a, parents) for a, parents in zip(self.order, self.parents, strict=True))


def naive_bayes_structure(n_attributes: int) -> Structure:
    """Return the structure of naive Bayes: no attribute has a parent besides the class."""
    return Structure(tuple(range(n_attributes)), ((),) * n_attributes)


def _ranks(information: Floats) -> Floats:
    """Round information to integers, so that ties are resolved by column order."""
    return np.round(information / TIE_NATS)


def _descending(information: Floats) -> Integers:
    """Return the attributes by descending information; ties by column order."""
    return np.argsort(-_ranks(information), kind="stable")


def k_dependence_structure(pairs: PairCounts, k: int, width_cost: float = 0.0) -> Structure:
    """Learn a kDB structure: attributes by descending I(X; Y), each with the k earlier ones of highest I(X; X' | Y) as
    parents.

    Parents are in descending order of that information. `width_cost` is the penalty of information for the cells
    that it adds, see `conditional_mutual_information`; 0 is Sahami's kDB.

    References
    ----------
    Sahami (1996), section 3; Petitjean, Buntine, Webb, Zaidi (2018), section 2.2.
    """
    order = _descending(mutual_information(pairs, width_cost)).tolist()
    ranks = _ranks(conditional_mutual_information(pairs, width_cost))
    is_earlier = np.zeros(len(order), np.bool_)
    parents: list[tuple[int, ...]] = []
    for attribute in order:
        candidates = np.where(is_earlier, ranks[attribute], -np.inf)
        best = []
        for _ in range(min(k, len(parents))):
            best.append(int(candidates.argmax()))
            candidates[best[-1]] = -np.inf
        parents.append(tuple(best))
        is_earlier[attribute] = True
    return Structure(tuple(order), tuple(parents))


def tree_augmented_structure(pairs: PairCounts, width_cost: float = 0.0) -> Structure:
    """Learn a TAN structure: the maximum spanning tree over I(X_i; X_j | Y), directed away from the attribute of
    highest I(X; Y).

    Attributes are in the order in which the tree grows from the root; `width_cost` as in
    `k_dependence_structure`.

    References
    ----------
    Friedman, Geiger, Goldszmidt (1997), section 4.
    """
    n = pairs.schema.n_attributes
    if n == 0:
        return naive_bayes_structure(0)
    ranks = _ranks(conditional_mutual_information(pairs, width_cost))
    root = int(_descending(mutual_information(pairs, width_cost))[0])
    order = [root]
    parents: list[tuple[int, ...]] = [()]
    nearest, reach = np.full(n, root), ranks[root].copy()  # Prim's algorithm: of those in the tree
    is_outside = np.arange(n) != root
    while len(order) < n:
        outside = np.where(is_outside, reach, -np.inf)
        best = np.flatnonzero(outside == outside.max())
        node = int(best[nearest[best].argmin()])  # of equal edges the first in column order
        order.append(node)
        parents.append((int(nearest[node]),))
        is_outside[node] = False
        closer = is_outside & (ranks[node] > reach)
        reach[closer], nearest[closer] = ranks[node, closer], node
    return Structure(tuple(order), tuple(parents))
