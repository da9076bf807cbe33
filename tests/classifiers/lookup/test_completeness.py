"""Rows with nulls: which of them look-ups answer, how much work they are, and that it does not follow the number of their patterns."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import ESKDB, KDB
from learners.classifiers.lookup import completeness, elimination, look_up_tables
from learners.classifiers.lookup.elimination import Elimination
from learners.ensembles.joint_members import Joints
from learners.ensembles.model import EnsembleModel
from learners.kernels.arrays import read_only_array
from learners.schema import Chunk
from learners.schema.encoding.encode import encode

N_COLUMNS = 30


def table(n_rows, seed, share=0.2):
    """Columns that follow from the class and from one another, half of them with independent nulls."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, n_rows)
    columns, last = {}, y
    for i in range(N_COLUMNS):
        last = np.where(random.random(n_rows) < 0.8, random.integers(0, 4, n_rows), (last + y + i) % 4)
        mask = random.random(n_rows) < share if i % 2 else None
        columns[f"c{i}"] = pa.array(last.astype(str), mask=mask)
    return pa.table({**columns, "class": y.astype(str)})


@pytest.fixture(scope="module", params=[lambda: KDB(k=2), lambda: ESKDB(members=2)], ids=["kdb", "eskdb"])
def model(request):
    return request.param().fit(table(3000, 0), "class").model_


def rows_of(model, n_rows, seed=1, share=0.2):
    (batch,) = table(n_rows, seed, share).combine_chunks().to_batches()
    return encode(batch, model.schema)


@pytest.fixture
def work(monkeypatch):
    """Counts calls of the kernels that look rows up, the terms that they add, and the rows that are summed out."""
    counts = {"look-ups": 0, "terms": 0, "summed": 0}
    look_up, log_joint = look_up_tables.look_up_class_probabilities, Elimination.log_joint
    list_sums = elimination.list_sums

    def counted(*arguments):
        tables, _, first, last, *_ = arguments
        counts["look-ups"] += 1
        counts["terms"] += (last - first) * tables.attribute.size
        look_up(*arguments)

    def listed(*arguments):
        _, _, sizes, rows_and_sums, n_families, _, n_missing, missing, *_ = arguments
        each = [sizes[part].prod() for part in np.split(missing, np.cumsum(n_missing)[:-1])] * n_families
        of_kinds = np.split(each, np.cumsum(rows_and_sums[:, 1])[:-1])
        counts["look-ups"] += 1
        counts["terms"] += sum(n * own.sum() for n, own in zip(rows_and_sums[:, 0], of_kinds, strict=True))
        list_sums(*arguments)

    def summed(self, x, *more):
        counts["summed"] += x.shape[1]
        return log_joint(self, x, *more)

    monkeypatch.setattr(look_up_tables, "look_up_class_probabilities", counted)
    monkeypatch.setattr(elimination, "list_sums", listed)
    monkeypatch.setattr(Elimination, "log_joint", summed)
    return counts


def test_the_work_does_not_follow_the_number_of_patterns(model, work):
    for n_rows in (500, 4000):
        rows = rows_of(model, n_rows, seed=2)
        patterns = np.unique(np.packbits(rows.x == 0, axis=0), axis=1).shape[1]
        assert patterns > n_rows // 2
        work.update({"look-ups": 0, "summed": 0})
        model.predict_proba(rows, threads=1)
        assert work["summed"] <= n_rows // 50
        assert work["look-ups"] <= 40 + 40 * work["summed"]


def test_a_column_that_all_rows_lack_is_summed_out_together(model, work):
    """It makes one pattern: nulls that are sure to be values make no more."""
    x = np.array(rows_of(model, 1000, seed=2).x)
    x[2] = model.schema.domain_sizes[2]
    x.setflags(write=False)
    model.predict_proba(Chunk(x[:, :1], None))  # what is made once
    work.update({"look-ups": 0, "summed": 0})
    model.predict_proba(Chunk(x, None), threads=1)
    n_joints = len(model.joints.models) if isinstance(model, EnsembleModel) else 1
    unsure = work["summed"] - 1000 * n_joints
    assert 0 <= unsure <= 500 * n_joints
    assert work["look-ups"] <= 60 * n_joints + 40 * unsure


