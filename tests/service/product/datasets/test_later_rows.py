"""Rows kept back by time, by order or at random: which are learned, what is said, and that each step means the same rows."""

import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.errors import EmptyData, SchemaError
from service import product
from service.product import train_steps
from service.product.versions.provenance import kept_back
from service.requests.problems import InvalidRequest
from service.requests.requests import ForgetRequest
from tests.service.asking import model_of, training
from tests.support.registry import rush_hours
from tests.support.registry import table as hourly_table

N = 2_000
START = datetime.datetime(2026, 1, 1)


def table(first=0, n_rows=N, turns=True):
    """Rows an hour apart, whose class goes with `a`, and the other way round in the last quarter of 2,000 where it turns."""
    random = np.random.default_rng(first)
    hours = np.arange(first, first + n_rows)
    a = random.integers(0, 2, n_rows)
    is_turned = (hours >= 0.75 * N) & turns
    y = np.where(random.random(n_rows) < 0.9, a ^ is_turned, 1 - (a ^ is_turned))
    moments = [START + datetime.timedelta(hours=int(hour)) for hour in hours]
    return pa.table({"when": moments, "id": hours, "a": a.astype(str), "y": np.array(["no", "yes"])[y]})


@pytest.fixture
def chosen(monkeypatch):
    """Every choice of rows of a training."""
    found = []
    select = train_steps.select_training_rows

    def recording(*arguments):
        found.append(select(*arguments))
        return found[-1]

    monkeypatch.setattr(train_steps, "select_training_rows", recording)
    return found


def train(workspace, path, **more):
    warned = []
    request = training(path, target="y", columns={"id": "drop"}, **more)
    version, _ = product.train_and_report_passes(workspace, request, lambda _: None, warned.append)
    return version, warned


def ids(source):
    return sorted(value for batch in source.batches(["id"]) for value in batch.column(0).to_pylist())


