"""A champion is replaced by a rule, and a refresh looks at the data before it trains."""

import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.schema import Attribute, Schema
from service import product
from service.product.promotion import Measured, Quarantined, promotion_verdict
from service.product.submission.prechecks import check_job_request
from service.requests.problems import InvalidRequest
from service.requests.requests import PromotionRule, RefreshRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.monitoring import problems
from tests.service.asking import training
from tests.service.product.conftest import run_refresh
from tests.support.passes import write
from tests.support.product import request_of


def joint(version, log_likelihood, n_impossible=0, cuts=(0.0,), columns="ab"):
    """A version without classes that was measured."""
    schema = Schema(tuple(Attribute(name, "numeric", cuts=cuts) for name in columns), None, ("",))
    found = {"log_likelihood": log_likelihood, "n_impossible": n_impossible, "n_test_rows": 500}
    return Measured(version, found, schema=schema)


def test_versions_without_a_class_are_compared_by_likelihood(workspace, folder):
    train = request_of(folder, target=None, learner="spn", parameters={"learning": "em", "passes": 1})
    check_job_request(workspace, RefreshRequest(train=train), is_remote=False)
    assert run_refresh(workspace, train)["promotion"]["is_promoted"]
    write(folder, 5)
    second = run_refresh(workspace, train)["promotion"]
    new, old = (second[f"{which}_metrics"]["log_likelihood"] for which in ("challenger", "champion"))
    assert second["is_promoted"] is (new >= old)
    assert f"log_loss {-new:.6g} against {-old:.6g}" in second["reason"]


def is_promoted(challenger, champion, **rule):
    return promotion_verdict(PromotionRule(**rule), challenger, champion).is_promoted


def test_a_row_that_is_impossible_costs_more_than_any_other():
    assert is_promoted(joint(2, -3.0), joint(1, -4.0))
    assert not is_promoted(joint(2, -4.0), joint(1, -3.0))
    assert not is_promoted(joint(2, -1.0, n_impossible=1), joint(1, -3.0))
    assert is_promoted(joint(2, -3.0), joint(1, -1.0, n_impossible=1))
    assert not is_promoted(joint(2, math.nan), joint(1, -3.0))
    # A joint model has the absolute floor alone.
    assert is_promoted(joint(2, -30.0), None) and not is_promoted(joint(2, -30.0), None, max_loss=20.0)


def test_versions_that_predict_different_columns_are_not_compared():
    found = {"log_loss": 9.0, "rmse": 0.5, "ece": 0.1, "n_test_rows": 500}
    y, z = (Measured(1, found, schema=Schema((), target, ("no", "yes"))) for target in "yz")
    better = joint(2, -3.0)
    for challenger, champion, words in (
        (better, y, "version 2 predicts no class and version 1 predicts y"),
        (y._replace(version=2), joint(1, -30.0), "version 2 predicts y and version 1 predicts no class"),
        (y._replace(version=2, metrics=found | {"log_loss": 0.1}), z, "version 2 predicts y and version 1 predicts z"),
    ):
        verdict = promotion_verdict(PromotionRule(beats_prior=False), challenger, champion)
        assert not verdict.is_promoted
        assert f"version 1 stays champion: the two cannot be compared by log_loss, because {words}" in verdict.reason


def test_likelihoods_are_compared_over_the_same_columns_only():
    """A row of fewer columns is more probable, however bad the model is."""
    verdict = promotion_verdict(PromotionRule(), joint(2, -1.0, columns="a"), joint(1, -3.0))
    assert not verdict.is_promoted and "because only one has b, " in verdict.reason
    verdict = promotion_verdict(PromotionRule(), joint(2, -1.0, cuts=(0.0, 1.0)), joint(1, -3.0))
    assert (
        verdict.is_promoted and "; a, b differ in their intervals, which changes the log likelihood" in verdict.reason
    )
    assert "intervals" not in promotion_verdict(PromotionRule(), joint(2, -1.0), joint(1, -3.0)).reason