def test_rows_that_each_lack_something_else_share_their_sums(model, work):
    """Two or three of the columns have values that training never saw, or are not known, in thousands of patterns."""
    n_calls, n_terms = [], []
    for n_rows in (500, 4000):
        random, x = np.random.default_rng(3), np.array(rows_of(model, n_rows, share=0.0).x)
        for row in range(n_rows):
            lacking = random.choice(N_COLUMNS, 2 + row % 2, replace=False)
            x[lacking, row] = model.schema.domain_sizes[lacking]
        x.setflags(write=False)
        patterns = np.unique(np.packbits(x >= model.schema.domain_sizes[:, np.newaxis], axis=0), axis=1).shape[1]
        assert patterns > n_rows // 2
        work.update({"look-ups": 0, "terms": 0, "summed": 0})
        model.predict_proba(Chunk(x, None), threads=1)
        n_calls.append(work["look-ups"])
        n_terms.append(work["terms"])
    n_joints = len(model.joints.models) if isinstance(model, EnsembleModel) else 1
    assert n_calls[0] <= 2 * 500 * n_joints
    assert n_calls[1] <= 3 * n_calls[0], "for eight times as many rows and patterns"
    assert n_terms[1] <= 10 * n_terms[0]


def test_nulls_as_usual_are_read_as_values_with_nothing_lost(model, monkeypatch):
    rows = rows_of(model, 1500)
    answers = model.predict_proba(rows)
    monkeypatch.setattr(completeness, "SURE", 2.0)  # never sure
    monkeypatch.setattr(completeness, "LIKELY", 2.0)
    mixed = model.predict_proba(rows)
    of_class = np.arange(rows.n_rows), rows.y
    assert abs(answers - mixed).mean() < 0.002
    assert -np.log(answers[of_class]).mean() == pytest.approx(-np.log(mixed[of_class]).mean(), rel=0.005)


def test_each_row_is_answered_in_one_of_three_ways(model, monkeypatch):
    """Nulls as values alone; as the mean with what look-ups tell of them hidden; or with what a sum tells."""
    rows = rows_of(model, 300, share=0.8)
    answers, distances = model.predict_proba(rows), []
    for sure, likely in ((0.0, 0.0), (2.0, 0.0), (2.0, 2.0)):
        monkeypatch.setattr(completeness, "SURE", sure)
        monkeypatch.setattr(completeness, "LIKELY", likely)
        distances.append(np.abs(model.predict_proba(rows) - answers).max(axis=1))
    assert np.min(distances, axis=0) == pytest.approx(np.zeros(300), abs=1e-12)
    ways = np.argmin(distances, axis=0)
    assert np.bincount(ways, minlength=3).min() >= 3


def test_rows_are_answered_alike_alone_and_together(model):
    """Rows that lack nothing, nulls, absent and unseen values side by side."""
    x = np.array(rows_of(model, 60).x)
    x[2, ::3] = model.schema.domain_sizes[2]
    x[:, ::7] = np.maximum(x[:, ::7], 1)
    x.setflags(write=False)
    together = model.predict_proba(Chunk(x, None))
    alone = np.concatenate([model.predict_proba(Chunk(x[:, [i]], None)) for i in range(60)])
    assert together == pytest.approx(alone, abs=1e-9)


