"""A trained ensemble: lookup tables over views, Gaussian discriminants, and boosted trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from learners.classifiers.description import training_facts_table
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.completeness import Completeness, LookUps, unsure_and_likely_rows, weights_of_values
from learners.classifiers.lookup.look_up_tables import (
    Tables,
    attribute_log_factors,
    family_log_probabilities,
    fill_class_log_joints,
    run_in_row_ranges,
    slice_lookup_tables,
)
from learners.classifiers.lookup.lookup import LookupModel, lookup_credible_intervals
from learners.ensembles.correction.forest import (
    forest_arrays,
    forest_from_arrays,
    forest_shap_values,
    no_packed_trees,
    pack_trees,
)
from learners.ensembles.correction.forest_kernels import WALKED_ROWS, Forest, PackedTrees, add_forest_scores
from learners.ensembles.discriminants.gaussian import Discriminant, discriminant_from_arrays
from learners.ensembles.joint_members import LEAST, Joints
from learners.ensembles.packed_tables import are_on_grid, is_packed, pack_tables, unpack_tables
from learners.errors import InvalidParameter
from learners.kernels.arrays import (
    Array,
    Arrays,
    Codes,
    Float32s,
    Floats,
    Integers,
    Uint8s,
    freeze_arrays,
    read_only_array,
    take_rows,
)
from learners.models.model import ModelDefaults
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

LEAST_SPREAD, NO_SPREAD = -26.0, 255  # binary logarithm of the least variance that is not 0; the code of none


@dataclass(frozen=True, eq=False)
class Entries:
    """Member, weights and variances of each family in the tables."""

    member: Integers  # (n_families,) int64: ascending
    # alone, parents (n_families,) float64: weights of log P(x_i | y), and of what the parents add to it.
    alone: Floats
    parents: Floats
    # spread_dense, spread_vectors: the posterior variance of each weighted term, in the places of `LookupTables.dense` and
    # `.vectors`: uint8 of `spread_codes`, float16 in models of release 0.2.0.
    spread_dense: Array
    spread_vectors: Array


def spread_codes(variances: Array, factor: float) -> Uint8s:
    """Return variances times a factor as uint8 codes, eight for each factor of two; NaN has its own code."""
    with np.errstate(divide="ignore"):
        codes = np.rint(8.0 * (np.log2(np.asarray(variances, np.float32) * np.float32(factor)) - LEAST_SPREAD))
    return np.nan_to_num(np.clip(codes, 0, NO_SPREAD - 1), nan=NO_SPREAD).astype(np.uint8)


def spreads_from_codes(stored: Array) -> Float32s:
    """Return variances as float32: from the codes of `spread_codes`, or from float16."""
    if stored.dtype != np.uint8:
        return stored.astype(np.float32)
    of_code = np.exp2(np.arange(NO_SPREAD + 1) / 8.0 + LEAST_SPREAD).astype(np.float32)
    of_code[0], of_code[NO_SPREAD] = 0.0, np.nan
    return of_code[stored]


@dataclass(frozen=True, eq=False)
class Correction:
    """Boosted trees whose scores are added to those of the lookup tables."""

    forest: Forest  # all trees, weights multiplied in
    weights: tuple[float, ...]  # of the boosters that they come from

    def add_scores(self, x: Codes, sizes: Integers, scores: Floats) -> None:
        """Add the trees' scores to `scores` (n, n_classes) of codes (n_attributes, n), where attributes have this
        many values.
        """
        packed = self._unpacked if x.shape[1] < WALKED_ROWS else self._packed
        add_forest_scores(self.forest, packed, x, sizes, scores)

    @cached_property
    def _packed(self) -> PackedTrees:
        return pack_trees(self.forest)

    @cached_property
    def _unpacked(self) -> PackedTrees:
        return no_packed_trees(self.forest)


class EnsembleModel(ModelDefaults):
    """A geometric pool of weighted networks, optionally with Gaussian discriminants beside them, and corrected by boosted trees.

    Create it with the learners `eskdb` and `auto`; it is immutable.

    Parameters
    ----------
    schema : Schema
        With groupings: the cut points of all members.
    class_counts : (n_classes,) int64
    tables : kernels.LookupTables
        By views; weights, temperature and the share of the ensemble multiplied in.
    entries : Entries
    joints : Joints
        The members that answer for the joint distribution: unweighted, each by its own coarser cut points.
    correction : Correction or None
    facts : dict
        What else is known of the training; JSON can hold it.
    discriminant : Discriminant or None
        Its scores are added to those of the tables.
    """

    kind: ClassVar[str] = "ensemble"
    answering_member: ClassVar[str | None] = "joint"

    def __init__(
        self,
        schema: Schema,
        class_counts: Integers,
        tables: kernels.LookupTables,
        entries: Entries,
        joints: Joints,
        correction: Correction | None,
        facts: Mapping[str, Any],
        discriminant: Discriminant | None = None,
    ) -> None:
        self.schema, self.class_counts, self.entries = schema, class_counts, entries
        self.discriminant = discriminant
        self.joints, self.correction, self.facts = joints, correction, dict(facts)
        freeze_arrays(*tables)
        self._tables, self.views = tables, Views(schema)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_arrays, self.to_arrays()

    def predict_proba(self, chunk: Chunk, threads: int | None = None) -> Floats:
        """Predict class probabilities, (n_rows, n_classes) float64; by default with one thread per core for many rows.

        For rows with missing columns, two predictions are averaged with the weight `Joints.share_of_ensemble`: the
        ensemble's, in which a missing parent ends the context and a missing split follows both branches, and the
        joint members', which marginalize missing columns. A null is a value or hides one (`Completeness`).
        """

        def look_up(x: Codes) -> Floats:
            out = np.empty((x.shape[1], self.schema.n_classes))
            run_in_row_ranges(
                x.shape[1], threads, lambda i, j: self._answer_alone(read_only_array(x[:, i:j]), out[i:j])
            )
            return out

        def look_up_nulls(x: Codes, both: Codes, log_hidden: Floats) -> LookUps:
            n, evidence = x.shape[1], self.joints.log_evidence(both)
            weights = weights_of_values(evidence[:n], evidence[n:], log_hidden)
            unsure, likely = unsure_and_likely_rows(weights)
            if not unsure.size:
                return LookUps(look_up(x), weights)
            # Both readings of a row side by side: one goes down the trees where the other has read them.
            chosen = both if unsure.size == n else take_rows(both, np.concatenate([np.arange(n), n + unsure]))
            answers = look_up(chosen)
            p, begun = answers[:n], answers[n:]
            if unsure.size < n:
                begun = np.empty_like(p)
                begun[unsure] = answers[n:]
            if likely.size:
                hidden, _ = self.pooled_answer_of_known(take_rows(both, n + likely), begun[likely], by_look_ups=True)
                share = weights[likely, np.newaxis]
                p[likely] = share * p[likely] + (1 - share) * hidden
            return LookUps(p, weights, begun)

        return self._completeness.answers(
            chunk.x,
            look_up,
            look_up_nulls,
            self.pooled_answer_of_known,
            self.joints.log_evidence,
        )

    def warnings(self) -> list[str]:
        """Warnings about the training: it was interrupted."""
        trees = self.facts.get("correction")
        return [trees["interrupted"]] if isinstance(trees, Mapping) and "interrupted" in trees else []

    @property
    def joint(self) -> LookupModel:
        """The member that answers queries about the joint distribution."""
        return self.joints.models[0]

    @cached_property
    def _completeness(self) -> Completeness:
        attributes = range(self.schema.n_attributes)
        return Completeness(self.schema, attributes, attributes)

    def pooled_answer_of_known(
        self, x: Codes, alone: Floats | None = None, by_look_ups: bool = False
    ) -> tuple[Floats, Floats]:
        """Class probabilities (n, n_classes) of codes (n_attributes, n) that may be missing, and log P(known) (n,).

        `alone` (n, n_classes) are the probabilities of the ensemble without the joint members, where they are known. By
        look-ups a missing parent ends the context in the joint members, too.
        """
        share, log_ensemble, of_joints, log_evidence = self._answers_of_both(x, alone, by_look_ups)
        return self.joints.pooled(share, log_ensemble, of_joints, self._tables.log_prior), log_evidence

    def _answers_of_both(
        self, x: Codes, alone: Floats | None = None, by_look_ups: bool = False
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the ensemble's share, the log probabilities of the ensemble and of each joint member, and the log
        evidence.
        """
        x = read_only_array(x)
        if alone is None:
            alone = np.empty((x.shape[1], self.schema.n_classes))
            self._answer_alone(x, alone)
        share = self.joints.share_of_ensemble(x)
        of_joints, log_evidence = self.joints.log_answers_of_known(x, None if by_look_ups else share[:, 0])
        return share, np.log(np.maximum(alone, LEAST)), of_joints, log_evidence

    def _answer_alone(self, x: Codes, out: Floats) -> None:
        """Compute class probabilities from tables, discriminants and trees, without the joint members."""
        fill_class_log_joints(self._tables, self.views.codes(x), 0, x.shape[1], out)
        if self.discriminant is not None:
            self.discriminant.add_scores(x, out)
        if self.correction is not None:
            self.correction.add_scores(x, self.schema.domain_sizes, out)
        kernels.normalize_log_joint_rows(out, self._tables.log_prior, np.empty(x.shape[1]))

    def log_terms(self, chunk: Chunk) -> tuple[Floats, Floats]:
        """Return the terms that sum to the class scores: the prior (n_classes,) and the attributes' terms
        (n_attributes, n_rows, n_classes).

        The attributes' terms sum over all members and include those of the discriminants and the SHAP values of the correction.
        """
        of_views = self.views.chunk(chunk)
        terms = np.zeros((self.schema.n_attributes, chunk.n_rows, self.schema.n_classes))
        for first, last in self._member_ranges:
            own = attribute_log_factors(slice_lookup_tables(self._tables, first, last), of_views)
            np.add.at(terms, self.views.attribute, own)
        prior = np.array(self._tables.log_prior)
        if self.discriminant is not None:
            of_classes, values = self.discriminant.log_terms(chunk.x, self.schema.n_attributes)
            prior, terms = prior + of_classes, terms + values
        if self.correction is not None:
            sizes, n_classes = self.schema.domain_sizes, self.schema.n_classes
            bias, values = forest_shap_values(self.correction.forest, chunk.x, sizes, n_classes)
            prior, terms = prior + bias, terms + values
        return prior, terms

    @cached_property
    def _member_ranges(self) -> list[tuple[int, int]]:
        n_members = int(self.entries.member.max(initial=-1)) + 1
        return list(pairwise(np.searchsorted(self.entries.member, np.arange(n_members + 1)).tolist()))

    @cached_property
    def _spreads(self) -> list[Tables]:
        """Lookup tables of the variances of each member's terms."""
        spread = self._tables._replace(
            dense=spreads_from_codes(self.entries.spread_dense),
            vectors=spreads_from_codes(self.entries.spread_vectors),
            log_prior=np.zeros(self.schema.n_classes),
            is_hierarchical=np.zeros(1, np.uint8),
        )
        freeze_arrays(*spread)
        return [slice_lookup_tables(spread, first, last) for first, last in self._member_ranges]

    def credible_intervals(self, chunk: Chunk, level: float = 0.9) -> tuple[Floats, Floats]:
        """Credible intervals of the class probabilities, due to sampling of the rows, with weights and trees fixed.

        Low and high are (n_rows, n_classes). All members, including the joint ones, share the training rows, so their
        errors are treated as fully correlated. For rows with missing columns, the disagreement between ensemble and
        joint members is added: the variance of a score is that of one drawn at random with the pool's weights. Raises
        InvalidParameter if the level is not between 0 and 1.
        """
        deviation = ensemble_standard_deviations(self._spreads, self.views.chunk(chunk).x, self.schema.n_classes)
        disagreement = np.zeros_like(deviation)
        lacking = np.flatnonzero((chunk.x >= self.schema.domain_sizes[:, np.newaxis]).any(axis=0))
        if lacking.size:
            own = np.ascontiguousarray(chunk.x[:, lacking])
            share, log_ensemble, of_joints, _ = self._answers_of_both(own)
            log_joint, among_joints = of_joints.mean(axis=0), of_joints.var(axis=0)
            of_members = self.joints.deviation(own, share[:, 0])
            deviation[lacking] = share * deviation[lacking] + (1.0 - share) * of_members
            disagreement[lacking] = (
                share * (1.0 - share) * (log_ensemble - log_joint) ** 2 + (1.0 - share) * among_joints
            )
        disagreement += self._disagreement_of_members(self.views.chunk(chunk).x)
        spread = deviation**2 + disagreement + 1.0 / (np.asarray(self.class_counts, np.float64) + 1.0)
        return lookup_credible_intervals(spread, self.predict_proba(chunk), level)

    def _disagreement_of_members(self, x: Codes) -> Floats:
        """Variance of the members' log probabilities, (n_rows, n_classes), which reflects uncertainty about structures
        and cut points; zero if no member has a term.
        """
        n_members = len(self._member_ranges)
        if not n_members:
            return np.zeros((x.shape[1], self.schema.n_classes))
        tables = self._tables._replace(log_prior=self._tables.log_prior / n_members)
        freeze_arrays(tables.log_prior)
        total, squares = np.zeros((2, x.shape[1], self.schema.n_classes))
        scores = np.empty_like(total)
        for first, last in self._member_ranges:
            fill_class_log_joints(slice_lookup_tables(tables, first, last), x, 0, x.shape[1], scores)
            scores *= n_members
            log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
            total += log_p
            squares += log_p**2
        return np.maximum(squares / n_members - (total / n_members) ** 2, 0.0)

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        """Return a header and named arrays for `from_arrays`."""
        headers, of_joints = self.joints.to_arrays()
        header: dict[str, object] = {
            "kind": self.kind,
            "schema": self.schema.to_json(),
            "facts": self.facts,
            **headers,
            "weights": None if self.correction is None else list(self.correction.weights),
        }
        arrays: dict[str, Array] = {"class_counts": np.asarray(self.class_counts)}
        entries = {f"entry_{name}": array for name, array in vars(self.entries).items()}
        if self.entries.spread_dense.dtype == np.uint8 and are_on_grid(self._tables):
            arrays |= pack_tables(self._tables, entries.pop("entry_spread_dense"), entries.pop("entry_spread_vectors"))
        else:  # read from a file of release 0.2.0
            arrays |= {f"table_{name}": array for name, array in self._tables._asdict().items()}
        arrays |= entries
        arrays |= of_joints
        if self.discriminant is not None:
            arrays |= self.discriminant.to_arrays()
        if self.correction is not None:
            arrays |= forest_arrays(self.correction.forest)
        return header, arrays

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Arrays) -> EnsembleModel:
        """Build the model from the output of `to_arrays`; packed tables are restored."""
        schema = Schema.from_json(header["schema"])
        if is_packed(arrays):
            arrays = unpack_tables(arrays)
        joints = Joints.from_arrays(schema, header, arrays)
        weights = header["weights"]
        correction = None
        if weights is not None:
            correction = Correction(forest_from_arrays(schema, arrays), tuple(weights))
        tables = kernels.LookupTables(**{name: arrays[f"table_{name}"] for name in kernels.LookupTables._fields})
        entries = Entries(**{name: arrays[f"entry_{name}"] for name in Entries.__dataclass_fields__})
        discriminant = discriminant_from_arrays(arrays)
        return cls(schema, arrays["class_counts"], tables, entries, joints, correction, header["facts"], discriminant)

    def structure(self) -> dict[str, object]:
        """Return the joint member's nodes and edges, `facts`, and every member's families with their weights."""
        return self.joint.structure() | {"facts": self.facts, "members": self.members}

    def member_structure(self, member: int) -> dict[str, object]:
        """Return the nodes and edges of one member, the class first. Raises InvalidParameter if the member does not
        exist.
        """
        every = self.members
        if not every:
            raise InvalidParameter(
                "member", member, because="no column says anything of the class, so no member has edges"
            )
        if not 0 <= member < len(every):
            raise InvalidParameter("member", member, f"from 0 to {len(every) - 1}, a member of the ensemble")
        target = self.schema.target or "class"
        nodes: list[dict[str, object]] = [{"name": target, "role": "class", "n_values": self.schema.n_classes}]
        edges = []
        for family in every[member]["families"]:
            nodes.append({"name": family["attribute"], "role": "attribute", "weight": family["weight"]})
            for rank, parent in enumerate([target, *family["parents"]]):
                edges.append({"from": parent, "to": family["attribute"], "rank": rank})
        return {"nodes": nodes, "edges": edges}

    @property
    def members(self) -> list[dict[str, Any]]:
        """Number and families of each member; each family has its attribute, parents, weight and parents' weight."""
        names, entries = [attribute.name for attribute in self.schema.attributes], self.entries
        members: list[dict[str, Any]] = [
            {"member": number, "families": []} for number in range(len(self._member_ranges))
        ]
        for i, (attribute, parents) in enumerate(self.families):
            members[int(entries.member[i])]["families"].append(
                {
                    "attribute": names[attribute],
                    "parents": [names[parent] for parent in parents],
                    "weight": float(entries.alone[i]),
                    "weight_of_parents": float(entries.parents[i]),
                }
            )
        return members

    @property
    def families(self) -> list[tuple[int, tuple[int, ...]]]:
        """Attribute and parents of each entry, as positions in the schema."""
        of_view: Callable[[Any], int] = lambda view: int(self.views.attribute[view])  # noqa: E731
        starts = self._tables.parent_starts
        return [
            (of_view(view), tuple(of_view(parent) for parent in self._tables.parents[starts[i] : starts[i + 1]]))
            for i, view in enumerate(self._tables.attribute)
        ]

    @property
    def log_prior(self) -> Floats:
        """Scores before any attribute is added, (n_classes,) float64."""
        return self._tables.log_prior

    @property
    def family_views(self) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """View of each entry's attribute, and views of its parents."""
        starts, parents = self._tables.parent_starts.tolist(), self._tables.parents.tolist()
        return tuple(self._tables.attribute.tolist()), tuple(tuple(parents[i:j]) for i, j in pairwise(starts))

    def family_logs(self, family: int) -> Floats:
        """Return the terms of an entry, (n_combinations, n_classes) float64, for each combination of parent and own
        codes, including unseen ones.
        """
        order, above = self.family_views
        shape = [int(self.views.schema.domain_sizes[view]) + 1 for view in (*above[family], order[family])]
        return family_log_probabilities(self._tables, family, shape, self.views.schema.code_dtype)

    def tables(self) -> dict[str, pa.Table]:
        """Return the joint member's tables, the training facts, and `members`: every member's families with their
        weights.
        """
        return self.joint.tables() | {
            "members": self._members_table(),
            "facts": training_facts_table(self.facts),
        }

    def _members_table(self) -> pa.Table:
        """Return a table with one row per family of each member."""
        rows = [{"member": one["member"], **family} for one in self.members for family in one["families"]]
        types = {"member": pa.int64(), "attribute": pa.string(), "parents": pa.list_(pa.string())}
        types |= {"weight": pa.float64(), "weight_of_parents": pa.float64()}
        return pa.Table.from_pylist(rows, pa.schema(types))


def ensemble_standard_deviations(spreads: Sequence[Tables], x: Codes, n_classes: int) -> Floats:
    """Compute the standard deviation of each class's pooled score for codes x (n_views, n_rows), (n_rows, n_classes)
    float64.

    `spreads` are the variances of each member's weighted terms. Terms within a member are treated as independent.
    All members share the training rows, so their errors are treated as fully correlated: the standard deviations
    of the members' scores add.
    """
    deviation = np.zeros((x.shape[1], n_classes))
    of_member = np.empty_like(deviation)
    for tables in spreads:
        fill_class_log_joints(tables, x, 0, x.shape[1], of_member)
        deviation += np.sqrt(np.maximum(of_member, 0.0))
    return deviation
