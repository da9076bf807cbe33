"""Trainings that let networks answer until their trees are learned: update, refresh, schedules."""

import numpy as np
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from service import product
from service.cli import app
from service.jobs.steps import STAND_IN, Run, ignore_report
from service.product import train_steps
from service.requests.requests import RefreshRequest, ScheduleRequest
from storage.models import promotions
from storage.models.compiled import map_compiled
from tests.service.product.conftest import run_refresh
from tests.support.passes import write
from tests.support.product import request_of


def of_trees(folder, **more):
    return request_of(folder, **{"learner": "auto", "parameters": {"members": 2}} | more)


def efforts(workspace):
    versions = product.list_versions(workspace, "daily").items
    return {version.version: version.parameters.get("effort") for version in versions}


def arrays(workspace, number):
    header, parts = map_compiled(product.find_version(workspace, f"daily@{number}").arrow_path)
    return header, {name: np.asarray(part) for name, part in parts.items()}


def test_networks_of_an_update_answer_until_the_trees_are_learned(workspace, folder, monkeypatch):
    first = product.train_model_version(workspace, of_trees(folder, aliases=["champion"]))
    write(folder, 5)
    seen, learn = [], train_steps.learn_model

    def watched(*arguments, **more):
        seen.append(dict(product.aliases_of(workspace, "daily")))
        return learn(*arguments, **more)

    monkeypatch.setattr(train_steps, "learn_model", watched)
    version = product.train_model_version(workspace, of_trees(folder, aliases=["champion"], networks_first=True))
    assert seen == [{"champion": 1}, {"champion": 2}] and product.aliases_of(workspace, "daily") == {"champion": 3}
    assert version.version == 3 and version.n_rows > first.n_rows and efforts(workspace) == {3: None, 2: "low", 1: None}
    networks = product.networks_of_job(workspace, "daily", version.job_id)
    assert networks is not None and networks.version == 2 and networks.n_rows == version.n_rows
    assert not list(workspace.layout.scratch.glob(f"*{STAND_IN}"))
    # The same trees as without the networks before them.
    product.train_model_version(workspace, of_trees(folder))
    (header, with_networks), (again, without) = (arrays(workspace, number) for number in (3, 4))
    assert header["facts"] == again["facts"] and with_networks.keys() == without.keys()
    assert all(np.array_equal(with_networks[name], without[name], equal_nan=True) for name in without)
    assert "networks_first" not in product.version_lineage(workspace, "daily@2")["provenance"]["request"]


def test_a_training_killed_after_its_networks_leaves_them_and_goes_on_without_second_ones(
    workspace, folder, monkeypatch
):
    steps = product.job_steps_by_kind(workspace)["train"]
    request = of_trees(folder, aliases=["champion"], networks_first=True).model_dump()
    run, learn = Run("job-1", request, {}, ignore_report), train_steps.learn_model

    def killed(workspace, run, **more):
        if not run.job_id.endswith(STAND_IN):
            raise KeyboardInterrupt
        return learn(workspace, run, **more)

    with monkeypatch.context() as dying:
        dying.setattr(train_steps, "learn_model", killed)
        with pytest.raises(KeyboardInterrupt):
            product.job_steps_by_kind(workspace)["train"]["learn"](run)
    assert product.aliases_of(workspace, "daily") == {"champion": 1} and efforts(workspace) == {1: "low"}
    for name, step in steps.items():
        run.receipts[name] = step(run)
    published = run.receipts["publish"]
    assert published["networks_version"] == 1 and len(efforts(workspace)) == 2
    assert product.aliases_of(workspace, "daily") == {"champion": published["version"]}


def decisions(workspace):
    return promotions.list_promotions(workspace.control, "daily").items[::-1]


def test_the_rule_of_a_refresh_decides_about_the_networks_and_then_about_the_trees(workspace, folder):
    # Too few rows for the rule: the networks become the first champion, and the trees replace them all the same.
    train, rule = of_trees(folder, networks_first=True), {"min_rows": 100_000, "margin": 0.5, "max_ece_increase": None}
    done = run_refresh(workspace, train, promotion=rule | {"beats_prior": False})
    networks, trees = decisions(workspace)
    assert (networks.challenger, networks.champion, networks.is_promoted) == (1, None, True)
    assert (trees.challenger, trees.champion) == (2, 1) and done["networks_version"] == 1
    new, old = trees.challenger_metrics["log_loss"], trees.champion_metrics["log_loss"]
    assert trees.is_promoted is (new <= old) and f"log_loss {new:.6g} against {old:.6g}" in trees.reason
    assert trees.rule["margin"] == 0.0 and networks.rule["margin"] == 0.5
    champion = product.aliases_of(workspace, "daily")["champion"]
    # Against an earlier champion the rule stays as it is, for both.
    write(folder, 5)
    run_refresh(workspace, train, promotion=rule | {"beats_prior": False})
    assert [(each.is_promoted, each.rule["margin"]) for each in decisions(workspace)[2:]] == [(False, 0.5)] * 2
    assert product.aliases_of(workspace, "daily")["champion"] == champion and len(efforts(workspace)) == 4


def test_a_refresh_that_finds_nothing_to_do_publishes_no_networks(workspace, folder):
    run_refresh(workspace, of_trees(folder, networks_first=True))
    before = efforts(workspace)
    done = run_refresh(workspace, of_trees(folder, networks_first=True), when="drift")
    assert done["is_skipped"] and efforts(workspace) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"update": False}, "'networks_first' belongs to 'update'"),
        ({"learner": "kdb", "parameters": {}}, "learner 'kdb' learns none here"),
        ({"parameters": {"effort": "low"}}, "learner 'auto' learns none here"),
        ({"parameters": {"correction": "none"}}, "learner 'auto' learns none here"),
    ],
)
def test_what_has_no_trees_to_wait_for_is_refused(folder, change, words):
    with pytest.raises(ValidationError, match=words):
        of_trees(folder, **{"networks_first": True} | change)
    fields = {"kind": "train", "uris": [str(folder)], "target": "class", "model": "daily", "update": True}
    fields |= {"networks_first": True} | change
    with pytest.raises(ValidationError, match=words):
        RefreshRequest.model_validate({"train": fields})
    with pytest.raises(ValidationError, match=words):
        ScheduleRequest.model_validate({"name": "nightly", "cron": "@daily", "job": fields})


def test_the_command_names_the_networks_that_answered(workspace, folder):
    asked = ["train", str(folder), "-t", "class", "-n", "daily", "--set", "members=2", "--networks-first"]
    asked += ["--columns", '{"user": "drop", "time": "drop"}', "-w", str(workspace.layout.root)]
    run = CliRunner(env={"COLUMNS": "300"})
    refused = run.invoke(app, asked)
    assert "'networks_first' belongs to 'update'" in str(refused.exception)
    done = run.invoke(app, [*asked, "--update"])
    assert done.exit_code == 0, done.output
    assert "daily@1, the networks alone, answered until the trees were learned" in done.output
    assert efforts(workspace) == {2: None, 1: "low"}
