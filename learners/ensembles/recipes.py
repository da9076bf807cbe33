"""Ensembles as sequences of passes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np

from learners.counts.multi_view_counts import Viewed, ViewedFamilies
from learners.counts.pairwise import PairCounts, PairwiseCounts, empty_pair_counts
from learners.counts.row_samples import EVERYTHING, OF_CLASS, DrawnRows
from learners.ensembles import large
from learners.ensembles.budget import MEMBERS, Budget, Choice, choose_ensemble_within_budget
from learners.ensembles.cuts import OF_PAIRS, ensemble_schema
from learners.ensembles.fit import SMALL
from learners.ensembles.large import PLAIN, n_rows_drawn, n_rows_kept, plain_member
from learners.ensembles.members import (
    Member,
    distinct_families,
    draw_ensemble_members,
    joint_distribution_members,
    limit_member_parents,
)
from learners.ensembles.model import EnsembleModel
from learners.ensembles.training import Training
from learners.models.parameters import Parameters
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.learner import AreWeighted, Passes
from learners.passes.memory import memory_limit
from learners.passes.refreshed_schema import kept_schema, refreshed_schema
from learners.passes.statistic import Statistic, Together, statistic_leaves
from learners.schema import Kept, Overrides, Schema
from learners.schema.encoding.column_views import Views

FEWEST_PARENTS, MOST_PARENTS = 2, 5
# Quantile bins of numeric columns for trees of large tables.
TREE_BINS = 256


@dataclass(frozen=True)
class ESKDBParameters(Parameters):
    """Parameters of the ensemble.

    Parameters
    ----------
    members : int or None
        Number of networks that vote, 1 to 64: by default 8, or 4 if there are at least 10,000 rows and trees correct the networks.
    drawn : int or None
        How many distinct rows are drawn to choose and weigh the networks, and to correct them: by default 50,000; by `auto` as
        many as fit into a share of `memory`.
    memory : int or None
        Bytes that decide how many rows of a large table are drawn: by default the memory limit of this process. The
        model stores the number, and later trainings from it use that number.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.
    seed : int
        Start of the random numbers for cut points, structures and trees; the same seed gives the same model.

    Raises
    ------
    InvalidParameter
    """

    members: int | None = None
    drawn: int | None = None
    memory: int | None = None
    max_values: int = 1024
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_whole_numbers(
            members=(1, 64), drawn=(100, 10_000_000), memory=(1, 2**60), max_values=(2, 65_000), seed=(0, 2**31 - 1)
        )


@dataclass(frozen=True)
class AutoParameters(ESKDBParameters):
    """Parameters of the default learner: the ensemble with its correction, within a budget.

    Parameters
    ----------
    effort : "low", "normal" or "high"
        How much to learn: "low" networks only; "normal" also boosted trees that correct them; "high" two to three times as many trees with more leaves.
    correction : "drawn" or "none"
        Whether trees correct the networks: "drawn" trains them on drawn rows, "none" leaves them out, as effort "low" does.
    passes : int or None
        Largest number of passes over the data, with that of the schema; at least 2.
    seconds : float or None
        Longest time of training, as estimated beforehand for two cores.
    model_bytes : int or None
        How many bytes the tables of the model may take.

    Raises
    ------
    InvalidParameter
    """

    effort: Literal["low", "normal", "high"] = "normal"
    correction: Literal["drawn", "none"] = "drawn"
    passes: int | None = None
    seconds: float | None = None
    model_bytes: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budget()

    def budget(self) -> Budget:
        """Limits on the model's cost."""
        return Budget(self.passes, self.seconds, self.model_bytes)


