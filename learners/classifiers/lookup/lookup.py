"""Compiled Bayesian network classifier with one table per attribute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import ClassVar, cast

import numpy as np
import pyarrow as pa

from learners.classifiers.description import (
    Contents,
    describe_network_as_tables,
    describe_structure,
    pack_context_trees,
    round_estimates,
    round_variances_to_bfloat16,
    unpack_context_trees,
)
from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.compilation import compile_lookup_tables, compile_lookup_variance_tables
from learners.classifiers.lookup.completeness import Completeness, LookUps, average_likely_rows
from learners.classifiers.lookup.elimination import Elimination
from learners.classifiers.lookup.kernels import ManyClassTables, normalize_log_joint_rows
from learners.classifiers.lookup.look_up_tables import (
    Tables,
    attribute_log_factors,
    family_log_probabilities,
    fill_class_log_joints,
    fill_class_probabilities,
    run_in_row_ranges,
)
from learners.classifiers.lookup.many_classes import compile_many_class_tables
from learners.classifiers.structure import Structure
from learners.errors import InvalidParameter
from learners.kernels.arrays import Array, Arrays, Codes, Floats, Integers, freeze_arrays
from learners.models.model import DerivedHeader, ModelDefaults
from learners.schema import Chunk, Schema
from learners.schema.schema import FEW_CLASSES

TABLES = tuple(f"table_{name}" for name in kernels.LookupTables._fields)
MANY_TABLES = tuple(f"many_{name}" for name in ManyClassTables._fields)


class LookupHeader(DerivedHeader):
    """The header of a stored `LookupModel`."""

    order: list[int]
    parents: list[list[int]]
    hierarchical: list[bool]
    tree_values: list[int]


class LookupModel(ModelDefaults):
    """NB, TAN, kDB or SkDB with its estimates: P(y | x) by one lookup per attribute.

    Create it with `LookupModel.of`; it is immutable.

    Parameters
    ----------
    schema : Schema
    structure : Structure
    class_counts : (n_classes,) int64
    contents : callable
        Gives the trees and estimates, which predictions do not need; called once, on first use.
    tables : LookupTables, or ManyClassTables for more than `FEW_CLASSES` classes
        The compiled form.
    facts : dict
        What else is known of the training: learner, parameters, the chosen m, …; JSON can hold it.
    """

    kind: ClassVar[str] = "lookup"
    is_quick: ClassVar[bool] = True

    def __init__(
        self,
        schema: Schema,
        structure: Structure,
        class_counts: Integers,
        contents: Callable[[], Contents],
        tables: Tables,
        facts: Mapping[str, object],
    ) -> None:
        self.schema, self.network, self.class_counts = schema, structure, class_counts
        self.facts, self._read_contents = dict(facts), contents
        freeze_arrays(*tables)  # mapped and fresh models then share one compiled signature
        self._tables = tables

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_arrays, self.to_arrays()

    @cached_property
    def _contents(self) -> Contents:
        return self._read_contents()

    @property
    def trees(self) -> tuple[ContextTree, ...]:
        """Context trees, one per entry of the order."""
        return self._contents.trees

    @property
    def estimates(self) -> tuple[Estimates, ...]:
        """Estimates, one per tree."""
        return self._contents.estimates

    @property
    def variances(self) -> tuple[Floats, ...]:
        """Posterior variance of each probability, (n_cells,) float64 per tree; empty if the estimates have none."""
        return self._contents.variances

    @classmethod
    def of(
        cls,
        schema: Schema,
        structure: Structure,
        class_counts: Integers,
        trees: Sequence[ContextTree],
        estimates: list[Estimates],
        facts: Mapping[str, object],
        variances: list[Floats] | None = None,
    ) -> LookupModel:
        """Compile the estimates, rounded to float32, into tables; empties the lists of estimates and variances."""
        contents = Contents(
            tuple(trees), tuple(round_estimates(estimates)), tuple(round_variances_to_bfloat16(variances or []))
        )
        compiled = compile_lookup_tables if class_counts.size <= FEW_CLASSES else compile_many_class_tables
        tables = compiled(schema, structure, class_counts, trees, contents.estimates)
        return cls(schema, structure, class_counts, lambda: contents, tables, facts)

    def predict_proba(self, chunk: Chunk, threads: int | None = None) -> Floats:
        """Predict class probabilities, (n_rows, n_classes) float64; by default with one thread per core for many rows.

        An attribute with an unseen or absent value is summed out (`Elimination`). A null is a value or hides one
        (`Completeness`).
        """

        def look_up(x: Codes) -> Floats:
            out = np.empty((x.shape[1], self.schema.n_classes))
            run_in_row_ranges(
                x.shape[1], threads, lambda first, last: fill_class_probabilities(self._tables, x, first, last, out)
            )
            return out

        return self._completeness.answers(
            chunk.x,
            look_up,
            self._look_up_nulls,
            lambda x, _: self.answer_known(x),
            self.log_evidence,
        )

    @cached_property
    def _completeness(self) -> Completeness:
        parents = set().union(*map(set, self.network.parents)) if self.network.parents else set()
        return Completeness(self.schema, sorted(parents), self.network.order)

    @cached_property
    def _elimination(self) -> Elimination:
        return Elimination(self._tables, self.network, self.schema.domain_sizes)

    @cached_property
    def _spread_elimination(self) -> Elimination:
        return Elimination(self._tables, self.network, self.schema.domain_sizes, self._spread)

    def answer_known(self, x: Codes, of_others: Floats | None = None) -> tuple[Floats, Floats]:
        """Return the class probabilities (n, n_classes) of codes (n_attributes, n) with missing values summed out, and
        the log evidence (n,); `of_others` (n,) as in `Elimination.log_joint`.
        """
        return normalize_log_joints(self._elimination.log_joint(x, of_others)[0], self._tables.log_prior)

    def look_up_known(self, x: Codes) -> tuple[Floats, Floats]:
        """Return the result of `answer_known` by lookups, in which a missing parent ends the context."""
        logs = np.empty((x.shape[1], self.schema.n_classes))
        fill_class_log_joints(self._tables, x, 0, x.shape[1], logs)
        log_evidence = np.empty(x.shape[1])
        normalize_log_joint_rows(logs, self._tables.log_prior, log_evidence)
        return logs, log_evidence

    def _look_up_nulls(self, x: Codes, both: Codes, log_hidden: Floats) -> LookUps:
        (p, log_evidence), n = self.look_up_known(both), x.shape[1]
        weights = average_likely_rows(log_evidence[:n], log_evidence[n:], log_hidden, p[n:], p[:n])
        return LookUps(p[:n], weights)

    def log_evidence(self, x: Codes) -> Floats:
        """Return the log evidence (n,) of codes (n_attributes, n), exact if no parent is missing; a missing parent ends
        the context.
        """
        return self.look_up_known(x)[1]

    @property
    def log_prior(self) -> Floats:
        """Log P(class), (n_classes,) float64."""
        return self._tables.log_prior

    def family_logs(self, family: int, unseen: bool = False) -> Floats:
        """Return log P(value | class, parents) of an entry of the network's order, (n_combinations, n_classes) float64.

        Rows are the combinations of parent codes, including the unseen ones if `unseen`, and, fastest, the
        attribute's code.
        """
        parents, sizes = self.network.parents[family], self.schema.domain_sizes.tolist()
        shape = [*(sizes[i] + unseen for i in parents), sizes[self.network.order[family]]]
        return family_log_probabilities(self._tables, family, shape, self.schema.code_dtype)

    def log_terms(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return the terms that sum to log P(y, x): log P(y) (n_classes,), and the attributes' (n_attributes, n_rows,
        n_classes).
        """
        return self._tables.log_prior, attribute_log_factors(self._tables, chunk)

    def log_joint(self, chunk: Chunk) -> Floats:
        """Return log P(class, known attributes) of each row, (n_rows, n_classes) float64."""
        return self._elimination.log_joint(chunk.x)[0]

    @cached_property
    def _spread(self) -> kernels.LookupTables:
        return compile_lookup_variance_tables(
            self.schema, self.network, self.class_counts, self.trees, self.estimates, self.variances
        )

    def credible_intervals(self, chunk: Chunk, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of intervals of the class probabilities, given the structure, (n_rows,
        n_classes) each.

        See `lookup_credible_intervals` in this module. Raises InvalidParameter if the level is invalid, the model has
        m-estimates, which have no posterior, or it has too many classes.
        """
        if self.schema.n_classes > FEW_CLASSES:
            reason = (
                f"intervals are available for up to {FEW_CLASSES} classes, and this model has {self.schema.n_classes:,}"
            )
            raise InvalidParameter("interval", level, because=reason)
        if self.network.order and not self.variances:
            raise InvalidParameter(
                "interval",
                level,
                because="models with m-estimates have no intervals; train with estimator hdp or hdp-map",
            )
        return lookup_credible_intervals(self.log_joint_variance(chunk), self.predict_proba(chunk), level)

    def log_joint_variance(self, chunk: Chunk, of_others: Floats | None = None) -> Floats:
        """Return the posterior variance of `log_joint`, to first order, (n_rows, n_classes); the estimates must have
        variances; `of_others` (n_rows,) as in `Elimination.log_joint`.
        """
        return self._spread_elimination.log_joint(chunk.x, of_others)[1]

    def to_arrays(self) -> tuple[LookupHeader, Arrays]:
        """Return a header and named arrays for `from_arrays`."""
        names = MANY_TABLES if isinstance(self._tables, ManyClassTables) else TABLES
        header: LookupHeader = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "order": list(self.network.order),
            "parents": [list(parents) for parents in self.network.parents],
            "hierarchical": [estimates.hierarchical for estimates in self.estimates],
            "tree_values": [tree.n_values for tree in self.trees],
            "facts": self.facts,
            "derived": list(names),
        }
        arrays: dict[str, Array] = {"class_counts": np.asarray(self.class_counts)}
        arrays.update(zip(names, self._tables, strict=True))
        return header, arrays | pack_context_trees(self._contents)

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> LookupModel:
        """Build the model from the output of `to_arrays`, without copying. Missing tables are compiled from the rest."""
        stored = cast(LookupHeader, header)
        structure = Structure(tuple(stored["order"]), tuple(tuple(parents) for parents in stored["parents"]))
        schema = Schema.from_json(stored["schema"])

        def contents() -> Contents:
            return unpack_context_trees(arrays, stored["tree_values"], stored["hierarchical"])

        tables: Tables
        if all(name in arrays for name in TABLES):
            tables = kernels.LookupTables(*(arrays[name] for name in TABLES))
        elif all(name in arrays for name in MANY_TABLES):
            tables = ManyClassTables(*(arrays[name] for name in MANY_TABLES))
        else:
            compiled = compile_lookup_tables if schema.n_classes <= FEW_CLASSES else compile_many_class_tables
            tables = compiled(schema, structure, arrays["class_counts"], *contents()[:2])
        return cls(schema, structure, arrays["class_counts"], contents, tables, stored["facts"])

    def structure(self) -> dict[str, object]:
        """Return the nodes and edges of the network, with domain and context-tree sizes, and `facts` about the
        training.
        """
        return describe_structure(self.schema, self.network, self.trees) | {"facts": self.facts}

    def tables(self) -> dict[str, pa.Table]:
        """Return tables of attributes, values, edges, class counts, and every context's counts and probabilities."""
        return describe_network_as_tables(
            self.schema, self.network, self.class_counts, self.trees, self.estimates, self.variances, self.facts
        )


def normalize_log_joints(log_joint: Floats, log_prior: Floats) -> tuple[Floats, Floats]:
    """Normalize log P(class, known) to probabilities (n, n_classes), and return the log evidence (n,).

    A row that no class can produce gets the prior.
    """
    p, log_known = np.array(log_joint), np.empty(len(log_joint))
    normalize_log_joint_rows(p, log_prior, log_known)
    return p, log_known


def lookup_credible_intervals(spread: Floats, probabilities: Floats, level: float) -> tuple[Floats, Floats]:
    """Return the bounds (n_rows, n_classes) of the central interval of each P(y | x), by a normal approximation of its
    log odds.

    The log probabilities in the product are treated as independent. To first order the log odds of class c then
    have the variance S_c + Σ_j≠c (p_j / (1 - p_c))² S_j, with S_j the sum of the variances of class j, given by
    `spread`: that of log P(y, known). The interval has posterior probability `level`. Raises InvalidParameter
    unless it is between 0 and 1.
    """
    if not 0 < level < 1:
        raise InvalidParameter("interval", level, "a probability above 0 and below 1")
    p = np.clip(probabilities, 1e-300, 1 - 1e-16)
    others = p**2 * spread
    variance = spread + (others.sum(axis=1, keepdims=True) - others) / (1 - p) ** 2
    reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(np.maximum(variance, 0.0))
    log_odds = np.log(p) - np.log1p(-p)
    # Log odds beyond 700 are probabilities that no float64 tells from 0 or 1.
    low, high = (1 / (1 + np.exp(-np.clip(log_odds + side * reach, -700, 700))) for side in (-1, 1))
    return low, high
