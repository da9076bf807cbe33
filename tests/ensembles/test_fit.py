"""Members fitted to drawn rows, and what they say of rows that are left out."""

import numpy as np
import pytest

from learners.classifiers.lookup.look_up_tables import fill_class_log_joints
from learners.counts.family_counts import FamilyCounts
from learners.ensembles import fit
from learners.ensembles.fit import (
    MORE_PARENTS,
    MOST_ROWS,
    Pool,
    fit_ensemble_members,
    fit_family_trees,
    leave_one_out_log_prior,
    leave_one_out_log_scores,
    member_log_terms,
    new_row_log_scores,
    prefix_log_probabilities,
)
from learners.ensembles.pool import compile_ensemble_pool_tables
from learners.schema import Chunk
from tests import strategies
from tests.support.ensembles import SIZES, member


@pytest.mark.parametrize("n_classes", [2, 5])
def test_rows_left_out_are_scored_by_the_trees_as_they_were_solved(n_classes):
    """More rows than weights are fitted to, by members of which not all parents are in use."""
    schema = strategies.schema_of(SIZES, n_classes)
    drawn = strategies.chunk_of(1, schema, MOST_ROWS + 300, 2.0)
    members = (member([0, 1, 2, 3]), member([0, 1, 3, 2]))  # they share families
    counts = FamilyCounts(schema, [family for one in members for family in one.families])
    counts.update(drawn)
    fitted = fit_ensemble_members(counts, members, drawn, 2, has_correction=True)
    assert min(one.k for one in fitted.members) < 3  # so levels have been cut off

    expected = np.zeros((drawn.n_rows, n_classes))
    whole = fit_family_trees(counts, [family for one in members for family in one.families], 1)
    for one in fitted.members:
        log_p = prefix_log_probabilities(one.member, whole, drawn, n_classes, 1)
        expected += np.einsum("rfc,f->rc", member_log_terms(log_p, one.k), np.concatenate([one.a, one.b])) / len(
            members
        )
    expected += leave_one_out_log_prior(counts.class_counts, drawn.y)

    tables = compile_ensemble_pool_tables(schema, counts.class_counts, Pool(fitted.members, fitted.levels))
    last = slice(MOST_ROWS - 200, None)
    found = leave_one_out_log_scores(tables, counts.class_counts, fitted.own[:, last].mean(axis=0), drawn.rows(last), 2)
    against = found - expected[last]  # one constant a row: the share of the classes is of one row more
    assert np.ptp(against, axis=1).max() < 1e-4
    assert np.abs(fitted.scores - expected[: fitted.rows.y.size]).max() < 1e-4
    assert not fitted.levels  # no trees beside tables


def test_later_members_have_few_more_parents_than_the_first_selects():
    """Parents that tell nothing are not solved again for each member; a first member that uses all it may have bounds none."""
    schema = strategies.schema_of(SIZES, 2)
    drawn = strategies.chunk_of(1, schema, 2000, 2.0)
    x = drawn.x.copy()
    x[3] = (drawn.y + x[0] + x[1] + x[2]) % schema.domain_sizes[3]  # the class tells nothing without all three parents
    members = (member([0, 1, 2, 3]), member([0, 1, 3, 2]), member([1, 0, 2, 3]))
    most = []
    for rows in (drawn, Chunk(x, drawn.y)):
        counts = FamilyCounts(schema, [family for one in members for family in one.families])
        counts.update(rows)
        first, *others = fit_ensemble_members(counts, members, rows, 1, few_parents=True).members
        assert first.member.most_parents == 3
        most.append((first.k, [one.member.most_parents for one in others]))
    (k, bounded), (k_of_all, free) = most
    assert k < 2 and bounded == [k + MORE_PARENTS] * 2
    assert k_of_all == 3 and free == [3, 3]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_new_rows_are_scored_as_by_the_compiled_pool(n_classes):
    """Rows in several blocks, some with values or contexts that training never had."""
    schema = strategies.schema_of(SIZES, n_classes)
    drawn, rows = strategies.chunk_of(1, schema, 300, 2.0), strategies.chunk_of(2, schema, 500, 2.0)
    unseen = np.random.default_rng(3).random(rows.x.shape) < 0.1
    rows = Chunk(np.where(unseen, schema.domain_sizes[:, np.newaxis], rows.x).astype(rows.x.dtype), rows.y)
    members = (member([0, 1, 2, 3]), member([0, 1, 3, 2]))
    counts = FamilyCounts(schema, [family for one in members for family in one.families])
    counts.update(drawn)
    fitted = fit_ensemble_members(counts, members, drawn, 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "max_member_rows_in_memory", lambda members, n_classes: 130)
        found = new_row_log_scores(fitted.members, fitted.levels, counts.class_counts, rows, 2)

    tables = compile_ensemble_pool_tables(schema, counts.class_counts, Pool(fitted.members, fitted.levels))
    expected = np.empty(found.shape)
    fill_class_log_joints(tables, rows.x, 0, rows.n_rows, expected)
    assert found == pytest.approx(expected, abs=1e-5)
