"""Structures of the members: selective k-dependence Bayes with random noise, so that members differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from learners.classifiers.structure import Structure
from learners.counts.family_counts import Family
from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairwise import PairwiseCounts
from learners.ensembles.cuts import member_parent_grouping_index, member_value_grouping_index
from learners.kernels.arrays import Floats, Integers
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

NOISE = 0.3
JOINT_PARENTS, N_JOINTS = 2, 4  # one alone was .034 nats behind retraining, four .024, six .023
# Counted cells: of all families together and of those of one member at most, of one family at least.
MOST_CELLS, MOST_OF_MEMBER, FEWEST_CELLS = 8_000_000, 1_000_000, 4096
SAMPLED = 20_000
ROWS_A_CELL = 2  # of the network that would be learned alone


@dataclass(frozen=True)
class Member:
    """One network of an ensemble."""

    structure: Structure  # over the attributes of the schema, with the largest k
    # Of the structure's order, over views: the attribute by the member's value cuts, its parents by the coarser ones.
    families: tuple[Family, ...]

    @property
    def most_parents(self) -> int:
        """Largest number of parents of an attribute."""
        return max((len(family.parents) for family in self.families), default=0)

    def schema(self, views: Views) -> Schema:
        """Return the schema with each attribute's values as this member groups them."""
        view_of = dict(zip(self.structure.order, (family.attribute for family in self.families), strict=True))
        attributes = [views.schema.attributes[view_of[i]] for i in range(views.base.n_attributes)]
        return replace(views.base, attributes=tuple(attributes))

    def with_parents(self, depths: int | Sequence[int]) -> Member:
        """Limit every attribute, or each attribute in order, to its first `depths` parents."""
        each = [depths] * len(self.families) if isinstance(depths, int) else depths
        parents = tuple(own[:depth] for own, depth in zip(self.structure.parents, each, strict=True))
        families = tuple(
            Family(family.attribute, family.parents[:depth]) for family, depth in zip(self.families, each, strict=True)
        )
        return Member(Structure(self.structure.order, parents), families)


def draw_ensemble_members(
    pairs: PairwiseCounts | None, views: Views, ks: tuple[int, ...], seed: int
) -> tuple[Member, ...]:
    """Draw a kDB structure for each k, the member's maximum number of parents, from information times exp(noise).

    `pairs` uses the grouping for pairs; None if no attribute gets parents.

    References
    ----------
    Zhang, Petitjean, Buntine (2020), Bayesian network classifiers using ensembles and smoothing, section 4; Sahami
    (1996).
    """
    n = views.base.n_attributes
    information, conditional = np.ones(n), np.ones((n, n))
    if pairs is not None:
        information, conditional = mutual_information(pairs), conditional_mutual_information(pairs)
    return tuple(_member(information, conditional, views, m, k, seed) for m, k in enumerate(ks))


def _member(information: Floats, conditional: Floats, views: Views, m: int, k: int, seed: int) -> Member:
    random = np.random.default_rng([seed, m])
    n = information.size
    noisy = information * np.exp(random.gumbel(0.0, NOISE, n))
    noisy_pairs = conditional * np.exp(random.gumbel(0.0, NOISE, (n, n)))
    order = np.argsort(-noisy, kind="stable")
    parents = []
    for rank, attribute in enumerate(order):
        # A parent that this member sees as one value tells nothing.
        earlier = np.array([a for a in order[:rank] if _parent_size(views, int(a), m) > 1], np.int64)
        best = earlier[np.argsort(-noisy_pairs[attribute, earlier], kind="stable")[:k]]
        parents.append(tuple(int(parent) for parent in best))
    structure = Structure(tuple(int(attribute) for attribute in order), tuple(parents))
    families = tuple(
        Family(
            views.of(attribute, member_value_grouping_index(m)),
            tuple(views.of(parent, member_parent_grouping_index(m)) for parent in own),
        )
        for attribute, own in zip(structure.order, structure.parents, strict=True)
    )
    return Member(structure, families)


def _parent_size(views: Views, attribute: int, m: int) -> int:
    return views.schema.attributes[views.of(attribute, member_parent_grouping_index(m))].n_values


def joint_distribution_members(members: Sequence[Member], views: Views) -> tuple[Member, ...]:
    """Return the members that represent the joint distribution: the first members' orders, each attribute with its
    first parents.

    Values and parents share the member's coarser cut points, so that the families form one network.
    """
    return tuple(
        _joint_member(member, views, member_parent_grouping_index(m)) for m, member in enumerate(members[:N_JOINTS])
    )


def _joint_member(member: Member, views: Views, grouping: int) -> Member:
    structure = member.structure.prefix(len(member.structure.order), JOINT_PARENTS)
    families = tuple(
        Family(views.of(attribute, grouping), tuple(views.of(parent, grouping) for parent in own))
        for attribute, own in zip(structure.order, structure.parents, strict=True)
    )
    return Member(structure, families)


def distinct_families(members: Sequence[Member]) -> tuple[Family, ...]:
    """Return the distinct families of all members."""
    return tuple(dict.fromkeys(family for member in members for family in member.families))


def limit_member_parents(members: tuple[Member, ...], schema: Schema, drawn: Chunk, n_rows: int) -> tuple[Member, ...]:
    """Limit the members' parents so that the counts of each family stay small; small tables are unchanged.

    The number of cells of a family in `n_rows` rows is extrapolated from the growth between half and all of the
    drawn rows. Schema and rows are in views.
    """
    families = distinct_families(members)
    of_all = min(MOST_CELLS, MOST_OF_MEMBER * len(members))
    most = max(FEWEST_CELLS, of_all // max(1, len(families)))
    if n_rows <= most:
        return members
    depth = {family: _depth_within(family, schema, drawn, n_rows, most) for family in families}
    return tuple(member.with_parents([depth[family] for family in member.families]) for member in members)


def limit_member_depths(member: Member, schema: Schema, drawn: Chunk, n_rows: int) -> Member:
    """Limit the member's parents so that each family has at most one cell per `ROWS_A_CELL` rows, estimated from the
    drawn rows.
    """
    most = max(FEWEST_CELLS, n_rows // ROWS_A_CELL)
    return member.with_parents([_depth_within(family, schema, drawn, n_rows, most) for family in member.families])


def _depth_within(family: Family, schema: Schema, drawn: Chunk, n_rows: int, most: int) -> int:
    """Return the number of first parents that keep the expected cells within `most`."""
    assert drawn.y is not None
    rows = slice(0, SAMPLED)
    sizes = schema.domain_sizes
    own = drawn.x[family.attribute, rows].astype(np.int64)
    key = drawn.y[rows].astype(np.int64) * sizes[family.attribute] + own
    for depth, parent in enumerate(family.parents):
        key = key * sizes[parent] + drawn.x[parent, rows].astype(np.int64)
        key = np.unique(key, return_inverse=True)[1]  # codes without gaps: the next keys stay small
        if _expected_cells(key, n_rows) > most:
            return depth
    return len(family.parents)


def _expected_cells(codes: Integers, n_rows: int) -> float:
    """Estimate the number of distinct codes among `n_rows` rows from its growth between the first half and all of
    `codes`.
    """
    whole = int(codes.max(initial=-1)) + 1
    half = int(np.count_nonzero(np.bincount(codes[: codes.size // 2])))
    growth = np.log2(max(1, whole) / max(1, half))
    return float(whole * (n_rows / max(1, codes.size)) ** growth)
