"""Density models on files: scored and imputed, on the command line, over REST and as jobs."""

import json
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from learners.circuits.queries.column_values import chunk_of_batch
from learners.errors import InvalidParameter, NoClass, UnknownColumn
from learners.models.query import Map, Marginal
from learners.registry.kind import NoCircuit, NoJoint
from service import product
from service.http.app import create_app
from service.product.inference.density_rows import Filling, density_columns
from service.product.inference.queries import queryable_circuit
from service.product.views.circuit_export import MEDIA_TYPES
from service.product.views.regions import region_graph
from service.requests.problems import InvalidRequest
from service.serving.predictor import Predictor
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import ended_job, learned
from tests.support.cli import fewpass
from tests.support.http import problem

MODELS = {
    "sky": ("spn", None, {"passes": 3, "states": 3}),
    "air": ("spn", None, {"passes": 40, "states": 4, "leaves": "gaussian"}),
    "block": ("spn", None, {"structure": "gaussian-mixture", "states": 4}),
    "net": ("nb", "class", {"m": 1.0}),
    "trees": ("xgboost", "class", {"rounds": 2}),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory, weather_files):
    with Workspace(Settings(workspace=tmp_path_factory.mktemp("densities") / "workspace", threads=2)) as workspace:
        for name, (learner, target, parameters) in MODELS.items():
            learned(workspace, weather_files[0], name, learner, target, parameters=parameters)
        yield workspace


@pytest.mark.parametrize("model", ["sky", "air", "block", "net"])
def test_scores_are_the_log_likelihoods_and_their_ranks(here, weather_files, tmp_path, model):
    output = tmp_path / "scores.parquet"
    told = product.score_file_likelihoods(here, model, [str(weather_files[0])], output, keep=["outlook", "class"])
    scores, rows = pq.read_table(output), pq.read_table(weather_files[0])
    assert scores.column_names == ["outlook", "class", "log_likelihood", "surprise_rank"]
    assert scores.select(["outlook", "class"]).equals(rows.select(["outlook", "class"]))
    served = product.load_served_model(here, model).model
    circuit = queryable_circuit(served) if model == "net" else served
    expected = np.concatenate([circuit.log_likelihood(chunk_of_batch(circuit.columns, b)) for b in rows.to_batches()])
    logs = scores["log_likelihood"].to_numpy()
    np.testing.assert_array_equal(logs, expected)
    ranks = np.array([1 + np.count_nonzero(logs < log) for log in logs.tolist()])
    np.testing.assert_array_equal(scores["surprise_rank"].to_numpy(), ranks)
    assert told["n_rows"] == 3000 and told["log_likelihood"] == pytest.approx(expected.mean())
    assert told["densities"] == (["humidity"] if model in ("air", "block") else []) and told["n_impossible"] == 0
    assert not list(tmp_path.glob(".*")), "what was needed on the way is gone"


def test_scores_without_columns_to_keep_are_written_in_slices(here, weather_files, tmp_path, monkeypatch):
    monkeypatch.setattr("service.product.inference.density_rows.ROWS_AT_A_TIME", 700)
    product.score_file_likelihoods(here, "sky", [str(weather_files[0])], tmp_path / "scores")
    assert pq.read_table(tmp_path / "scores").num_rows == 3000


@pytest.mark.parametrize(
    "filling", [Filling(), Filling("mean"), Filling("draw", seed=4), Filling("draw", draws=3)], ids=repr
)
def test_only_missing_cells_change(here, weather_files, tmp_path, filling):
    told = product.impute_files(here, "air", [str(weather_files[0])], tmp_path / "all", filling)
    rows, whole = pq.read_table(weather_files[0]), pq.read_table(tmp_path / "all")
    n_filled = rows["outlook"].null_count * filling.draws
    assert told["n_rows"] == 3000 and told["n_left"] == 0 and told["n_filled"]["outlook"] == n_filled
    numbers = range(1, filling.draws + 1) if filling.draws > 1 else ()
    draws = [whole.filter(pa.compute.equal(whole["draw"], n)).drop_columns("draw") for n in numbers] or [whole]
    for table in draws:
        assert table.schema.names == rows.schema.names and table.num_rows == 3000
        for name in rows.column_names:
            known = rows[name].is_valid()
            assert table[name].filter(known).equals(rows[name].filter(known))
        assert table["outlook"].null_count == table["humidity"].null_count == 0
    if filling == Filling("mean"):  # humidity follows the class
        missing, plays = np.array(rows["humidity"].is_null()), np.array(rows["class"]) == "yes"
        filled = whole["humidity"].to_numpy()
        assert abs(filled[missing & plays].mean() - 55) < 4 and abs(filled[missing & ~plays].mean() - 75) < 4


