"""Refreshes of one model at the same time, with a retention that keeps next to nothing."""

import pytest

from service import product
from service.jobs.steps import Run, ignore_report, run_job_steps
from service.product import promotion
from service.requests.requests import EvaluateRequest, RefreshRequest

pytestmark = [pytest.mark.faults, pytest.mark.usefixtures("weather_set")]

TRAIN = {"dataset": "weather", "learner": "nb", "parameters": {"m": 1.0}, "model": "weather"}
REFRESH = RefreshRequest(train=TRAIN, promotion={"margin": -1, "max_ece_increase": None})


class Refresh:
    """A submitted refresh whose steps are made here, as its worker would."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.id = product.submit_job(workspace, REFRESH, is_remote=False)[0].id
        steps = dict(product.job_steps_by_kind(workspace)["refresh"])
        del steps["decide"]
        self.published = run_job_steps(steps, self.id, REFRESH.model_dump(), ignore_report)

    def decide(self):
        run = Run(self.id, REFRESH.model_dump(), {"publish": self.published}, ignore_report)
        return promotion.decide_promotion(self.workspace, run)

    def end(self):
        product.job_queue(self.workspace).cancel(self.id)


def numbers(workspace):
    return [version.version for version in product.list_versions(workspace, "weather").items]


def test_a_refresh_removes_no_version_that_another_is_comparing(workspace):
    first = Refresh(workspace)
    first.decide()
    first.end()
    product.set_retention(workspace, "weather", 1)
    slow, quick, newest = (Refresh(workspace) for _ in range(3))
    assert quick.decide()["promotion"]["is_promoted"]
    # 1 was replaced; 2 waits for its own decision, 4 is the newest.
    assert numbers(workspace) == [4, 3, 2]
    assert slow.decide()["promotion"]["is_promoted"] and product.aliases_of(workspace, "weather") == {"champion": 2}
    assert numbers(workspace) == [4, 3, 2]  # the job of 3 has decided, but not ended
    for refresh in (slow, quick):
        refresh.end()
    assert newest.decide()["pruned"] == [3, 2]
    assert numbers(workspace) == [4]


def test_a_version_that_a_waiting_job_names_stays(workspace):
    for _ in range(3):
        Refresh(workspace).end()
    job, _ = product.submit_job(workspace, EvaluateRequest(model="weather@2", dataset="weather"), is_remote=False)
    assert product.prune_model_versions(workspace, "weather", 1) == [1]
    product.job_queue(workspace).cancel(job.id)
    assert product.prune_model_versions(workspace, "weather", 1) == [2]


def test_a_champion_that_is_replaced_and_removed_while_it_is_opened_is_decided_anew(workspace, monkeypatch):
    for _ in range(3):
        Refresh(workspace).end()
    product.set_alias(workspace, "weather", "champion", 1)
    refresh, opened = Refresh(workspace), promotion.map_model_version

    def late(version):
        if version.version == 1:
            product.set_alias(workspace, "weather", "champion", 2)
            product.delete_version(workspace, "weather", 1)
        return opened(version)

    monkeypatch.setattr(promotion, "map_model_version", late)
    assert refresh.decide()["promotion"]["champion"] == 2