def wide_table(n_rows, seed, n_values):
    """Columns that follow from a wide one, and the class from all."""
    random = np.random.default_rng(seed)
    wide = random.integers(0, n_values, n_rows)
    columns = {f"c{i}": (wide * (i + 3) + random.integers(0, 4, n_rows)) // 5 % 6 for i in range(10)}
    y = (wide + sum(columns.values()) + random.integers(0, 3, n_rows)) // 9 % 3
    return pa.table({"wide": pa.array(wide.astype(str)), **columns, "class": y.astype(str)})


def test_a_row_alone_is_read_once_for_both_readings_of_its_nulls(model, work, monkeypatch):
    """What they hide is summed out beside the row itself: one call of a kernel for each network that sums."""
    n_joints = len(model.joints.models) if isinstance(model, EnsembleModel) else 1
    monkeypatch.setattr(completeness, "SURE", 2.0)  # never sure
    monkeypatch.setattr(completeness, "LIKELY", 2.0)
    rows = rows_of(model, 60)
    n_nulls = (rows.x == 0)[completeness.Completeness(model.schema, [], range(N_COLUMNS)).nullable].sum(axis=0)
    some = np.flatnonzero((n_nulls > 0) & (n_nulls <= 3))
    assert some.size > 10
    model.predict_proba(rows)  # what is made once
    for row in some:
        work.update({"look-ups": 0, "summed": 0})
        model.predict_proba(Chunk(read_only_array(rows.x[:, [row]]), None))
        assert work["summed"] == 2 * n_joints
        assert work["look-ups"] <= 2 + n_joints


def two_wide_columns(n_rows, seed, n_values):
    """The columns of `wide_table`, and one that follows from the wide one and is as wide."""
    table = wide_table(n_rows, seed, n_values)
    noise = np.random.default_rng(seed + 100).integers(0, 3, n_rows)
    other = (np.array(table["wide"].to_pylist(), np.int64) + noise) % n_values
    return table.append_column("other", pa.array(other.astype(str)))


def test_the_work_of_values_never_seen_does_not_follow_the_width_of_their_column(work, monkeypatch):
    """Where the ensemble gives the greater part of an answer: a sum would read each value of the column, in each of its children."""
    model = ESKDB(members=2).fit(wide_table(20_000, 0, 900), "class").model_
    wide = [attribute.name for attribute in model.schema.attributes].index("wide")
    assert any(wide in parents for parents in model.joint.network.parents)
    answers, terms = [], []
    for share, of_large in ((0.6, 1 << 20), (0.5, elimination.MOST_ENTRIES), (0.5, 1 << 20)):
        monkeypatch.setattr(elimination, "MOST_OF_LARGE", of_large)
        monkeypatch.setattr(Joints, "share_of_ensemble", lambda _, x, share=share: np.full((x.shape[1], 1), share))
        for n_rows in (100, 400):
            (batch,) = wide_table(n_rows, 1, 900).combine_chunks().to_batches()
            x = np.array(encode(batch, model.schema).x)
            x[wide] = model.schema.domain_sizes[wide]
            work.update({"terms": 0})
            answers.append(model.predict_proba(Chunk(read_only_array(x), None), threads=1))
            terms.append(work["terms"])
    assert terms[1] <= 400 * 2 * 2 * x.shape[0], "one look-up for each family of two members and of their joint members"
    assert terms[1] == 4 * terms[0]
    assert terms[2:4] == terms[:2], "the same where the ensemble gives a quarter, and a sum would read very much"
    assert terms[5] > 10 * terms[1], "of a sum for each row"
    assert abs(answers[1] - answers[5]).mean() < 0.1


def test_the_work_of_intervals_does_not_follow_the_width_of_unseen_columns(work, monkeypatch):
    """Two wide columns with values never seen: where the ensemble gives more than a quarter, intervals look their sums up."""
    model = ESKDB(members=2).fit(two_wide_columns(20_000, 0, 300), "class").model_
    wide = [place for place, attribute in enumerate(model.schema.attributes) if attribute.name in ("wide", "other")]
    assert any(set(wide) & set(parents) for parents in model.joint.network.parents)
    (batch,) = two_wide_columns(50, 1, 300).combine_chunks().to_batches()
    x = np.array(encode(batch, model.schema).x)
    x[wide] = model.schema.domain_sizes[wide, np.newaxis]
    rows, terms, widths = Chunk(read_only_array(x), None), [], []
    monkeypatch.setattr(elimination, "MOST_OF_LARGE", elimination.MOST_ENTRIES)
    for share in (0.6, 0.6, 0.4, 0.2):  # what is made once, first
        monkeypatch.setattr(Joints, "share_of_ensemble", lambda _, x, share=share: np.full((x.shape[1], 1), share))
        work.update({"terms": 0})
        low, high = model.credible_intervals(rows)
        terms.append(work["terms"])
        widths.append((high - low).mean())
    assert terms[1] == terms[2] <= 50 * 16 * len(x), (
        "look-ups alone: of members and joint members, and of their variances"
    )
    assert terms[3] > 10 * terms[2], "of sums"
    assert np.isfinite(widths).all() and min(widths) > 0.0