def test_a_file_without_a_column_gets_it_where_it_is_named(here, weather_files, tmp_path):
    rows = pq.read_table(weather_files[1]).drop_columns("class")
    pq.write_table(rows, tmp_path / "rows.parquet")
    product.impute_files(here, "net", [str(tmp_path / "rows.parquet")], tmp_path / "all", Filling(columns=("class",)))
    filled = np.array(pq.read_table(tmp_path / "all")["class"])
    assert (filled == np.array(pq.read_table(weather_files[1])["class"])).mean() > 0.7


def test_what_cannot_be_scored_or_imputed(here, weather_files, tmp_path):
    source = [str(weather_files[1])]
    with pytest.raises(NoJoint, match="no joint distribution"):
        product.score_file_likelihoods(here, "trees", source, tmp_path / "x")
    with pytest.raises(NoClass, match=r"\(score\).*\(impute\)"):
        product.predict_files(here, "sky", source, tmp_path / "x.parquet")
    with pytest.raises(InvalidRequest, match=r"name it .*x\.parquet"):
        product.score_file_likelihoods(here, "sky", source, tmp_path / "x.xlsx")
    with pytest.raises(UnknownColumn, match="'wind'"):
        product.score_file_likelihoods(here, "sky", source, tmp_path / "x", keep=["wind"])
    pq.write_table(pa.table({"other": [1]}), tmp_path / "other.parquet")
    with pytest.raises(InvalidRequest, match="none of the model's columns"):
        product.impute_files(here, "sky", [str(tmp_path / "other.parquet")], tmp_path / "x", Filling())
    with pytest.raises(UnknownColumn, match="'rain_mm'"):
        product.impute_files(here, "air", source, tmp_path / "x", Filling(columns=("rain_mm",)))
    pq.write_table(pa.table({"outlook": ["rain"], "draw": [1]}), tmp_path / "draw.parquet")
    with pytest.raises(InvalidRequest, match="add a column 'draw', and the data has one already"):
        product.impute_files(here, "sky", [str(tmp_path / "draw.parquet")], tmp_path / "x", Filling("draw", draws=2))
    for wrong in ({"how": "guess"}, {"draws": 2}, {"draws": 0}, {"seed": -1}):
        with pytest.raises(InvalidParameter, match=next(iter(wrong))):
            Filling(**wrong)
    assert not (tmp_path / "x").exists()


def test_on_the_command_line(here, weather_files, tmp_path):
    root, out = here.settings.workspace, tmp_path / "out.parquet"
    shown = fewpass("score", "air", weather_files[1], "-o", out, workspace=root).stdout
    assert "mean log likelihood" in shown and "densities, not probabilities, of: humidity" in shown
    assert "--force" in fewpass("score", "air", weather_files[1], "-o", out, "--json", workspace=root, code=1).stderr
    shown = fewpass("impute", "sky", weather_files[1], "-o", tmp_path / "full.parquet", workspace=root)
    assert "outlook:" in shown.stdout and "was cut into intervals" in shown.stderr
    pq.write_table(
        pa.table({"outlook": ["Sunny", "Sunny"], "humidity": pa.nulls(2, pa.float64())}), tmp_path / "new.parquet"
    )
    shown = fewpass("impute", "sky", tmp_path / "new.parquet", "-o", tmp_path / "filled.parquet", workspace=root).stderr
    assert (
        "The data lacks columns of the model" in shown and "'outlook' has only values that training never had" in shown
    )


def test_over_rest(site, circuit):
    records = [
        {"outlook": "sunny", "humidity": 55.0, "class": "yes"},
        {"outlook": "rain", "humidity": 30.0, "class": "no"},
    ]
    answer = site.client.post("/v1/models/sky/score", json={"records": records}).json()
    first, second = answer["log_likelihoods"]
    assert answer["surprise_ranks"] == ([2, 1] if first > second else [1, 2]) and answer["densities"] == []
    same = {"columns": {name: [row[name] for row in records] for name in records[0]}}
    assert site.client.post("/v1/models/sky/score", json=same).json() == answer
    body = {"records": [{"outlook": "sunny", "class": None}], "only": ["class"]}
    answer = site.client.post("/v1/models/sky/impute", json=body).json()
    assert answer["records"] == [{"outlook": "sunny", "class": "yes"}] and answer["n_filled"] == 1
    drawn = {"records": [{}], "how": "draw", "draws": 50, "seed": 1}
    answer = site.client.post("/v1/models/weather/impute", json=drawn).json()
    assert {row["class"] for row in answer["records"]} == {"yes", "no"} and len(answer["records"]) == 50
    assert {type(row["windy"]) for row in answer["records"]} == {bool} and "warnings" not in answer
    for path in ("score", "impute"):
        answer = site.client.post(f"/v1/models/sky/{path}", json={"records": [{"outlook": "Sunny"}]}).json()
        assert "Column 'outlook' has only values that training never had, such as 'Sunny'" in answer["warnings"][0]


