"""Training of NB, TAN and kDB as sequences of passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from learners.classifiers.averaged_trees import (
    AveragedTrees,
    TreePosterior,
    empirical_bayes_tree_posterior,
    tree_posterior,
)
from learners.classifiers.estimates.context_tree import (
    ContextTree,
    build_context_trees,
    iterate_tree_levels,
    m_estimates,
    prune_uninformative_parents,
)
from learners.classifiers.estimates.hdp import HDPParameters, Posterior, hdp_map_estimates
from learners.classifiers.estimates.hdp_sampler import hdp_gibbs_estimates
from learners.classifiers.estimates.rare_classes import with_own_concentrations_of_rare_classes
from learners.classifiers.lookup.lookup import LookupModel
from learners.classifiers.m_selection import select_m_by_hold_out
from learners.classifiers.selection import LOSSES, Measure, PrefixLosses, selection_loss_tables
from learners.classifiers.structure import (
    Structure,
    k_dependence_structure,
    naive_bayes_structure,
    tree_augmented_structure,
)
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairCounts, PairwiseCounts, empty_pair_counts
from learners.counts.row_samples import HoldOut
from learners.errors import InvalidParameter
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.passes.refreshed_schema import kept_schema, refreshed_schema
from learners.passes.statistic import Together
from learners.schema import Chunk, Kept, Overrides, Schema
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES

ESTIMATORS = ("hdp-map", "hdp", "m")
MAX_K = 5


@dataclass(frozen=True)
class NetworkParameters(HDPParameters):
    """Parameters common to all network classifiers.

    Parameters
    ----------
    estimator : "hdp-map", "hdp", "m" or None
        How counts become probabilities: "hdp-map" mixes each context with shorter ones, "hdp" samples the same model, which is
        slower, and "m" adds pseudo-counts. The first is the deterministic estimate of a hierarchical Dirichlet process, the
        second gives its posterior means by Gibbs sampling, the third backs off. None is "m" if `m` is given, and otherwise
        "hdp-map".
    m : float or None
        Pseudo-count of the estimator m. None chooses the best of 0, 0.05, 0.2, 1, 5 and 20 on rows kept back.
    back_off : "context" or "cell"
        When the estimator m drops the last parent: where a context never occurred, or, as in the paper, also where it
        occurred without the value. "cell" is for comparisons with the paper: such a model predicts, but has no joint distribution.
    max_values : int
        Values that a nominal attribute keeps; rarer ones share one code.

    Raises
    ------
    InvalidParameter
    """

    estimator: str | None = None
    m: float | None = None
    back_off: Literal["context", "cell"] = "context"
    max_values: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator is None:
            object.__setattr__(self, "estimator", self._usual_estimator())  # models record which one it was
        if self.estimator not in ESTIMATORS:
            raise InvalidParameter("estimator", self.estimator, f"one of {', '.join(ESTIMATORS)}")
        if self.m is not None and not 0 <= self.m < 1e9:
            raise InvalidParameter("m", self.m, "a number from 0 to 1e9, or null to choose it")
        if self.m is not None and self.estimator != "m":
            raise InvalidParameter("m", self.m, because=f"it belongs to estimator=m, not to estimator={self.estimator}")
        if self.back_off not in ("context", "cell"):
            raise InvalidParameter("back_off", self.back_off, "context or cell")
        if self.back_off != "context" and self.estimator != "m":
            raise InvalidParameter(
                "back_off", self.back_off, because=f"it belongs to estimator=m, not to {self.estimator}"
            )
        if not 2 <= self.max_values <= 65_000:
            raise InvalidParameter("max_values", self.max_values, "from 2 to 65,000")

    @property
    def is_pruned(self) -> bool:
        """True if parents are dropped after contexts are counted."""
        return False

    def _usual_estimator(self) -> str:
        """Default estimator."""
        return "hdp-map" if self.m is None else "m"


@dataclass(frozen=True)
class StructureParameters(NetworkParameters):
    """Parameters of networks whose attributes have parents: TAN, kDB and SkDB.

    Parameters
    ----------
    width_cost : float
        How much columns with many values pay before parents are ranked. Subtracts this times df / 2N from the
        (conditional) mutual information, where df is the degrees of freedom. 0 is the textbook's ranking, 2 that of
        AIC, ln N that of BIC.
    prune : bool
        Remove parents that add no information about a column. Each row is predicted from all others; with the
        estimators hdp and hdp-map, which mix contexts with shorter ones.
    """

    width_cost: float = 2.0
    prune: bool = True

    @property
    def is_pruned(self) -> bool:
        """True if parents are dropped after contexts are counted."""
        return self.prune and self.estimator != "m"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.width_cost <= 1000:
            raise InvalidParameter("width_cost", self.width_cost, "a number from 0 to 1,000")


@dataclass(frozen=True)
class TANParameters(StructureParameters):
    """Parameters of TAN.

    Parameters
    ----------
    average : bool
        Average over all trees instead of taking the best one: one pass fewer, but slower predictions. Their
        probabilities are averaged, too, which takes O(n^3) for n attributes for each row and class. Its estimates are
        pseudo-counts, so `estimator` is "m", named or not.
    ess : float or None
        Equivalent sample size of the prior, for `average` alone. None chooses it by the marginal likelihood from
        `tree_average.GRID`.

    Raises
    ------
    InvalidParameter
    """

    average: bool = False
    ess: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ess is not None and not 0 < self.ess < 1e9:
            raise InvalidParameter("ess", self.ess, "a number from 0 to 1e9, or null to choose it")
        if self.ess is not None and not self.average:
            raise InvalidParameter("ess", self.ess, because="it belongs to average=true")
        if self.average and self.estimator != "m":
            raise InvalidParameter(
                "estimator", self.estimator, because="average=true has its own estimates; leave estimator out"
            )
        if self.average and self.m is not None:
            raise InvalidParameter("m", self.m, because="average=true has its own estimates: use ess")

    def _usual_estimator(self) -> str:
        return "m" if self.average else super()._usual_estimator()


@dataclass(frozen=True)
class KDBParameters(StructureParameters):
    """Parameters of kDB.

    Parameters
    ----------
    k : int
        Parents of each attribute beside the class, 1 to 5.
    """

    k: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.k, bool) or not isinstance(self.k, int) or not 1 <= self.k <= MAX_K:
            raise InvalidParameter("k", self.k, f"a whole number from 1 to {MAX_K}")


@dataclass(frozen=True)
class SKDBParameters(KDBParameters):
    """Parameters of SkDB.

    Parameters
    ----------
    k : int
        Most parents of each attribute beside the class, 1 to 5.
    loss : "squared" or "zero-one"
        Which loss the number of parents and attributes is chosen by.
    """

    k: int = 5
    loss: str = "squared"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in LOSSES:
            raise InvalidParameter("loss", self.loss, f"one of {', '.join(LOSSES)}")


def schema_pass(
    target: str | None,
    given: Schema | Kept | None,
    overrides: Overrides,
    max_values: int,
    max_classes: int = MAX_CLASSES,
) -> Passes[Schema]:
    """Return the given schema, or infer it in one pass, keeping the parts declared as kept."""
    if isinstance(given, Schema):
        return given
    summaries: ColumnSummaries = yield ColumnSummaries(
        target, overrides, max_values=max_values, kept=kept_schema(given), max_classes=max_classes
    )
    return (yield from refreshed_schema(given, summaries, summaries.build_schema))


def naive_bayes(
    target: str, parameters: NetworkParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[LookupModel]:
    """Train naive Bayes: one pass after the schema."""
    schema = yield from schema_pass(target, given, overrides or {}, parameters.max_values)
    structure = naive_bayes_structure(schema.n_attributes)
    counted: Together[FamilyCounts, HoldOut] = yield Together[FamilyCounts, HoldOut](
        FamilyCounts(schema, structure.families()), HoldOut(schema)
    )
    return (yield from fit_network(schema, structure, counted.first, counted.second.draw(), "nb", parameters))


def _structured(
    name: str,
    structure_of: Callable[[PairCounts], Structure],
    target: str,
    parameters: NetworkParameters,
    given: Schema | Kept | None,
    overrides: Overrides | None,
) -> Passes[LookupModel]:
    schema = yield from schema_pass(target, given, overrides or {}, parameters.max_values)
    counted: Together[PairCounts, HoldOut] = yield Together[PairCounts, HoldOut](
        empty_pair_counts(schema), HoldOut(schema)
    )
    structure, hold_out = structure_of(counted.first), counted.second.draw()
    del counted  # whose tables nobody needs any more
    families: FamilyCounts = yield FamilyCounts(schema, structure.families())
    return (yield from fit_network(schema, structure, families, hold_out, name, parameters))


def tan(
    target: str, parameters: TANParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[LookupModel] | Passes[AveragedTrees]:
    """Train TAN (Friedman, Geiger, Goldszmidt 1997): two passes after the schema, or one if averaged over all trees."""
    if parameters.average:
        return _averaged_tan(target, parameters, given, overrides)

    def structure_of(pairs: PairCounts) -> Structure:
        return tree_augmented_structure(pairs, parameters.width_cost)

    return _structured("tan", structure_of, target, parameters, given, overrides)


def _averaged_tan(
    target: str, parameters: TANParameters, given: Schema | Kept | None, overrides: Overrides | None
) -> Passes[AveragedTrees]:
    """Train TAN averaged over all trees (Cerquides, López de Mántaras 2005): one pass after the schema."""
    schema = yield from schema_pass(target, given, overrides or {}, parameters.max_values, FEW_CLASSES)
    pairs: PairwiseCounts = yield PairwiseCounts(schema)
    posterior: TreePosterior = yield Work(
        "adding up trees",
        lambda *_: (
            empirical_bayes_tree_posterior(pairs) if parameters.ess is None else tree_posterior(pairs, parameters.ess)
        ),
    )
    facts = {"learner": "tan", "parameters": asdict(parameters), "n_rows": pairs.n_rows}
    return AveragedTrees.of(
        schema, pairs.class_counts, posterior, facts | {"ess": posterior.ess, "log_evidence": posterior.log_evidence}
    )


def kdb(
    target: str, parameters: KDBParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[LookupModel]:
    """Train kDB (Sahami 1996): two passes after the schema."""

    def structure_of(pairs: PairCounts) -> Structure:
        return k_dependence_structure(pairs, parameters.k, parameters.width_cost)

    return _structured("kdb", structure_of, target, parameters, given, overrides)


def skdb(
    target: str, parameters: SKDBParameters, given: Schema | Kept | None = None, overrides: Overrides | None = None
) -> Passes[LookupModel]:
    """Train selective kDB (Martínez et al. 2016): three passes after the schema."""
    schema = yield from schema_pass(target, given, overrides or {}, parameters.max_values, FEW_CLASSES)
    counted: Together[PairCounts, HoldOut] = yield Together[PairCounts, HoldOut](
        empty_pair_counts(schema), HoldOut(schema)
    )
    structure = k_dependence_structure(counted.first, parameters.k, parameters.width_cost)
    hold_out = counted.second.draw()
    del counted  # whose tables nobody needs any more
    families: FamilyCounts = yield FamilyCounts(schema, structure.families())
    mixes, prunes = parameters.estimator != "m", parameters.is_pruned
    measured: Measure = yield Work(
        "growing trees",
        lambda _, advance: selection_loss_tables(
            schema, structure, iterate_tree_levels(families, advance), families.class_counts, mixes, prunes
        ),
        "trees",
    )
    losses: PrefixLosses = yield PrefixLosses(schema, measured, families.class_counts, parameters.loss)
    chosen = losses.best()
    structure = measured.structure.prefix(chosen.n_attributes, chosen.k)
    facts = {"n_attributes": chosen.n_attributes, "k": chosen.k, "mean_loss": chosen.mean_loss.tolist()}
    del measured, losses
    families = families.only(structure.families())
    return (yield from fit_network(schema, structure, families, hold_out, "skdb", parameters, {"selection": facts}))


def fit_network(
    schema: Schema,
    structure: Structure,
    families: FamilyCounts,
    hold_out: Chunk,
    name: str,
    parameters: NetworkParameters,
    facts: Mapping[str, object] | None = None,
) -> Passes[LookupModel]:
    """Fit the estimates of a network from counts alone."""
    facts = {"learner": name, "parameters": asdict(parameters), "n_rows": families.n_rows, **(facts or {})}
    trees: list[ContextTree]

    def grow(_: int, advance: Advance) -> tuple[Structure, list[ContextTree]]:
        if parameters.is_pruned:  # without parents that tell nothing
            return prune_uninformative_parents(structure, iterate_tree_levels(families, advance))
        return structure, build_context_trees(families, advance)

    structure, trees = yield Work("growing trees", grow, "trees")
    if parameters.estimator == "m":
        m = parameters.m
        if m is None:
            m, facts["hold_out_rmse"] = yield Work(
                "choosing m",
                lambda _, advance: select_m_by_hold_out(structure, families, hold_out, advance, parameters.back_off),
            )
        facts["m"] = m
        estimates = [m_estimates(tree, m, parameters.back_off) for tree in trees]
        return LookupModel.of(schema, structure, families.class_counts, trees, estimates, facts)
    estimate = hdp_gibbs_estimates if parameters.estimator == "hdp" else hdp_map_estimates
    posteriors: list[Posterior] = yield Work(
        "sampling" if parameters.estimator == "hdp" else "solving",
        lambda threads, advance: estimate(trees, parameters, threads, advance),
    )
    if parameters.estimator == "hdp-map":
        posteriors = list(map(with_own_concentrations_of_rare_classes, trees, posteriors))
    facts["sweeps"] = max((posterior.n_sweeps for posterior in posteriors), default=0)
    if parameters.estimator == "hdp":
        # Too few sweeps to tell leave no R-hat, and NaN is no JSON.
        facts["r_hat"] = max((p.r_hat for p in posteriors if not math.isnan(p.r_hat)), default=None)
        if parameters.iterations == "auto":
            facts["n_unsettled"] = sum(not posterior.is_settled for posterior in posteriors)
    if parameters.tying != "parent":
        facts["concentrations"] = [posterior.concentrations.tolist() for posterior in posteriors]
    estimates, variances = [p.estimates for p in posteriors], [p.variance for p in posteriors]
    del posteriors
    return LookupModel.of(schema, structure, families.class_counts, trees, estimates, facts, variances)