def eskdb(
    target: str, parameters: ESKDBParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[EnsembleModel]:
    """Train an ensemble of selective kDB with random cuts and discriminative weights: two passes after the schema.

    References
    ----------
    Zhang, Petitjean, Buntine (2020), Bayesian network classifiers using ensembles and smoothing; the weights and the
    leave-one-out probabilities are ours (docs/explanation/ensembles.md).
    """
    members = parameters.members or MEMBERS
    choice = Choice(members, members, has_pairs=True, has_correction=False, model_bytes=None, words=())
    return _ensemble("eskdb", target, parameters, given, overrides, choice)


def auto(
    target: str, parameters: AutoParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[EnsembleModel]:
    """Train the default learner, networks corrected by boosted trees, within the budget."""
    has_correction = parameters.correction == "drawn" and parameters.effort != "low"
    choice = choose_ensemble_within_budget(parameters.members, has_correction, parameters.budget())
    return _ensemble("auto", target, parameters, given, overrides, choice)


def _ensemble(
    name: str,
    target: str,
    parameters: ESKDBParameters,
    given: Schema | Kept | None,
    overrides: Overrides | None,
    choice: Choice,
) -> Passes[EnsembleModel]:
    """Train an ensemble; large tables get more drawn rows, the plain networks, and trees with many leaves."""
    may_grow = parameters.drawn is None and choice.has_pairs
    seed = parameters.seed
    drawn = parameters.drawn or large.LARGE_ROWS
    memory = parameters.memory or memory_limit().n_bytes
    if isinstance(given, Schema):
        schema = given
    else:
        summaries: ColumnSummaries = yield ColumnSummaries(
            target, overrides or {}, max_values=parameters.max_values, kept=kept_schema(given)
        )
        choice = choice.for_table(summaries.n_rows, len(summaries.found))
        may_grow = may_grow and summaries.n_rows > large.LARGE_ROWS
        n_tree_bins = TREE_BINS if may_grow and choice.has_correction else 1
        n_members = choice.members
        schema = yield from refreshed_schema(
            given, summaries, lambda: ensemble_schema(summaries, n_members, seed, n_tree_bins)
        )
    views = Views(schema)
    drawn_rows = DrawnRows(schema, n_rows_kept(schema, memory) if may_grow else drawn, OF_CLASS)
    plain: tuple[Member, ...] = ()
    if choice.has_pairs:
        of_pairs: Statistic = Viewed(Views(schema, OF_PAIRS), _pairs)
        if may_grow:
            of_pairs = Together(of_pairs, Viewed(Views(schema, PLAIN), _plain_pairs))
        seen: Together[Statistic, DrawnRows] = yield Together(of_pairs, drawn_rows)
        pairs, *plain_pairs = [own.counts for own in statistic_leaves(seen.first) if isinstance(own, Viewed)]
        sample = seen.second
        is_large = may_grow and pairs.n_rows > large.LARGE_ROWS  # a given schema does not tell before
        draw = sample.draw_by_class(n_rows_drawn(sample) if is_large else drawn)
        first = views.chunk(draw.rows.rows(slice(0, drawn)))
        if isinstance(given, Schema):  # or else the schema pass has told how many rows there are
            choice = choice.of_size(pairs.n_rows)
        choice = choice.within_cuts(schema)
        ks = draw_max_parents_per_member(choice.members, pairs.n_rows, seed)
        members = draw_ensemble_members(pairs, views, ks, seed)
        members = limit_member_parents(members, views.schema, first, pairs.n_rows)
        if is_large:
            plain = (plain_member(plain_pairs[0], views, first, pairs.n_rows),)
        joints = joint_distribution_members(members, views)
        del seen, of_pairs, pairs, plain_pairs, first
        families: ViewedFamilies = yield ViewedFamilies(views, distinct_families((*members, *plain, *joints)))
    else:
        choice = choice.within_cuts(schema)
        ks = (0,) * choice.members
        members = draw_ensemble_members(None, views, ks, seed)
        joints = joint_distribution_members(members, views)
        own = ViewedFamilies(views, distinct_families((*members, *joints)))
        both: Together[ViewedFamilies, DrawnRows] = yield Together[ViewedFamilies, DrawnRows](own, drawn_rows)
        families, sample = both.first, both.second
        draw = sample.draw_by_class(drawn)
    is_whole = sample.limit == EVERYTHING and draw.rows.n_rows == sample.n_rows
    n_distinct = sample.n_distinct_of_table
    del sample
    n_read: int = yield AreWeighted()
    copies = draw.without_coincidences(n_distinct, n_read, families.counts.n_rows) if n_read else None
    trained = Training(schema, views, members, ks, seed, families, draw, is_whole, choice, copies)
    decided = asdict(replace(parameters, memory=memory if plain else None))
    if plain:
        return (yield from trained.large_model(name, decided, plain[0], joints))
    return (yield from trained.model(name, decided, joints))


def _plain_pairs(views: Views) -> PairCounts:
    return empty_pair_counts(views.schema)


def _pairs(views: Views) -> PairwiseCounts:
    return PairwiseCounts(views.schema)


def draw_max_parents_per_member(n_members: int, n_rows: int, seed: int) -> tuple[int, ...]:
    """Return the maximum number of parents of each member: drawn from 2 to 5, or 5 for all members from 5,000 rows on."""
    if n_rows >= SMALL:
        return (MOST_PARENTS,) * n_members
    random = np.random.default_rng([seed, n_members])
    return tuple(int(k) for k in random.integers(FEWEST_PARENTS, MOST_PARENTS + 1, n_members))