def measured(version, log_loss, floor=math.log(2)):
    """A version with classes that was measured."""
    found = {"log_loss": log_loss, "rmse": 0.5, "zero_one_loss": 0.3, "ece": 0.1, "n_test_rows": 500}
    return Measured(version, found, of_class_shares={"log_loss": floor})


def test_the_decision_says_how_many_rows_have_a_class_that_a_version_does_not_know():
    known = {"log_loss": 0.5, "ece": 0.1, "n_test_rows": 2_000}
    new, old = Measured(2, known | {"n_unknown_class_rows": 3}), Measured(1, known | {"n_unknown_class_rows": 1_200})
    told = promotion_verdict(PromotionRule(), new, old)
    assert told.is_promoted
    assert told.reason.endswith(
        "; 3 of 2,000 rows have a class that version 2 does not know, and count as wrong"
        "; 1,200 of 2,000 rows have a class that version 1 does not know, and count as wrong"
    )
    assert "does not know" not in promotion_verdict(PromotionRule(), Measured(2, known), Measured(1, known)).reason


@pytest.mark.parametrize("champion", [None, measured(1, 0.9)])
def test_no_version_below_the_floor_is_promoted_whatever_the_champion_is(champion):
    told = promotion_verdict(PromotionRule(), measured(2, 0.765), champion)
    assert not told.is_promoted
    assert told.reason.endswith("version 2 has log_loss 0.765, worse than the class shares alone (0.693147)")
    assert is_promoted(measured(2, 0.765), champion, beats_prior=False)
    assert is_promoted(measured(2, math.log(2)), champion), "a tie is not worse"
    told = promotion_verdict(PromotionRule(max_loss=0.5), measured(2, 0.6), champion)
    assert not told.is_promoted
    assert told.reason.endswith("version 2 has log_loss 0.6, above the allowed 0.5")
    assert is_promoted(measured(2, 0.5), champion, max_loss=0.5)


def test_a_version_of_coin_flips_becomes_nobodys_champion(workspace, folder):
    """A night of labels by chance: what learned them fits noise, and is worse than knowing nothing."""
    rng = np.random.default_rng(0)
    columns = {name: rng.choice(list("abcdefgh"), 600) for name in "uvw"}
    pq.write_table(pa.table(columns | {"class": rng.choice(["no", "yes"], 600)}), folder.parent / "chance.parquet")
    train = request_of(folder, uris=[str(folder.parent / "chance.parquet")], columns={}, parameters={"k": 2, "m": 0.1})
    told = run_refresh(workspace, train)["promotion"]
    assert not told["is_promoted"]
    assert "champion stays unset: version 1 has log_loss" in told["reason"]
    assert told["challenger_metrics"]["log_loss"] > told["challenger_metrics"]["log_loss_of_class_shares"]
    assert product.aliases_of(workspace, "daily") == {}
    (kept,) = product.list_promotions(workspace, "daily").items
    assert kept.reason == told["reason"] and kept.rule["beats_prior"] is True


@pytest.mark.parametrize("metric", ["rmse", "zero_one_loss"])
def test_a_metric_of_classes_is_refused_at_once_where_there_are_none(workspace, folder, metric):
    train = request_of(folder, target=None, learner="spn", parameters={})
    with pytest.raises(InvalidRequest, match=f"A model without a target has no {metric}"):
        check_job_request(workspace, RefreshRequest(train=train, promotion={"metric": metric}), is_remote=False)


def test_a_damaged_champion_stays_and_the_decision_says_why(workspace, folder):
    """Else a refresh would fail each night, and nobody would read of it among the decisions."""
    train = request_of(folder, learner="nb", parameters={"m": 1.0})
    run_refresh(workspace, train)
    compiled = product.find_version(workspace, "daily@1").arrow_path
    compiled.chmod(0o644)
    compiled.write_bytes(b"junk")
    told = run_refresh(workspace, train)["promotion"]
    assert not told["is_promoted"]
    assert "version 1 stays champion: version 1 could not be measured" in told["reason"]
    assert "is damaged" in told["reason"]
    assert product.aliases_of(workspace, "daily") == {"champion": 1}


