"""Members of an ensemble that represent the joint distribution, and their weight for rows with missing columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from learners.classifiers.lookup.lookup import LookupModel, normalize_log_joints
from learners.ensembles.cuts import member_parent_grouping_index
from learners.kernels.arrays import Array, Arrays, Codes, Floats, freeze_arrays, read_only_array
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views

LEAST = 1e-300
MORE, POOLING = "more_joints", "pooling"
POOLED = "mean"  # the probabilities of the ensemble and of its joint members are averaged


def joint_member_array_prefix(number: int) -> str:
    """Return the prefix of a joint member's array names."""
    return f"joint{number or ''}_"


def joint_member_arrays(number: int, arrays: Arrays) -> Arrays:
    """Return the arrays of one joint member, without the prefix."""
    prefix = joint_member_array_prefix(number)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True, eq=False)
class Joints:
    """Networks that marginalize missing columns, each with its own cut points."""

    schema: Schema  # of the ensemble
    models: tuple[LookupModel, ...]  # the first one answers queries

    @cached_property
    def views(self) -> tuple[Views, ...]:
        """Views of the attributes for each joint member."""
        return tuple(Views(self.schema, member_parent_grouping_index(number)) for number in range(len(self.models)))

    def _seen(self, x: Codes) -> Iterator[tuple[LookupModel, Codes]]:
        """Yield each joint model with the codes (n_attributes, n) converted to its views."""
        for model, views in zip(self.models, self.views, strict=True):
            yield model, views.codes(x)

    def log_answers_of_known(self, x: Codes, of_others: Floats | None) -> tuple[Floats, Floats]:
        """Log probabilities (n_models, n, n_classes) of codes (n_attributes, n), and the mean of their log P(known) (n,).

        `of_others` (n,) is the ensemble's share in each answer, as in `Elimination.log_joint`; None to look all up, so that a
        missing parent ends the context.
        """
        logs, evidence = np.empty((len(self.models), x.shape[1], self.schema.n_classes)), np.zeros(x.shape[1])
        for member, (model, own) in enumerate(self._seen(x)):
            logs[member], of_member = (
                model.look_up_known(own) if of_others is None else model.answer_known(own, of_others)
            )
            evidence += of_member
        np.log(np.maximum(logs, LEAST, out=logs), out=logs)  # as 0 x -inf is no number
        return logs, evidence / len(self.models)

    def log_evidence(self, x: Codes) -> Floats:
        """Return the log evidence (n,) of codes (n_attributes, n), looked up in the first member; a missing parent ends
        the context.
        """
        model, own = next(self._seen(x))
        return model.log_evidence(own)

    def deviation(self, x: Codes, of_others: Floats) -> Floats:
        """Return the mean standard deviation of the members' log probabilities, (n, n_classes); `of_others` (n,) is the
        ensemble's share in each answer, as in `Elimination.log_joint`.
        """
        variances = [model.log_joint_variance(Chunk(own, None), of_others) for model, own in self._seen(x)]
        return np.asarray(np.mean(np.sqrt(variances), axis=0))

    def share_of_ensemble(self, x: Codes) -> Floats:
        """Return the weight of the ensemble for rows with missing columns, (n, 1), from 0 to 1.

        The ensemble's networks and trees are trained on whole rows, so their error grows with the class information
        that is missing. The weight is the square of the share of known columns, or of the share of known information,
        whichever is smaller.
        """
        is_known = x < self.schema.domain_sizes[:, np.newaxis]
        of_columns = is_known.sum(axis=0) / max(1, len(is_known)) if is_known.size else np.ones(x.shape[1])
        # Not by BLAS, whose threads would go on waiting for work at every processor.
        of_information = np.einsum("a,ar->r", self.information, is_known)
        return np.minimum(of_columns, of_information)[:, np.newaxis] ** 2

    def pooled(self, share: Floats, log_ensemble: Floats, of_joints: Floats, log_prior: Floats) -> Floats:
        """Average the ensemble's and the joint members' class probabilities, (n, n_classes), with weight `share` for
        the ensemble.
        """
        return (
            share * np.exp(log_ensemble)
            + (1.0 - share) * normalize_log_joints(of_joints.sum(axis=0) / len(of_joints), log_prior)[0]
        )

    @cached_property
    def information(self) -> Floats:
        """Mutual information of each attribute with the class under the first network, (n_attributes,), normalized to
        sum to one.
        """
        model, n = self.models[0], self.schema.n_attributes
        sizes = model.schema.domain_sizes
        attribute = np.repeat(np.arange(n), sizes)
        x: Codes = np.repeat(sizes[:, np.newaxis], attribute.size, axis=1).astype(model.schema.code_dtype)
        x[attribute, np.arange(attribute.size)] = np.arange(attribute.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        freeze_arrays(x)
        prior, terms = model.log_terms(Chunk(x, None))
        p = np.exp(prior + terms.sum(axis=0))  # (values of all attributes, n_classes): P(value, class)
        of_value = p.sum(axis=1, keepdims=True)
        terms = np.where(p > 0, p * np.log(np.maximum(p, LEAST) / np.maximum(of_value * np.exp(prior), LEAST)), 0.0)
        information = np.maximum(np.bincount(attribute, terms.sum(axis=1), n), 0.0)
        total = information.sum()
        return read_only_array(information / total if total > 0 else np.full(n, 1 / max(1, n)))

    def to_arrays(self) -> tuple[dict[str, object], Arrays]:
        """Return headers and named arrays for `from_arrays`."""
        headers: list[object] = []
        arrays: dict[str, Array] = {}
        for number, model in enumerate(self.models):
            header, own = model.to_arrays()
            headers.append(header)
            arrays |= {joint_member_array_prefix(number) + name: array for name, array in own.items()}
        return {"joint": headers[0], MORE: headers[1:], POOLING: POOLED}, arrays

    @classmethod
    def from_arrays(cls, schema: Schema, header: Mapping[str, Any], arrays: Arrays) -> Joints:
        """Build the joint members from the output of `to_arrays`."""
        headers = joint_member_headers(header)
        models = tuple(
            LookupModel.from_arrays(own, joint_member_arrays(number, arrays)) for number, own in enumerate(headers)
        )
        return cls(schema, models)


def joint_member_headers(header: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the header of each joint member."""
    return [header["joint"], *header[MORE]]
