"""Circuits that are sampled, as a user has them: by command line and by REST."""

import json

import numpy as np
import pyarrow.parquet as pq

from learners.models.query import Map, Marginal, Sample
from service import product
from service.serving.predictor import Predictor
from tests.processes import wait_for
from tests.service.asking import finished, job_at_end, model_of, train_job, training
from tests.service.conftest import weather
from tests.support.cli import fewpass
from tests.support.http import ask, problem

SETTINGS = {"iterations": 40, "draws": 20}


def request_of(path, target="class", **more):
    return training(path, "sky", "gibbs", target, parameters=SETTINGS, holdout=0.1, **more)


def test_a_sampled_circuit_on_the_command_line(tmp_path):
    data, here = tmp_path / "data.parquet", {"workspace": tmp_path / "workspace"}
    pq.write_table(weather(600, 1), data)
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    train = ["train", data, "-t", "class", "-l", "gibbs", *settings, "-n", "sky", "--json"]
    trained = fewpass(*train, **here)
    assert json.loads(trained.stdout)["metrics"]["zero_one_loss"] < 0.3

    told = fewpass("query", "sky", "conditional", "--given", "outlook=sunny", "--of", "class", **here).stdout
    assert "90% interval" in told and " to " in told
    answer = json.loads(fewpass("query", "sky", "moments", "--given", "class=yes", "--json", **here).stdout)
    low, high = answer["moments"]["humidity"]["interval"]
    assert low < answer["moments"]["humidity"]["mean"] < high
    assert "standard error: " in fewpass("query", "sky", "marginal", "--given", "windy=true", **here).stdout
    best = fewpass("query", "sky", "map", "--of", "outlook", "--of", "windy", "--given", "class=yes", **here).stdout
    assert "of the posterior mean circuit" in best

    guess = fewpass("query", "sky", "impute", "--given", "class=yes", **here).stdout
    assert "best guess" in guess and "standard deviation" in guess and "probability" in guess
    strange = fewpass("query", "sky", "surprise", "--given", "humidity=1e6", "--set", "n=200", "--json", **here)
    assert json.loads(strange.stdout)["rank"] < 0.05

    structure = fewpass("models", "structure", "sky", **here).stdout
    for fact in ("r_hat", "effective", "is_settled", "whole_acceptance"):
        assert fact in structure
    fewpass("models", "trace", "sky", "--out", tmp_path / "trace.svg", **here)
    assert "<svg" in (tmp_path / "trace.svg").read_text()
    assert fewpass("models", "circuit", "sky", "--format", "svg", **here).stdout.count("<svg") == 1

    out = tmp_path / "scored.parquet"
    fewpass("predict", "sky", data, "--out", out, "--interval", "0.9", **here)
    scored = pq.read_table(out)
    assert (np.array(scored["low_yes"]) <= np.array(scored["high_yes"])).all()


def test_a_sampled_circuit_over_rest(site):
    finished(site.client, train_job(site.train, "sampled", "gibbs", parameters=SETTINGS))
    known = {"evidence": {"outlook": "sunny"}}
    impute, surprise = {"kind": "impute", "variables": ["class"], **known}, {"kind": "surprise", "n": 100, **known}
    answer, guess, surprise = ask(site.client, "sampled", {"kind": "marginal", **known}, impute, surprise)
    assert answer["interval"][0] < answer["probability"] < answer["interval"][1]
    low, high = guess["imputed"]["class"]["interval"]
    assert low <= guess["imputed"]["class"]["probability"] <= high
    assert surprise["n"] == 100 and 0 < surprise["rank"] <= 1
    facts = site.client.get("/v1/models/sampled/structure").json()["facts"]
    assert facts["n_sweeps"] == 40 and facts["n_chains"] == 2
    assert "<svg" in site.client.get("/v1/models/sampled/trace.svg").text
    refused = problem(site.client.get("/v1/models/weather/trace.svg"), 422)
    assert (
        "has no sampling chains to plot. Train with learner gibbs (CircuitPosterior in Python) to get them"
        in refused["detail"]
    )


def test_an_update_goes_on_with_new_rows_behind_the_old_ones(workspace, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    pq.write_table(weather(300, 1), folder / "b.parquet")
    first = product.train_model_version(workspace, request_of(folder, update=True))
    # The new file comes first by its name; its rows come last in the states all the same.
    for name, seed in (("a", 2), ("aa", 3)):
        known = model_of(first)
        pq.write_table(weather(200, seed), folder / f"{name}.parquet")
        first, passes = product.train_and_report_passes(workspace, request_of(folder, update=True))
        grown = model_of(first)
        assert [entry["stage"] for entry in passes] == ["sampling"]
        n_known = len(known.sampled.choices[0])
        assert len(grown.sampled.choices[0]) == grown.facts["n_rows"] > n_known
        assert grown.sampled.header["turn"] == known.sampled.header["turn"] + 1
        assert grown.schema == known.schema
    same, passes = product.train_and_report_passes(workspace, request_of(folder, update=True))
    assert sum(entry["n_rows_read"] for entry in passes) == 0
    assert np.array_equal(model_of(same).draws.weight, grown.draws.weight)
    (folder / "b.parquet").unlink()
    _, passes = product.train_and_report_passes(workspace, request_of(folder, update=True))
    assert passes[0]["stage"] == "starting from scratch, because a file of the last training was removed or changed"


def test_served_draws_have_what_their_first_query_needs(workspace, tmp_path):
    pq.write_table(weather(300, 1), tmp_path / "data.parquet")
    product.train_model_version(workspace, request_of(tmp_path / "data.parquet", target=None))
    predictor = Predictor(workspace.control)
    predictor.refresh()
    model = predictor.resolve("sky").model
    kept = [vars(model.circuit), vars(model.draws)]
    before = [set(each) for each in kept]
    assert "_compiled" in before[1]
    model.answer([Marginal({"outlook": "sunny"}), Map(), Sample(2, {})])
    assert [set(each) for each in kept] == before


def test_progress_of_a_job_tells_the_log_joint(site):
    slow = train_job(site.train, "slow", "gibbs", parameters=SETTINGS | {"iterations": 100_000})
    job = site.client.post("/v1/jobs", json=slow).json()

    def note():
        return (site.client.get(f"/v1/jobs/{job['id']}").json()["progress"] or {}).get("note", "")

    wait_for(lambda: "log joint" in (told := note()) and "% of trees and" in told)
    site.client.post(f"/v1/jobs/{job['id']}/cancel")
    assert job_at_end(site.client, job["id"])["state"] == "cancelled"
