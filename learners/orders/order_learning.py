"""Learning of posteriors over structures as passes: the schema, screening of too many columns, then moments or distinct
rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import comb, inf
from typing import Any

import numpy as np

from learners.counts.distinct_rows import DistinctRows
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.information import x_log_x
from learners.counts.moments import Moments, Unit
from learners.errors import InvalidParameter, SchemaError, UnknownColumn, columns_setting
from learners.orders.checks import check_bge_columns, checked_bge_score
from learners.orders.lattice.coverage import order_posterior_with_coverage
from learners.orders.lattice.graph_samples import best_graph
from learners.orders.lattice.lattice import Coverage, OrderPosterior, complete_lattice_bytes
from learners.orders.model import OrderModel
from learners.orders.parameters import OrderParameters, parse_edge
from learners.orders.queries.predictive import predictive_conditional_tables
from learners.orders.scores.bdeu_bge import BDeu, BGe, Standard
from learners.orders.scores.candidates import all_candidate_parents, greedy_candidate_parents
from learners.orders.scores.scores import StructurePrior, family_scores_with_prior
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.passes.memory import memory_limit
from learners.passes.refreshed_schema import kept_schema, refreshed_schema
from learners.schema import Attribute, Kept, LeftOut, Overrides, Schema
from learners.schema.discretise import Histogram, quantile_cut_points
from learners.schema.overrides import SCREENED

# Sets of columns are 64 bits everywhere: in the lattice, in its files and in the kernels.
MOST_COLUMNS = 64


def screen_columns(schema: Schema, about: Sequence[str], required: Sequence[str]) -> Passes[Schema]:
    """Return the schema, or, with too many columns, the ones with the most information about some columns, in one more
    pass.

    about: columns to keep, with the 64 columns in total that have the most information about any of them.
    required: edges, each as "parent->child", whose columns are also kept.
    Raises UnknownColumn; SchemaError if there are too many columns and `about` is empty, or there are too many to keep.
    References: Fan, Lv (2008), Sure independence screening for ultrahigh dimensional feature space; here by
    mutual information.
    """
    names = [attribute.name for attribute in schema.attributes]
    gone = {column.name for column in schema.left_out}
    for name in about:
        if name not in names and name not in gone:
            raise UnknownColumn(name, names)
    n_over = schema.n_attributes - MOST_COLUMNS
    if n_over <= 0:
        return schema
    targets = [names.index(name) for name in dict.fromkeys(about) if name in names]
    if not targets:
        raise SchemaError(
            f"The table has {schema.n_attributes} columns; posteriors over structures have at most {MOST_COLUMNS}. Name the "
            f"columns that you ask about: screen_for=[{names[0]!r}] keeps the {MOST_COLUMNS} with most information about "
            f"{names[0]!r}. Or drop {n_over}: {columns_setting(dict.fromkeys(names[-n_over:][:3], 'drop'))} "
            "(docs/limits.md#columns)."
        )
    columns = set(targets).union(*(parse_edge(text, names, "required") for text in required))
    if len(columns) > MOST_COLUMNS:
        raise SchemaError(
            f"screen_for and required name {len(columns)} columns; posteriors over structures have at most {MOST_COLUMNS}. Name fewer (docs/limits.md#columns)."
        )
    families = [Family(j, (i,)) for i in targets for j in range(schema.n_attributes) if j not in columns]
    counts: FamilyCounts = yield FamilyCounts(schema, families)
    most = np.full(schema.n_attributes, -np.inf)
    for place, family in enumerate(families):
        most[family.attribute] = max(most[family.attribute], corrected_mutual_information(counts, place))
    best = np.argsort(-most, kind="stable")
    columns |= set(best[: MOST_COLUMNS - len(columns)].tolist())
    words = f"{SCREENED}: other columns have more information about {', '.join(map(repr, dict.fromkeys(about)))}"
    return replace(
        schema,
        attributes=tuple(own for j, own in enumerate(schema.attributes) if j in columns),
        left_out=(*schema.left_out, *(LeftOut(name, words) for j, name in enumerate(names) if j not in columns)),
    )


def corrected_mutual_information(counts: FamilyCounts, place: int) -> float:
    """Return the mutual information of a column and its only parent, in nats, minus the expected bias (Miller 1955)."""
    _, parents, x, n = counts.cells(place)
    of_x, of_parent = np.bincount(x, n), np.bincount(parents[:, 0], n)
    freedom = (np.count_nonzero(of_x) - 1) * (np.count_nonzero(of_parent) - 1)
    total = x_log_x(n).sum() + x_log_x(n.sum()) - x_log_x(of_x).sum() - x_log_x(of_parent).sum()
    return float(total - freedom / 2) / max(1, int(n.sum()))


# Beyond this the lattice of all orders takes minutes, whatever memory there is.
MOST_EXACT = 24
BLOCK_CANDIDATES = 16
BDEU_PARENTS = 4
# Sets of columns times distinct rows that are counted without being asked: larger parent sets are scored within it.
COUNTED_CELLS = 20_000_000
# Bytes of a family: its score, its number and exponent, and as much again while sums are made.
_FAMILY_BYTES = 32


def learn_orders(
    target: str | None,
    parameters: OrderParameters,
    given: Schema | Kept | None = None,
    overrides: Overrides | None = None,
) -> Passes[OrderModel]:
    """Learn the posterior over network structures: one pass after the schema, and one more if columns are screened.

    target: None: every column is a node.
    given: replaces the inferred schema; with `Kept`, the domains follow the data.
    overrides: column name to what `ColumnOverride.of` reads.
    Raises InvalidParameter, UnknownColumn if there is a target, or the prior contradicts itself; SchemaError if a
    column is a linear combination of others, or not numeric where it must be; TooFewRows if BGe has fewer than
    two complete rows.
    References: Wang, Wicker, Kwiatkowska (2022); Koivisto, Sood (2004).
    """
    if target is not None:
        raise InvalidParameter(
            "target", target, because="learner 'orders' has no class, because every column is a node: leave target out"
        )
    schema = yield from _schema(parameters, given, overrides or {})
    schema = yield from screen_columns(schema, parameters.screen_for, parameters.required)
    names = [attribute.name for attribute in schema.attributes]
    parameters = parameters.without([column.name for column in schema.left_out], names)
    prior = parameters.structure_prior(names)
    is_gaussian = parameters.score == "bge" or (
        parameters.score == "auto" and all(attribute.kind == "numeric" for attribute in schema.attributes)
    )
    facts: dict[str, Any] = {
        "learner": "orders",
        # Lists for tuples, as a model that was stored has them: what is equal must compare so.
        "parameters": json.loads(json.dumps(asdict(parameters))),
        "left_out": {column.name: column.reason for column in schema.left_out},
        "taken_as": {attribute.name: describe_scored_column(attribute, is_gaussian) for attribute in schema.attributes},
    }
    standard = Standard.none(schema.n_attributes)
    score: BGe | BDeu
    if is_gaussian:
        check_bge_columns(schema)
        moments = yield Moments([Unit.of(attribute) for attribute in schema.attributes])
        score, standard = checked_bge_score(moments, parameters.bge(), parameters.standardise)
        facts |= {"score": "bge", "n_rows": moments.n_rows, "n_incomplete": moments.n_incomplete}
    else:
        rows = yield DistinctRows(schema)
        score = BDeu(rows, schema.domain_sizes, parameters.ess)
        cut = [attribute.name for attribute in schema.attributes if attribute.kind == "numeric"]
        facts |= {"score": "bdeu", "n_rows": rows.n_rows, "n_distinct": rows.n_distinct, "cut_columns": cut}
    most = max_parents_per_node(parameters, score, schema.n_attributes)
    for node, name in enumerate(names):
        if len(prior.required_of(node)) > most:
            raise InvalidParameter(
                "max_parents", most, because=f"{name!r} has {len(prior.required_of(node))} required parents"
            )
    posterior = yield Work(
        "scoring parent sets",
        lambda _, advance: learn_order_posterior(score, prior, parameters, most, standard, advance),
    )
    facts |= {
        "method": "exact" if posterior.coverage.is_exact else "blocks",
        "n_candidates": max(own.size for own in posterior.scores.candidates),
        "max_parents": most,
        "columns_at_limit": columns_at_parent_limit(posterior, most, names),
    }
    return (yield Work("adding up orders", lambda _, advance: _model(schema, posterior, facts, score)))


def _model(schema: Schema, posterior: OrderPosterior, facts: Mapping[str, Any], score: BGe | BDeu) -> OrderModel:
    """Build the model with the tables of its most probable graph, which need the counts."""
    if posterior.prior_sums.log_z == -np.inf:
        raise InvalidParameter(
            "required",
            facts["parameters"]["required"],
            because="no graph has these edges and satisfies the other constraints",
        )
    best = best_graph(posterior.scores, posterior.lattice)
    tables = predictive_conditional_tables(score, best.parents) if isinstance(score, BDeu) else ()
    rows = score.kept_rows() if isinstance(score, BDeu) and facts["parameters"]["keep_rows"] else None
    facts = {**facts, "n_rows_kept": 0 if rows is None else rows.n_distinct}
    return OrderModel(schema, posterior, facts, best=best, tables=tables, rows=rows)


def _schema(parameters: OrderParameters, given: Schema | Kept | None, overrides: Overrides) -> Passes[Schema]:
    if isinstance(given, Schema):
        schema = given
    else:
        states = 0 if parameters.score == "bge" else min(parameters.max_states, parameters.max_values)
        summaries = yield ColumnSummaries(
            None, overrides, max_values=parameters.max_values, kept=kept_schema(given), max_states=states
        )
        schema = yield from refreshed_schema(
            given,
            summaries,
            # Matrices of edges are in the order of the columns.
            lambda: summaries.build_schema(
                lambda _, values: nonempty_quantile_cut_points(values, parameters.n_bins), by_name=False
            ),
        )
    if schema.target is not None:
        raise SchemaError(
            f"The schema has the class {schema.target!r}, but learner 'orders' has none. Infer a schema without a target."
        )
    return schema


def describe_scored_column(attribute: Attribute, is_gaussian: bool) -> str:
    """Describe how the score treats a column."""
    if attribute.kind == "nominal":
        return f"{attribute.n_values} states"
    return "numbers" if is_gaussian else f"numbers cut into {attribute.n_values} intervals"


def nonempty_quantile_cut_points(histogram: Histogram, n_bins: int) -> tuple[float, ...]:
    """Return at most n_bins - 1 cut points, and at least one if there are two values."""
    cuts = quantile_cut_points(histogram, n_bins)
    if cuts or histogram.keys.size < 2:
        return cuts
    # All quantiles fall on the largest value: what is smaller is rare, but not nothing.
    lowest = float(histogram.thresholds()[-1])
    largest = float(np.finfo(np.float64).max)
    return (min(max(lowest, -largest), largest),)


def max_parents_per_node(parameters: OrderParameters, score: BGe | BDeu, d: int) -> int:
    """Return the maximum number of parents of a node; by default four for nominal columns, and more if the table is
    small enough.
    """
    if parameters.max_parents is not None:
        return min(parameters.max_parents, d - 1)
    if isinstance(score, BGe):
        return d - 1
    most = min(BDEU_PARENTS, d - 1)
    if not score.rows.is_in_memory:
        return most
    k = d - 1 if parameters.candidates is None else min(parameters.candidates, d - 1)
    k = k if k + 1 <= MOST_EXACT else min(k, BLOCK_CANDIDATES)
    while most < d - 1:
        n_sets = min(sum(comb(d, j) for j in range(most + 3)), 2 * d * sum(comb(k, j) for j in range(most + 2)))
        if n_sets * score.rows.n_distinct > COUNTED_CELLS:
            break
        most += 1
    return most


def columns_at_parent_limit(posterior: OrderPosterior, most: int, names: Sequence[str]) -> list[str]:
    """Return the columns whose number of parents in the best graph is at the limit, so that a larger limit may add
    some.
    """
    if most >= len(names) - 1:
        return []
    parents = best_graph(posterior.scores, posterior.lattice).parents
    return [name for name, own in zip(names, parents, strict=True) if len(own) >= most]


def learn_order_posterior(
    score: BGe | BDeu,
    prior: StructurePrior,
    parameters: OrderParameters,
    most: int,
    standard: Standard,
    advance: Advance,
) -> OrderPosterior:
    """Compute family scores within candidates, and the posterior over orders.

    Raises InvalidParameter if the method is "exact" and memory does not suffice.
    """
    d = standard.spread.size
    everyone = all_candidate_parents(d, prior)
    few = parameters.candidates
    is_exact = _is_exact(parameters, d, few)
    if few is None and not is_exact:
        few = BLOCK_CANDIDATES
    candidates = everyone
    if few is not None and any(own.size > few for own in everyone):
        candidates = greedy_candidate_parents(score, prior, few, most, advance)
    scores = family_scores_with_prior(score.tables(candidates, most, advance), candidates, prior)
    bge = score if isinstance(score, BGe) else None
    if is_exact:
        return OrderPosterior(scores, None, Coverage(), bge, standard)
    return order_posterior_with_coverage(scores, parameters, bge, standard, advance)


def _is_exact(parameters: OrderParameters, d: int, few: int | None) -> bool:
    """Return whether to sum over all orders."""
    size = d - 1 if few is None else min(few, d - 1)
    if parameters.method == "blocks":
        return False
    n_bytes = d * (_FAMILY_BYTES << size) + complete_lattice_bytes(d) + (40 << d) if d <= MOST_EXACT else inf
    limit = memory_limit().n_bytes
    if n_bytes <= limit:
        return True
    if parameters.method == "exact":
        needs = "hours" if d > MOST_EXACT else f"{n_bytes / 2**20:,.0f} MiB of the {limit / 2**20:,.0f} MiB allowed"
        raise InvalidParameter(
            "method",
            "exact",
            because=f"all orders of {d} columns take {needs}; use 'blocks', fewer candidates, or FEWPASS_MEMORY",
        )
    return False
