"""What an ensemble answers, from the definition: its rows, its weights, its trees, and the joint member summed by brute force."""

import json
from functools import partial
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import logsumexp

from learners import Source, drive, encode, learner, load_model
from learners.counts.family_counts import FamilyCounts
from learners.counts.pairwise import PairwiseCounts
from learners.ensembles.cuts import OF_PAIRS, member_parent_grouping_index
from learners.ensembles.fit import fit_family_trees
from learners.ensembles.members import distinct_families, draw_ensemble_members
from learners.ensembles.model import spread_codes, spreads_from_codes
from learners.ensembles.pool import GRID, on_grid
from learners.ensembles.recipes import draw_max_parents_per_member
from learners.errors import InvalidArray, InvalidParameter
from learners.schema import Chunk
from learners.schema.encoding.column_views import Views
from tests.naive import ensembles as naive
from tests.naive.counts import family_counts
from tests.naive.information import mutual_information
from tests.support.ensembles import MEMBERS, trained

CASES = [("eskdb", 2), ("eskdb", 256), ("auto", 2), ("auto", 4)]


def family_terms(model, x, y):
    """For each entry of the tables: weights, the view, its parents' views, and a function log P(value | path, first k parents)."""
    views, own = Views(model.schema), x.astype(model.schema.code_dtype)
    chunk = Chunk(own, y.astype(own.dtype))
    of_pairs = Views(model.schema, OF_PAIRS)
    pairs = PairwiseCounts(of_pairs.schema)
    pairs.update(of_pairs.chunk(chunk))
    members = draw_ensemble_members(pairs, views, draw_max_parents_per_member(MEMBERS, y.size, 0), 0)
    counts = FamilyCounts(views.schema, distinct_families(members))
    counts.update(views.chunk(chunk))
    solved = fit_family_trees(counts, distinct_families(members), 1)
    by_views, tables, entries = naive.codes_by_views(model.schema, x), model._tables, model.entries
    terms = []
    for entry, view in enumerate(tables.attribute.tolist()):
        parents = tables.parents[tables.parent_starts[entry] : tables.parent_starts[entry + 1]].tolist()
        whole = next(f for f in members[entries.member[entry]].families if f.attribute == view)
        assert list(whole.parents[: len(parents)]) == parents
        cells = family_counts(by_views, y, view, whole.parents)
        labels, codes, values = zip(*cells, strict=True)
        levels = solved[whole]
        log_p = partial(
            naive.log_probability,
            naive.tree_of(labels, codes, values, cells.values()),
            naive.customers_of(levels.tree, levels.arrays.customers),
            levels.arrays.concentration[1:],
            levels.tree.n_values,
        )
        terms.append((entries.alone[entry], entries.parents[entry], view, parents, log_p))
    return terms


def ensemble_scores(model, training, x, labels):
    """(n, labels) log scores of rows: T / M times the weighted terms, and the trees."""
    by_views, sizes = naive.codes_by_views(model.schema, x), model.views.schema.domain_sizes
    n, share = np.asarray(model.class_counts, float), 1.0
    scores = np.zeros((x.shape[1], len(labels)))
    if model.correction is not None:
        share = model.facts["correction"]["weights"]["from ensemble"]
        scores += naive.flat_forest_scores(model.correction.forest, x, model.schema.domain_sizes, n.size)[:, labels]
    if model.discriminant is not None:
        scores += naive.discriminant_scores(model.discriminant, x)[:, labels]
        share *= model.facts["discriminant"]["weights"]["ensemble"]
    scale = share * model.facts["temperature"]
    scores += scale * np.log((n + 1 / n.size) / (n.sum() + 1))[labels]
    for a, b, view, parents, log_p in family_terms(model, *training):
        for row in range(x.shape[1]):
            if by_views[view, row] >= sizes[view]:
                continue
            codes = [
                int(code) if code < size else None
                for code, size in zip(by_views[parents, row], sizes[parents], strict=True)
            ]
            for place, label in enumerate(labels):
                path = (label, *codes)
                alone, whole = (log_p(int(by_views[view, row]), path, k, False) for k in (0, len(parents)))
                scores[row, place] += scale / MEMBERS * (a * alone + b * (whole - alone))
    return scores


def joint_scores(model, number, x):
    """(n, n_classes) log P(class, known) of a joint member: the sum over all values of what is missing."""
    network = model.joints.models[number]
    by_joint, sizes = (
        naive.codes_by_views(model.schema, x, member_parent_grouping_index(number)),
        network.schema.domain_sizes,
    )
    found = []
    for row in by_joint.T:
        choices = [[int(code)] if code < size else range(size) for code, size in zip(row, sizes, strict=True)]
        whole = np.array(list(product(*choices)), network.schema.code_dtype).T
        found.append(logsumexp(network.log_joint(Chunk(np.ascontiguousarray(whole), None)), axis=0))
    return np.stack(found)


def log_softmax(scores):
    return scores - logsumexp(scores, axis=1, keepdims=True)


