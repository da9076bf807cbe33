"""Champion and challenger where they cannot be compared by the loss of a class."""

from __future__ import annotations

import math

import pytest

from service import product
from service.jobs.steps import run_now
from service.problems import InvalidRequest
from service.product.promotion import Measured, verdict
from service.product.reports import silent
from service.requests import PromotionRule, RefreshRequest
from tests.passes.test_reuse import write
from tests.service.product.test_refresh import folder, request_of, workspace

__all__ = ["folder", "workspace"]


def joint(version: int, log_likelihood: float, n_impossible: int = 0) -> Measured:
    """A version without classes that was measured."""
    found = {"log_likelihood": log_likelihood, "n_impossible": n_impossible, "n_test_rows": 500}
    return Measured(version, found)


def test_versions_without_a_class_are_compared_by_likelihood(workspace, folder):
    train = request_of(folder, target=None, learner="spn", parameters={"learning": "em", "passes": 1})
    request = RefreshRequest(train=train)
    product.check_request(workspace, request, is_remote=False)
    first = run_now(product.job_kinds(workspace)["refresh"], "local-1", request.model_dump(), silent)
    assert first["promotion"]["is_promoted"]
    write(folder, 5)
    second = run_now(product.job_kinds(workspace)["refresh"], "local-2", request.model_dump(), silent)["promotion"]
    new, old = (second[f"{which}_metrics"]["log_likelihood"] for which in ("challenger", "champion"))
    assert second["is_promoted"] is (new >= old)
    assert f"log_loss {-new:.6g} against {-old:.6g}" in second["reason"]


def test_a_row_that_is_impossible_costs_more_than_any_other():
    rule = PromotionRule()
    assert verdict(rule, joint(2, -3.0), joint(1, -4.0)).is_promoted
    assert not verdict(rule, joint(2, -4.0), joint(1, -3.0)).is_promoted
    assert not verdict(rule, joint(2, -1.0, n_impossible=1), joint(1, -3.0)).is_promoted
    assert verdict(rule, joint(2, -3.0), joint(1, -1.0, n_impossible=1)).is_promoted
    assert not verdict(rule, joint(2, math.nan), joint(1, -3.0)).is_promoted


def test_a_version_without_a_class_is_not_compared_with_one_that_has_it():
    classes = Measured(1, {"log_loss": 9.0, "rmse": 0.5, "ece": 0.1, "n_test_rows": 500})
    for challenger, champion in ((joint(2, -3.0), classes), (classes._replace(version=2), joint(1, -30.0))):
        told = verdict(PromotionRule(), challenger, champion)
        assert not told.is_promoted
        assert "version 1 stays champion: the two cannot be compared by log_loss" in told.reason


@pytest.mark.parametrize("metric", ["rmse", "zero_one_loss"])
def test_a_metric_of_classes_is_refused_at_once_where_there_are_none(workspace, folder, metric):
    train = request_of(folder, target=None, learner="spn", parameters={})
    with pytest.raises(InvalidRequest, match=f"A model without a target has no {metric}"):
        product.check_request(workspace, RefreshRequest(train=train, promotion={"metric": metric}), is_remote=False)


def test_a_damaged_champion_stays_and_the_decision_says_why(workspace, folder):
    """Else a refresh would fail each night, and nobody would read of it among the decisions."""
    request = RefreshRequest(train=request_of(folder, learner="nb", parameters={"m": 1.0}))
    run_now(product.job_kinds(workspace)["refresh"], "local-1", request.model_dump(), silent)
    compiled = product.find_version(workspace, "daily@1").arrow_path
    compiled.chmod(0o644)
    compiled.write_bytes(b"junk")
    told = run_now(product.job_kinds(workspace)["refresh"], "local-2", request.model_dump(), silent)["promotion"]
    assert not told["is_promoted"]
    assert "version 1 stays champion: version 1 could not be measured" in told["reason"]
    assert "is damaged" in told["reason"]
    assert product.aliases_of(workspace, "daily") == {"champion": 1}
