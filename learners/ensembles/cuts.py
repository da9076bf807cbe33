"""Cut points of each member, drawn from the histograms of the schema pass."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np

from learners.kernels.arrays import Floats, Integers
from learners.passes.column_summaries import ColumnSummaries
from learners.schema import Schema
from learners.schema.discretise import Histogram, mdl_cut_points

# The groupings of an attribute: first that of the pair counts, then for each member those of its values and as a parent.
OF_PAIRS = 0
PAIR_BINS = 5
FEWEST, MOST = 4, 32
LARGE = 10_000
JITTER = 0.3
LARGEST = float(np.finfo(np.float64).max)


def member_value_grouping_index(member: int) -> int:
    """Return the index of the grouping that a member uses for an attribute's values."""
    return 1 + 2 * member


def member_parent_grouping_index(member: int) -> int:
    """Return the index of the grouping that a member uses for an attribute as a parent."""
    return 2 + 2 * member


def n_members_with_cuts(schema: Schema) -> int | None:
    """Return the number of members for which a schema has cut points; None if no attribute has groupings."""
    groupings = [len(attribute.groupings) for attribute in schema.attributes if attribute.groupings]
    return (max(groupings) - 1) // 2 if groupings else None


def ensemble_schema(summaries: ColumnSummaries, n_members: int, seed: int, n_tree_bins: int = 1) -> Schema:
    """Build the schema with the cut points of all members for each numeric attribute, and one grouping for each use.

    The schema also has quantiles that divide each numeric column into `n_tree_bins` bins; trees see all cut
    points.

    The same summaries, with a target, and seed give the same schema; a column's draws depend on its name and on
    no other column. Raises EmptyData and SchemaError as `ColumnSummaries.build_schema`.
    """
    groupings: dict[str, tuple[tuple[int, ...], ...]] = {}

    def drawn(name: str, histogram: Histogram) -> tuple[float, ...]:
        own = draw_member_cut_points(histogram, summaries.n_rows, n_members, _random(seed, name))
        thresholds = np.clip(histogram.thresholds(), -LARGEST, LARGEST)
        of_trees = _quantiles(thresholds, np.cumsum(histogram.counts.sum(axis=1)), n_tree_bins, None)
        cuts = tuple(sorted(set(of_trees).union(*own)))
        place = {cut: position for position, cut in enumerate(cuts)}
        groupings[name] = tuple(tuple(place[cut] for cut in each) for each in own)
        return cuts

    schema = summaries.build_schema(drawn)
    attributes = tuple(
        replace(attribute, groupings=groupings[attribute.name])
        if attribute.name in groupings and attribute.cuts
        else attribute
        for attribute in schema.attributes
    )
    return replace(schema, attributes=attributes)


def _random(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])


def draw_member_cut_points(
    histogram: Histogram, n_rows: int, n_members: int, random: np.random.Generator
) -> list[tuple[float, ...]]:
    """Draw the cut points of one column: first for the pair counts, then for each member's values and parents.

    Values get about sqrt(n) / 4 bins of about equally many rows at jittered quantiles; even members add the MDL cuts to
    these, and take the MDL cuts alone for parents. Odd members, and all where MDL finds no cut, take 3 to 8 bins for
    parents, 6 to 16 from 10,000 rows on.
    """
    thresholds = np.clip(histogram.thresholds(), -LARGEST, LARGEST)
    below = np.cumsum(histogram.counts.sum(axis=1))
    mdl = set(mdl_cut_points(histogram))
    typical = float(np.clip(np.sqrt(n_rows) / 4, FEWEST, MOST))
    fewest, most = (6, 16) if n_rows >= LARGE else (3, 8)
    cuts = [_quantiles(thresholds, below, PAIR_BINS, None)]
    for member in range(n_members):
        values = set(_quantiles(thresholds, below, round(typical * random.uniform(0.5, 1.5)) + 2, random))
        coarse = set(_quantiles(thresholds, below, int(random.integers(fewest, most + 1)), random))
        is_even = member % 2 == 0
        parents = mdl if is_even and mdl else coarse
        cuts.append(tuple(sorted(values | mdl if is_even else values)))
        cuts.append(tuple(sorted(parents)))
    return cuts


def _quantiles(
    thresholds: Floats, below: Integers, n_bins: int, random: np.random.Generator | None
) -> tuple[float, ...]:
    """Return at most `n_bins` - 1 cut points at quantiles, jittered if `random` is given."""
    if not thresholds.size:
        return ()
    jitter = 0.0 if random is None else random.uniform(-JITTER, JITTER, n_bins - 1)
    ranks = below[-1] * (np.arange(1, n_bins) + jitter) / n_bins
    chosen = np.unique(np.searchsorted(below, ranks))
    return tuple(np.unique(thresholds[chosen[chosen < thresholds.size]]).tolist())