def require_parts(version, chosen, learned, kept_back, is_learned=True):
    """`is_learned`: the rows kept back are learned once the model was measured on them."""
    assert ids(chosen[0].learned.source) == learned and ids(chosen[-1].kept_back) == kept_back
    n_learned = len(learned) + (len(kept_back) if is_learned else 0)
    assert (version.n_rows, version.metrics["n_test_rows"]) == (n_learned, len(kept_back))
    assert ids(chosen[-1].learned.source) == sorted(learned + kept_back if is_learned else learned)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_the_newest_rows_are_kept_back_where_they_are_predicted_worse(ending, workspace, tmp_path, chosen):
    shuffled = table().take(np.random.default_rng(0).permutation(N))
    if ending == "csv":
        shuffled.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    else:
        pq.write_table(shuffled, tmp_path / "t.parquet", row_group_size=300)
    version, warned = train(workspace, tmp_path / f"t.{ending}")
    require_parts(version, chosen, list(range(1_600)), list(range(1_600, 2_000)))
    assert version.metrics["evaluated_on"] == "newest rows, learned afterwards"
    words = [text for text in warned if "measured on the newest ones by 'when' (after 2026-03-08T15:00:00)" in text]
    assert len(words) == 1 and "--holdout-by random" in words[0] and "for rows at random" in words[0]


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_rows_later_than_training_are_told_by_a_column_that_was_left_out(ending, workspace, tmp_path):
    def written(name, rows):
        path = str(tmp_path / f"{name}.{ending}")
        rows.to_pandas().to_csv(path, index=False) if ending == "csv" else pq.write_table(rows, path)
        return path

    moments = [START + datetime.timedelta(days=int(hour) // 20) for hour in range(N)]
    rows = table().set_column(0, "when", pa.array(moments, pa.timestamp("s")))
    version, _ = train(workspace, written("t", rows))
    learned = {one.name for one in model_of(version).schema.attributes}
    assert "when" not in learned
    later = rows.slice(0, 200).set_column(0, "when", pa.array([datetime.datetime(2027, 1, 1)] * 200, pa.timestamp("s")))
    paths = {"later": written("later", later), "mixed": written("mixed", pa.concat_tables([later, rows.slice(0, 5)]))}
    words = "All rows are later than those the model learned from: 'when' ended at 2026-04-10 in training and begins at 2027-01-01 here"
    for name, path in paths.items():
        warned = []
        product.predict_files(workspace, "m", [path], tmp_path / f"{name}.scored.parquet", warn=warned.append)
        evaluated = product.evaluate_versions(workspace, ["m", "m"], [path])
        page = tmp_path / f"{name}.html"
        of_report = []
        product.write_version_report(workspace, "m", [path], page, warn=of_report.append)
        is_told = [any(words in text for text in some) for some in (warned, evaluated.get("warnings", []), of_report)]
        assert is_told == [name == "later"] * 3, (name, warned, evaluated, of_report)


def test_where_they_agree_or_where_it_is_asked_rows_are_kept_back_at_random(workspace, tmp_path, chosen):
    pq.write_table(table(turns=False), tmp_path / "t.parquet")
    version, warned = train(workspace, tmp_path / "t.parquet")
    assert version.metrics["evaluated_on"] == "hold-out" and not any("Later rows" in text for text in warned)
    line = kept_back(version).newest_rows_line()
    losses = re.match(
        r"naive Bayes and kDB, .* log loss of ([\d.]+) on the newest rows by 'when' and of ([\d.]+) on random ones;",
        line,
    )
    assert losses is not None and float(losses[1]) < 1.1 * float(losses[2])
    at_random = ids(chosen[-1].kept_back)
    pq.write_table(table(), tmp_path / "u.parquet")
    version, warned = train(workspace, tmp_path / "u.parquet", model="u", holdout_by="random")
    assert version.metrics["evaluated_on"] == "hold-out" and not any("predicted worse" in text for text in warned)
    assert kept_back(version).newest_rows_line() == "", "nothing was compared"
    assert 300 < len(at_random) < 500 and at_random[0] < 100


def test_the_last_rows_are_kept_back_where_that_is_asked_and_pointed_at_where_not(workspace, tmp_path, chosen):
    for part, (first, n_rows) in enumerate([(0, 1_500), (1_500, 500)]):
        pq.write_table(table(first, n_rows).drop_columns(["when"]), tmp_path / f"{part}.parquet", row_group_size=400)
    version, warned = train(workspace, tmp_path)
    assert version.metrics["evaluated_on"] == "hold-out"
    assert any("The last rows in the given order" in text and "--holdout-by order" in text for text in warned)
    chosen.clear()
    version, _ = train(workspace, tmp_path, holdout_by="order")
    require_parts(version, chosen, list(range(1_600)), list(range(1_600, 2_000)))
    assert version.metrics["evaluated_on"] == "last rows, learned afterwards"


def regimes(n_rows=6_000):
    """Rows whose odds go with `a`, and with the level of their 168, of which none tells anything of the next."""
    random = np.random.default_rng(0)
    a = random.integers(0, 4, n_rows)
    odds = 1.2 * (a - 1.5) + np.random.default_rng(3).normal(0, 2.5, n_rows)[np.arange(n_rows) // 168]
    y = np.where(random.random(n_rows) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return pa.table({"ticket": 7 * np.arange(n_rows), "a": a.astype(str), "y": y})


@pytest.mark.parametrize("learner", ["kdb", "auto"])
def test_running_numbers_are_left_out_where_the_order_of_rows_shows_what_they_are(learner, workspace, tmp_path):
    rows, folder = regimes(), tmp_path / "rows"
    folder.mkdir()
    for part in range(2):
        pq.write_table(rows.slice(3_000 * part, 3_000), folder / f"{part}.parquet")
    request = training(folder, target="y", learner=learner, update=True)
    version, _ = product.train_and_report_passes(workspace, request, lambda _: None, (warned := []).append)
    assert version.metrics["evaluated_on"] == "hold-out"
    words = "decide whether 'ticket', which grows with them, is used"
    assert any(words in text for text in warned) and any(
        "'ticket' is left out: it only goes on" in text for text in warned
    )
    done = product.forget_rows(workspace, ForgetRequest(model=request.model, where="a = '1' and ticket < 7000"))
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
    shuffled = rows.take(np.random.default_rng(1).permutation(rows.num_rows))
    pq.write_table(shuffled, folder / "0.parquet")
    (folder / "1.parquet").unlink()
    warned.clear()
    product.train_and_report_passes(
        workspace, training(folder, target="y", learner=learner, model="s"), lambda _: None, warned.append
    )
    assert not any("it only goes on" in text or "predicted worse" in text for text in warned)


def test_a_part_of_times_is_kept_by_refreshes_and_what_is_forgotten(workspace, tmp_path):
    folder = tmp_path / "rows"
    folder.mkdir()
    rows = hourly_table(rush_hours)
    pq.write_table(rows.slice(0, 5_000), folder / "0.parquet")
    request = training(folder, target="late", learner="kdb", update=True)
    product.train_model_version(workspace, request)
    pq.write_table(rows.slice(5_000), folder / "1.parquet")
    _, _ = product.train_and_report_passes(workspace, request, lambda _: None, (warned := []).append)
    assert any("'when' is learned by its hour alone" in text for text in warned)
    done = product.forget_rows(workspace, ForgetRequest(model=request.model, where="a = 3"))
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]


def test_rows_that_come_later_move_none_back(workspace, tmp_path, chosen):
    """An update learns what was kept back before; no row that was learned is measured on."""
    pq.write_table(table(), tmp_path / "0.parquet")
    train(workspace, tmp_path, update=True, holdout_by="time")
    before = ids(chosen[0].learned.source)
    pq.write_table(table(N, 500), tmp_path / "1.parquet")
    chosen.clear()
    version, _ = train(workspace, tmp_path, update=True, holdout_by="time")
    require_parts(version, chosen, list(range(2_000)), list(range(2_000, 2_500)), is_learned=False)
    assert set(before) < set(ids(chosen[0].learned.source))


def test_times_that_are_not_there_are_asked_for_in_one_sentence(workspace, tmp_path):
    pq.write_table(table().drop_columns(["when"]), tmp_path / "t.parquet")
    with pytest.raises(InvalidRequest, match=r"No column has dates or timestamps: use --holdout-by order"):
        train(workspace, tmp_path / "t.parquet", holdout_by="time")
    same = table().set_column(0, "when", pa.array([START] * N))
    pq.write_table(same, tmp_path / "u.parquet")
    with pytest.raises(InvalidRequest, match="All rows have the same time in 'when'"):
        train(workspace, tmp_path / "u.parquet", holdout_by="time")


@pytest.mark.parametrize("n_far", [1, 3])
def test_a_window_emptied_by_a_wrong_time_says_so(n_far, workspace, tmp_path):
    rows = table(n_rows=N - 20)
    far = table(N, n_far).set_column(0, "when", pa.array([datetime.datetime(2099, 1, 1)] * n_far))
    far = far.set_column(3, "y", pa.array(["yes", "no", "yes"][:n_far]))
    pq.write_table(pa.concat_tables([rows, far]), tmp_path / "t.parquet")
    words = f"The window 30d keeps {n_far} of {N - 20 + n_far:,} rows: the newest time in 'when' is 2099-01-01"
    how = {"learner": "nb", "window": "30d", "timestamp": "when"}
    if n_far == 1:
        with pytest.raises(SchemaError, match=f"has only one class.*{words}"):
            train(workspace, tmp_path / "t.parquet", **how, holdout=0)
        return
    version, warned = train(workspace, tmp_path / "t.parquet", **how, holdout=0)
    assert version.n_rows == n_far and [text for text in warned if words in text]
    with pytest.raises(InvalidRequest, match=f"All rows have the same time in 'when'.*{words}"):
        train(workspace, tmp_path / "t.parquet", **how, holdout_by="time")
    with pytest.raises(
        EmptyData, match=f"no rows to measure the model on.*{words}"
    ):  # kept back at random: none of three
        train(workspace, tmp_path / "t.parquet", **how, holdout=1e-6)
    _, warned = train(workspace, tmp_path / "t.parquet", **how | {"window": "4000w"}, holdout=0)
    assert not any("window" in text for text in warned)