@pytest.mark.parametrize("path", ["score", "impute"])
def test_rows_that_take_longer_than_a_request_may_end_with_an_answer(here, path):
    """The clock is looked at every 256 rows, and what was found until then is thrown away."""
    told = {}
    for query_s in (60, 1e-6):
        settings = Settings(workspace=here.settings.workspace, query_s=query_s, job_workers=0, warm_up=False)
        with TestClient(create_app(settings), base_url="http://localhost") as client:
            told[query_s] = client.post(f"/v1/models/sky/{path}", json={"records": [{"windy": True}] * 600})
    assert told[60].status_code == 200, told[60].text
    assert len(told[60].json().get("records") or told[60].json()["log_likelihoods"]) == 600
    late = problem(told[1e-6], 503)
    assert late["timeout_s"] == 1e-6 and f"submit a job of kind '{path}'" in late["detail"]


@pytest.mark.parametrize(
    ("path", "body", "code", "word"),
    [
        ("score", {"records": [{"outlok": "rain"}]}, 422, "outlook"),
        ("score", {}, 422, "either 'records' or 'columns'"),
        ("score", {"columns": {"outlook": ["rain"], "windy": []}}, 422, "'windy' has 0 values"),
        ("score", {"records": [{}] * 2001}, 413, "the limit is 2000"),
        ("impute", {"records": [{}] * 1500, "how": "draw", "draws": 2}, 413, "the limit is 2000"),
        ("impute", {"records": [{}], "only": ["wind"]}, 422, "'wind'"),
    ],
)
def test_what_rest_refuses(site, circuit, path, body, code, word):
    assert word in json.dumps(problem(site.client.post(f"/v1/models/sky/{path}", json=body), code))


def test_as_jobs(site, circuit):
    asked = {"model": "sky", "uris": [str(site.test)]}
    job = ended_job(site.client, asked | {"kind": "impute", "how": "draw", "seed": 2})
    assert job["state"] == "succeeded" and job["result"]["n_rows"] == 500
    written = site.client.get(f"/v1/jobs/{job['id']}/output")
    assert pq.read_table(BytesIO(written.content))["outlook"].null_count == 0
    job = ended_job(site.client, asked | {"kind": "score", "keep": ["windy"]})
    with Workspace(Settings(workspace=site.workspace)) as workspace:
        assert pq.read_table(product.job_output_path(workspace, job["id"])).column_names[0] == "windy"
    assert "warnings" not in job["result"]
    pq.write_table(
        pa.table({"outlook": ["hail"], "humidity": [50.0], "windy": [True]}), site.test.parent / "hail.parquet"
    )
    job = ended_job(site.client, asked | {"kind": "score", "uris": [str(site.test.parent / "hail.parquet")]})
    absent, warning = job["result"]["warnings"]
    assert absent.startswith("The data lacks columns of the model: 'class'")
    assert warning.startswith("Column 'outlook' has only values that training never had, such as 'hail'")
    refused = site.client.post("/v1/jobs", json={"kind": "impute", "model": "sky", "uris": ["/x"], "columns": ["wind"]})
    assert "'wind'" in problem(refused, 422)["detail"]
    other = ended_job(site.client, asked | {"kind": "evaluate"})
    assert "has no rows" in problem(site.client.get(f"/v1/jobs/{other['id']}/output"), 409)["detail"]


def served_by_predictor(workspace, model):
    predictor = Predictor(workspace.control)
    predictor.refresh()
    return predictor.resolve(model)


def test_chosen_leaves_say_which_columns_have_a_density(here, tmp_path):
    """A column that is recorded in tenths has masses; one of many digits a density."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    rows = pa.table({"tenths": np.round(20 + 4 * x, 1), "fine": np.exp(x + rng.normal(size=400))})
    pq.write_table(rows, tmp_path / "rows.parquet")
    parameters = {"structure": "chow-liu", "leaves": "auto", "passes": 2}
    learned(here, tmp_path / "rows.parquet", "chosen", "spn", None, parameters=parameters)
    served = served_by_predictor(here, "chosen")
    assert density_columns(served.model) == ["fine"]
    answers = served.model.answer([Marginal({"tenths": 20.0}), Marginal({"fine": 1.0})])
    assert 0 < answers[0]["probability"] < 1
    assert "density" in answers[1]


def test_a_served_circuit_has_what_its_first_query_needs(here):
    circuit = served_by_predictor(here, "sky").model
    kept = vars(circuit.circuit)
    before = set(kept)
    assert {"WholeCircuit.of", "_prepare", "_entry_weights"} <= before
    circuit.answer([Marginal({}), Map()])
    assert set(kept) == before


def test_a_mixture_of_gaussians_has_no_circuit_file(here):
    for form in set(MEDIA_TYPES) - {"model"}:
        with pytest.raises(NoCircuit, match="'gaussian mixture' has leaves of several columns"):
            product.export_version_circuit(here, "block", form)
    with pytest.raises(NoCircuit, match="tables of the version's DuckDB file"):
        region_graph(product.load_served_model(here, "block").model)
