"""Build the ensemble model from its statistics: weight and choose networks, boost trees, preserve class shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from learners.classifiers.estimates.context_tree import context_tree_from_cells
from learners.classifiers.estimates.hdp import HDPParameters, hdp_map_estimates
from learners.classifiers.lookup.lookup import LookupModel
from learners.counts.multi_view_counts import ViewedFamilies
from learners.counts.row_samples import Draw
from learners.ensembles.budget import CORRECTED, NOT_CORRECTED, Choice
from learners.ensembles.fit import (
    SMALL,
    Fitted,
    Pool,
    fit_ensemble_members,
    is_small_and_wide,
    leave_one_out_log_scores,
    log_softmax,
    max_member_rows_in_memory,
)
from learners.ensembles.joint_members import Joints
from learners.ensembles.large import Large, fit_large_table
from learners.ensembles.levels import TOLERANCE
from learners.ensembles.members import (
    Member,
)
from learners.ensembles.model import Correction, EnsembleModel
from learners.ensembles.pool import N_FOLDS, compile_ensemble_pool, out_of_fold_scores
from learners.ensembles.weights import (
    Rows,
    class_offsets,
    fit_pool_temperature,
    leave_one_out_log_prior,
    mean_log_loss,
    mean_probabilities,
    representative_rows,
)
from learners.kernels.arrays import Floats, Integers
from learners.passes.engine import Advance
from learners.passes.learner import Passes, Work
from learners.passes.memory import release_free_memory
from learners.schema import Schema
from learners.schema.encoding.column_views import Views

if TYPE_CHECKING:  # a process that only serves should not load XGBoost
    from learners.ensembles.correction.boosting import Boosters
    from learners.ensembles.correction.leafwise import Effort
    from learners.ensembles.discriminants.fitting import FittedDiscriminant

# A class with a smaller share of the rows is rare.
RARE = 0.005


@dataclass(eq=False)
class Training:
    """Statistics of the passes, and the training steps that follow without reading rows."""

    schema: Schema
    views: Views
    members: tuple[Member, ...]
    ks: tuple[int, ...]
    seed: int
    families: ViewedFamilies
    drawn: Draw
    is_whole: bool  # whether all rows are among those that were drawn
    choice: Choice
    copies: Integers | None = None  # of the drawn rows, as of `Levels`, if rows count by weights

    def __post_init__(self) -> None:
        self.rows = self.drawn.rows
        self.row_weights = self.drawn.weights(self.families.counts.class_counts)
        self.are_copies = self.copies is not None

    def large_model(
        self, name: str, parameters: Mapping[str, object], plain: Member, joints: Sequence[Member]
    ) -> Passes[EnsembleModel]:
        """Choose among the networks of a large table, and boost trees from their scores of all drawn rows."""
        counts = self.families.counts
        large: Large = yield Work(
            "weighting",
            lambda threads, advance: fit_large_table(
                counts, self.members, plain, self.views, self.rows, self.copies, threads, advance
            ),
            "networks",
        )
        facts: dict[str, object] = {
            "learner": name,
            "parameters": parameters,
            "n_rows": counts.n_rows,
            "choice": [*self.choice.words, large.words],
            "temperature": large.temperature,
            "left_out_loss": large.losses[large.chosen],
            "left_out": "leave-one-out",
            "networks": {"chosen": large.chosen, "left_out_losses": large.losses, "rows": large.n_deciding},
            "drawn_rows": self.rows.n_rows,
        }
        share, correction, boosted = 1.0, None, None
        if self.choice.has_correction:
            seconds = self.choice.seconds_of_trees(counts.n_rows, self.schema.n_attributes)
            effort: Effort = "high" if parameters.get("effort") == "high" else "normal"

            def correct(threads: int, advance: Advance) -> Boosters | None:
                from learners.ensembles.correction.leafwise import boost_leafwise_correction

                return boost_leafwise_correction(
                    self.schema,
                    self.rows,
                    large.scores,
                    effort,
                    self.seed,
                    threads,
                    advance,
                    seconds,
                    self.row_weights,
                    are_copies=self.are_copies,
                )

            boosted = yield Work("boosting trees", correct, "rounds")
            facts |= {"correction": boosted.facts} if boosted else _facts_without_correction(facts)
            if boosted:
                share, correction = boosted.share, boosted.correction(self.schema)
        networks: tuple[LookupModel, ...] = yield Work(
            "solving", lambda threads, _: tuple(self._joint_model(joint, threads) for joint in joints)
        )
        offsets = self._offsets(large.scores, boosted)
        scaled = large.compiled.scaled(share * large.temperature).moved(offsets)
        return EnsembleModel(
            self.schema, counts.class_counts, *scaled, Joints(self.schema, networks), correction, facts
        )

    def model(self, name: str, parameters: Mapping[str, object], joints: Sequence[Member]) -> Passes[EnsembleModel]:
        """Solve, weight, pool and correct the members."""
        class_counts = self.families.counts.class_counts
        n_fitted, weights = self.rows.n_rows, None
        if self._has_rare:
            assert self.rows.y is not None
            n = max_member_rows_in_memory(self.members, self.schema.n_classes)
            first, weights = representative_rows(self.rows.y, class_counts, n)
            order = np.concatenate([first, np.setdiff1d(np.arange(self.rows.n_rows), first)])
            self.rows = self.rows.rows(order)
            if self.row_weights is not None:
                self.row_weights = self.row_weights[order]
            if self.copies is not None:
                self.copies = self.copies[order]
            n_fitted = first.size
        by_views = self.views.chunk(self.rows)
        frugal = int(self.families.counts.n_rows) >= SMALL
        fitted: Fitted = yield Work(
            "weighting",
            lambda threads, advance: fit_ensemble_members(
                self.families.counts,
                self.members,
                by_views,
                threads,
                advance,
                frugal=frugal,
                few_parents=is_small_and_wide(self.rows.n_rows, self.schema.n_attributes),
                has_correction=self.choice.has_correction,
                n_fitted=n_fitted if self._has_rare else None,
                weights=weights,
                copies=self.copies,
            ),
            "networks",
        )
        members, solved, scores, rows, own = fitted
        pool, words = self.choice.within_bytes(Pool(members, solved), self.schema.n_classes)
        if len(members) < len(self.members):
            words.insert(0, f"{len(members)} of {len(self.members)} members: the last two hardly lowered the loss.")

        n_kept, n_fitted = len(pool.members), len(members)
        compiled = compile_ensemble_pool(self.views.schema, class_counts, pool)
        del fitted, members, solved, pool  # the trees are in no use any more
        release_free_memory()

        def left_out(threads: int, which: slice) -> Floats:
            of_own = own[:n_kept, which].mean(axis=0)
            copies = None if self.copies is None else self.copies[which]
            return leave_one_out_log_scores(
                compiled.tables, class_counts, of_own, by_views.rows(which), threads, copies
            )

        if self._is_small:
            ks = self.ks[:n_kept]
            scores = yield Work(
                "cross-fitting",
                lambda threads, advance: out_of_fold_scores(
                    self.schema, self.rows, ks, self.seed, threads, advance, self.copies
                ),
                "folds",
            )
            assert self.rows.y is not None
            copies = 1 if self.copies is None else self.copies
            rows = Rows(self.rows.y, leave_one_out_log_prior(class_counts, self.rows.y, copies))
        elif n_kept < n_fitted:
            scores = yield Work("weighting", lambda threads, _: left_out(threads, slice(rows.y.size)))
        temperature = fit_pool_temperature(scores, rows)
        facts = {
            "learner": name,
            "parameters": parameters,
            "n_rows": self.families.counts.n_rows,
            "choice": [*self.choice.words, *words],
            "temperature": temperature,
            "left_out_loss": mean_log_loss(temperature * scores, rows),
            "left_out": "cross-fitted" if self._is_small else "leave-one-out",
        }
        share, of_networks, correction, held, discriminant = 1.0, 1.0, None, None, None
        bases: Floats = temperature * scores
        if self.choice.has_correction:

            def correct(threads: int, advance: Advance) -> object:
                others = left_out(threads, slice(scores.shape[0], None))
                margins = log_softmax(temperature * np.concatenate([scores, others]))
                beside = self._discriminated(margins[: len(scores)], rows.weights, threads, facts)
                if beside is not None:
                    margins = log_softmax(beside.share * margins + beside.left_out)
                return beside, margins, self._corrected(margins, threads, advance, facts)

            beside, bases, (share, correction, held) = yield Work("correcting", correct, "rounds")
            if beside is not None:
                of_networks, discriminant = beside.share, beside.discriminant.scaled(share)
        networks: tuple[LookupModel, ...] = yield Work(
            "solving", lambda threads, _: tuple(self._joint_model(joint, threads) for joint in joints)
        )
        offsets = None
        if self._has_rare and held is not None:
            offsets = self._offsets(bases, held)
        elif self._has_rare:
            offsets = class_offsets(bases[: rows.y.size], class_counts, rows.weights)
        scaled = compiled.scaled(share * of_networks * temperature).moved(offsets)
        joint_members = Joints(self.schema, networks)
        return EnsembleModel(self.schema, class_counts, *scaled, joint_members, correction, facts, discriminant)

    def _offsets(self, scores: Floats, boosted: Boosters | None) -> Floats:
        """Offsets that give each class its share of the table, by the networks' left-out log scores of all drawn rows.

        If trees correct them, the few rows that these leave out represent the table only by chance. So the mean
        probabilities on these rows must equal those of the networks, which all drawn rows have moved to the shares.
        """
        class_counts = self.families.counts.class_counts
        offsets = class_offsets(scores, class_counts, self.row_weights)
        if boosted is None:
            return offsets
        shares = mean_probabilities(scores[boosted.left_out_rows] + offsets, boosted.left_out_weights)
        return class_offsets(boosted.left_out, np.where(class_counts > 0, shares, 0.0), boosted.left_out_weights)

    @property
    def _has_rare(self) -> bool:
        """Return whether the first rows misstate the share of a class, because it is rare or rows were drawn by class."""
        if self.row_weights is not None:
            return True
        counts = self.families.counts.class_counts
        n = int(counts.sum())
        return n > SMALL and bool((counts[counts > 0] < RARE * n).any())

    @property
    def _is_small(self) -> bool:
        """True if the table is small enough to score each row by members learned without its fold."""
        n = int(self.families.counts.n_rows)
        return self.is_whole and n <= SMALL and self.rows.n_rows >= 2 * N_FOLDS and bool(self.choice.has_pairs)

    def _discriminated(
        self, scores: Floats, weights: Floats | None, threads: int, facts: dict[str, object]
    ) -> FittedDiscriminant | None:
        """Fit Gaussian discriminants beside the ensemble, whose left-out log probabilities of the first rows are `scores`."""
        from learners.ensembles.discriminants.fitting import fit_discriminant

        class_counts = self.families.counts.class_counts
        beside = fit_discriminant(
            self.schema, self.rows, scores, class_counts, weights, self.seed, threads, are_copies=self.are_copies
        )
        if beside is None:
            facts["discriminant"] = (
                "does not lower the loss of rows left out enough, or the table has too few columns of numbers"
            )
            return None
        facts["discriminant"] = beside.facts
        facts["choice"] = [*cast("list[str]", facts["choice"]), beside.words]
        return beside

    def _corrected(
        self, scores: Floats, threads: int, advance: Advance, facts: dict[str, object]
    ) -> tuple[float, Correction | None, Boosters | None]:
        """The share of the ensemble, the trees beside it, and the boosters with the scores of rows that they leave out."""
        from learners.ensembles.correction.boosting import boost_ensemble_correction

        boosted = boost_ensemble_correction(
            self.schema,
            self.rows,
            scores,
            self.seed,
            threads,
            advance,
            self.row_weights,
            are_copies=self.are_copies,
        )
        if boosted is None:
            facts |= _facts_without_correction(facts)
            return 1.0, None, None
        facts["correction"] = boosted.facts
        return boosted.share, boosted.correction(self.schema), boosted

    def _joint_model(self, joint: Member, threads: int) -> LookupModel:
        """Build the unweighted model of a joint member."""
        counts = self.families.counts.only(joint.families)
        sizes = counts.schema.domain_sizes
        trees = [
            context_tree_from_cells(*counts.cells(i), int(sizes[family.attribute]))
            for i, family in enumerate(counts.families)
        ]
        posteriors = hdp_map_estimates(trees, HDPParameters(), threads, tolerance=TOLERANCE)
        own = joint.schema(self.views)
        facts = {"learner": "kdb", "member": "joint", "n_rows": counts.n_rows}
        estimates, variances = [one.estimates for one in posteriors], [one.variance for one in posteriors]
        return LookupModel.of(own, joint.structure, counts.class_counts, trees, estimates, facts, variances)


def _facts_without_correction(facts: Mapping[str, object]) -> dict[str, object]:
    """Return the facts to replace where boosted trees were tried in vain."""
    words = [NOT_CORRECTED if each == CORRECTED else each for each in cast("list[str]", facts["choice"])]
    return {"choice": words, "correction": "no number of rounds lowered the left-out loss"}