@pytest.mark.parametrize("is_kept_back", [True, False])
def test_rows_that_decide_are_read_as_the_model_reads_them(workspace, tmp_path, is_kept_back):
    """Files of a rare dialect, and rows without a class."""
    rng = np.random.default_rng(0)
    for name in ("train", "test"):
        y = rng.integers(0, 2, 400)
        rows = [
            f"{'uv'[(k + (rng.random() < 0.1)) % 2]}^{['no', 'yes', ''][k if row % 9 else 2]}"
            for row, k in enumerate(y)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["word^class", *rows]) + "\n")
    columns = {"*": {"delimiter": "^"}, "class": {"null_class": "drop"}}
    where = {} if is_kept_back else {"test_uris": [str(tmp_path / "test.csv")], "holdout": 0}
    train = request_of(tmp_path / "train.csv", columns=columns, learner="nb", parameters={}, **where)
    told = run_refresh(workspace, train, promotion={"min_rows": 10})["promotion"]
    assert told["is_promoted"] and told["challenger_metrics"]["log_loss"] < 0.5, told["reason"]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(problems.rows(6000, 1), tmp_path / "data/0.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as opened:
        yield opened, tmp_path / "data"


def refresh(workspace, folder, **more):
    return run_refresh(workspace, training(folder, "towns", "kdb", parameters={"k": 1}, holdout=0.2), **more)


def add(folder, table, number):
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    os.utime(path, (2_000_000_000 + number, 2_000_000_000 + number))


def test_broken_data_is_kept_from_training_until_a_person_says_so(place):
    workspace, folder = place
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 1
    add(folder, problems.rows(3000, 2), 1)
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 2
    table = problems.rows(3000, 3)
    add(folder, table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100)), 2)
    with pytest.raises(Quarantined, match=r"2\.parquet differs so much .* size has numbers outside the range"):
        refresh(workspace, folder, quarantine_points=1.0)
    assert [one.version for one in product.list_versions(workspace, "towns").items] == [2, 1]
    assert refresh(workspace, folder)["version"] == 3


def test_a_broken_file_is_found_although_a_good_one_came_after_it(place):
    workspace, folder = place
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 1
    table = problems.rows(3000, 3)
    add(folder, table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100)), 1)
    add(folder, problems.rows(3000, 2), 2)
    with pytest.raises(Quarantined, match=r"1\.parquet differs so much .* size has numbers outside the range"):
        refresh(workspace, folder, quarantine_points=1.0)


def test_only_what_has_become_more_frequent_is_broken(place):
    workspace, folder = place
    weight = problems.rows(6000, 1)["weight"].to_numpy(zero_copy_only=False)
    table = problems.rows(6000, 1)
    sparse = pa.array(weight, mask=np.arange(6000) % 5 == 0, from_pandas=True)
    pq.write_table(table.set_column(1, "weight", sparse), folder / "0.parquet")
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 1
    add(folder, problems.rows(3000, 2), 1)
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 2, "fewer values are missing"


def test_classes_that_the_champion_does_not_know_are_broken_data(place):
    workspace, folder = place
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 1
    table = problems.rows(3000, 2)
    names = np.char.upper(table["class"].to_numpy(zero_copy_only=False).astype(str))
    add(folder, table.set_column(table.column_names.index("class"), "class", pa.array(names)), 1)
    with pytest.raises(Quarantined, match=r"class has values that training never saw in more rows \(\+100"):
        refresh(workspace, folder, quarantine_points=1.0)


def test_without_drift_nothing_is_trained(place):
    workspace, folder = place
    assert refresh(workspace, folder, when="drift")["version"] == 1, "there is no champion to keep"
    done = refresh(workspace, folder, when="drift")
    assert done["is_skipped"] and "the data of version 1 has not changed" in done["reason"]
    assert len(product.list_versions(workspace, "towns").items) == 1