@pytest.mark.parametrize(("learner", "n_classes"), CASES)
def test_whole_rows_are_answered_by_weights_temperature_and_trees(learner, n_classes):
    model, x, y = trained(learner, n_classes)
    assert learner == "eskdb" or model.correction is not None
    labels = list(range(0, n_classes, max(1, n_classes // 8)))
    found = np.log(model.predict_proba(Chunk(x[:, :12], None))[:, labels])
    assert log_softmax(found) == pytest.approx(log_softmax(ensemble_scores(model, (x, y), x[:, :12], labels)), abs=2e-4)


@pytest.mark.parametrize(("learner", "n_classes"), CASES)
def test_where_columns_are_missing_both_answers_are_pooled(learner, n_classes):
    """The share of the ensemble times its probabilities, the rest those of the mean of the joint members' logs."""
    model, x, y = trained(learner, n_classes)
    asked = x[:, 100:116].copy()
    is_absent = np.array(list(product((False, True), repeat=4))).T  # each of the sixteen ways once
    asked = np.where(is_absent, model.schema.domain_sizes[:, np.newaxis], asked).astype(x.dtype)
    labels = list(range(0, n_classes, max(1, n_classes // 8)))
    ensemble = ensemble_scores(model, (x, y), asked, labels)
    joints = np.stack([joint_scores(model, number, asked) for number in range(MEMBERS)])
    of_information = [sum(model.joints.information[i] for i in range(4) if not row[i]) for row in is_absent.T]
    share = np.minimum(1.0 - is_absent.mean(axis=0), of_information)[:, np.newaxis] ** 2
    p, evidence = model.pooled_answer_of_known(asked)
    of_joints = np.exp(log_softmax(joints.mean(axis=0)))
    is_heard = share[:, 0] > 0.05
    assert is_heard.sum() >= 4 and share[-1] == 0 and p[-1] == pytest.approx(of_joints[-1])
    of_ensemble = np.log((p - (1 - share) * of_joints)[is_heard])
    assert log_softmax(of_ensemble[:, labels]) == pytest.approx(log_softmax(ensemble[is_heard]), abs=2e-3)
    assert evidence == pytest.approx(logsumexp(joints, axis=2).mean(axis=0), abs=1e-4)
    assert np.array_equal(model.predict_proba(Chunk(asked, None))[1:], p[1:])

    header, arrays = model.to_arrays()
    del header["pooling"]
    with pytest.raises(InvalidArray, match="another form of fewpass wrote this model"):
        load_model(json.loads(json.dumps(header)), arrays, is_trusted=False)


@pytest.mark.parametrize(("learner", "n_classes"), [("eskdb", 2), ("auto", 2)])
def test_the_information_of_a_column_is_that_of_its_counts(learner, n_classes):
    model, x, y = trained(learner, n_classes)
    by_joint = naive.codes_by_views(model.schema, x, member_parent_grouping_index(0))
    found = [mutual_information(codes, y) for codes in by_joint]
    assert model.joints.information == pytest.approx(np.array(found) / sum(found), abs=0.05)


def test_stored_variances_are_within_five_hundredths():
    variances = np.array([0.0, 1e-9, 3e-7, 0.01, 1.0, 25.0, 1e4, np.nan], np.float32)
    found = spreads_from_codes(spread_codes(variances, 0.5))
    assert np.allclose(found[2:6], variances[2:6] / 2, rtol=0.05, atol=0)
    assert found[0] == 0 and found[1] < 2e-8 and 45 < found[6] < 60 and np.isnan(found[7])
    halves = np.array([0.5, np.nan], np.float16)  # as release 0.2.0 stored them
    assert np.array_equal(spreads_from_codes(halves), halves.astype(np.float32), equal_nan=True)


def test_terms_keep_sixteen_bits_behind_the_point():
    terms = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert np.abs(on_grid(terms, 0.7) - 0.7 * terms).max() <= 0.51 / GRID
    assert np.array_equal(on_grid(on_grid(terms, 0.7), 1.0), on_grid(terms, 0.7))
    assert on_grid(np.array([-np.inf], np.float32), 0.7)[0] == -np.inf


@pytest.mark.parametrize("name", ["eskdb", "auto"])
def test_members_without_a_term_answer_the_class_shares_with_bounds(name):
    rng = np.random.default_rng(1)
    table = pa.table({"id": rng.integers(0, 900, 2500).astype(str), "word": rng.choice(list("abc"), 2500)})
    table = table.append_column("class", pa.array(rng.choice(["no", "yes"], 2500, p=[0.6, 0.4])))
    model = drive(learner(name, {}, "class"), Source.of_table(table))
    assert not model.members, "noise with many values gets no weight"
    for rows in (table.slice(0, 9), table.slice(0, 9).drop_columns(["id"])):
        chunk = encode(rows, model.schema)
        low, high = model.credible_intervals(chunk)
        p = model.predict_proba(chunk)
        assert (low <= p).all() and (p <= high).all() and p == pytest.approx(np.tile(p[0], (9, 1)), abs=0.1)
    with pytest.raises(InvalidParameter, match="no column says anything of the class"):
        model.member_structure(0)
