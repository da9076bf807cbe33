"""The structure of every member: selective k-dependence Bayes with random noise, so that members differ."""

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

    def schema(self, views: Views) -> Schema:
        """One attribute for each of the ensemble's schema, as this member sees its values."""
        view_of = dict(zip(self.structure.order, (family.attribute for family in self.families), strict=True))
        attributes = [views.schema.attributes[view_of[i]] for i in range(views.base.n_attributes)]
        return replace(views.base, attributes=tuple(attributes))

    def with_parents(self, depths: int | Sequence[int]) -> Member:
        """So many parents at most of all attributes, or of each of the order: the first ones."""
        each = [depths] * len(self.families) if isinstance(depths, int) else depths
        parents = tuple(own[:depth] for own, depth in zip(self.structure.parents, each, strict=True))
        families = tuple(
            Family(family.attribute, family.parents[:depth]) for family, depth in zip(self.families, each, strict=True)
        )
        return Member(Structure(self.structure.order, parents), families)


def draw_ensemble_members(
    pairs: PairwiseCounts | None, views: Views, ks: tuple[int, ...], seed: int
) -> tuple[Member, ...]:
    """A kDB structure for each k, the most parents of a member, from information times exp(noise).

    Pairs are of every attribute by the grouping of the pairs; None where no attribute gets parents.

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
    """The members that answer for the joint distribution: the order of each of the first, each attribute with its first parents.

    A member's coarser cut points serve for values and parents alike, so that its families are those of one network.
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
    """The families of all members, each once."""
    return tuple(dict.fromkeys(family for member in members for family in member.families))


def limit_member_parents(members: tuple[Member, ...], schema: Schema, drawn: Chunk, n_rows: int) -> tuple[Member, ...]:
    """The members with so few parents that the counts of each family stay small; unchanged for tables that are not large.

    How many cells a family will have in a table of `n_rows` is told by those of the drawn rows: as many more as half of
    them have fewer. Schema and rows are of views.
    """
    families = distinct_families(members)
    of_all = min(MOST_CELLS, MOST_OF_MEMBER * len(members))
    most = max(FEWEST_CELLS, of_all // max(1, len(families)))
    if n_rows <= most:
        return members
    depth = {family: _depth_within(family, schema, drawn, n_rows, most) for family in families}
    return tuple(member.with_parents([depth[family] for family in member.families]) for member in members)


def limit_member_depths(member: Member, schema: Schema, drawn: Chunk, n_rows: int) -> Member:
    """The member with so few parents that a family has, by the drawn rows, at most one cell for every `ROWS_A_CELL` rows."""
    most = max(FEWEST_CELLS, n_rows // ROWS_A_CELL)
    return member.with_parents([_depth_within(family, schema, drawn, n_rows, most) for family in member.families])


def _depth_within(family: Family, schema: Schema, drawn: Chunk, n_rows: int, most: int) -> int:
    """How many of the first parents leave no more cells than `most`."""
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
    """Distinct codes among so many rows, as their number grows from the first half of these to all."""
    whole = int(codes.max(initial=-1)) + 1
    half = int(np.count_nonzero(np.bincount(codes[: codes.size // 2])))
    growth = np.log2(max(1, whole) / max(1, half))
    return float(whole * (n_rows / max(1, codes.size)) ** growth)
