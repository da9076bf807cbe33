"""Networks as files on the command line: out as BIF or SQL, in as a model that answers."""

import json

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.orders.formats.bif import parse_bif
from tests.service.cli.test_cli import fewpass

NETWORK = """network weather {
}
variable rain { type discrete [ 2 ] { no, yes }; }
variable lawn { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( lawn | rain ) { (no) 0.9, 0.1; (yes) 0.01, 0.99; }
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    rows = {"x": ["a", "b", "b", "a"] * 30, "class": ["u", "v", "v", "v"] * 30}
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    command = ["train", folder / "rows.parquet", "--target", "class", "--name", "small"]
    fewpass(*command, "--learner", "nb", workspace=folder / "workspace")
    return folder / "workspace"


def test_an_imported_network_answers(workspace, tmp_path):
    path = tmp_path / "weather.BIF"
    path.write_text(NETWORK)
    here = {"workspace": workspace}
    assert "imported as garden@1" in fewpass("models", "import", path, "--name", "garden", **here).stdout
    shown = json.loads(fewpass("models", "show", "garden", "--json", **here).stdout)
    assert shown["tags"] == {"imported_from": "weather.BIF"} and shown["learner"] == "network"
    asked = ["query", "garden", "conditional", "--given", "lawn=wet", "--json"]
    told = json.loads(fewpass(*asked, **here).stdout)
    assert told["distributions"]["rain"]["yes"] == pytest.approx(0.198 / 0.278)
    soft = ["query", "garden", "conditional", "--of", "rain", "--likely", "lawn: wet=.9,dry=.1", "--json"]
    told = json.loads(fewpass(*soft, **here).stdout)
    # 0.8 · (0.9 · 0.1 + 0.1 · 0.9) without rain, 0.2 · (0.01 · 0.1 + 0.99 · 0.9) with it.
    assert told["distributions"]["rain"]["yes"] == pytest.approx(0.1784 / (0.144 + 0.1784))
    fewpass("models", "structure", "garden", **here)
    fewpass("models", "lineage", "garden", **here)


def test_interventions(workspace, tmp_path):
    path, here = tmp_path / "weather.bif", {"workspace": workspace}
    path.write_text(NETWORK)
    fewpass("models", "import", path, "--name", "meadow", **here)
    asked = ["query", "meadow", "conditional", "--of", "rain"]
    told = json.loads(fewpass(*asked, "--do", "lawn=wet", "--json", **here).stdout)
    assert told["distributions"]["rain"]["yes"] == pytest.approx(0.2)  # a lawn that is watered tells nothing of rain
    shown = fewpass(*asked, "--do", "lawn=wet", **here).stdout
    assert "cut: rain->lawn" in shown and "is a cause" in shown
    wrong = fewpass(*asked, "--do", "lawn=wet", "--given", "lawn=dry", code=1, **here).stderr
    assert "Column 'lawn' is both set and given" in wrong
    # A classifier's arcs go from the class to its columns.
    told = json.loads(fewpass("query", "small", "conditional", "--of", "class", "--do", "x=a", "--json", **here).stdout)
    plain = json.loads(fewpass("query", "small", "conditional", "--of", "class", "--json", **here).stdout)
    assert told["distributions"] == {"class": pytest.approx(plain["distributions"]["class"])}


def test_interventions_by_a_posterior(workspace, tmp_path):
    here = {"workspace": workspace}
    rows = workspace.parent / "rows.parquet"
    fewpass("train", rows, "--learner", "orders", "--name", "arcs", "--holdout", "0", **here)
    asked = ["query", "arcs", "conditional", "--of", "class", "--do", "x=a", "--json"]
    given = json.loads(fewpass(*asked, "--edge", "x->class", **here).stdout)
    assert given["graph"] == "given" and given["intervention"]["back_door"][0]["is_cause"]
    average = json.loads(fewpass(*asked, "--average", "--set", "n=40", "--set", "level=.8", **here).stdout)
    assert average["level"] == 0.8 and average["n"] == 40
    (pair,) = average["intervention"]["back_door"]
    low, high = average["intervals"]["class"]["u"]
    assert 0 < pair["probability"] < 1 and low < average["distributions"]["class"]["u"] < high
    known = ["--average", "--present", "x->class", "--set", "n=5"]
    assert json.loads(fewpass(*asked, *known, **here).stdout)["distributions"] == {
        "class": pytest.approx(given["distributions"]["class"])
    }
    assert "average over 40 draws" in fewpass(*asked[:-1], "--average", "--set", "n=40", **here).stdout
    wrong = fewpass("query", "arcs", "map", "--average", code=1, **here).stderr
    assert "only marginal, conditional" in wrong
    wrong = fewpass("query", "small", "marginal", "--average", code=1, **here).stderr
    assert "Only a posterior over structures" in wrong


def test_samples_where_the_exact_way_is_too_large(workspace, tmp_path):
    here, rng = {"workspace": workspace}, np.random.default_rng(0)
    y, columns = rng.integers(0, 2, 2000), []
    for i in range(24):  # each depends on the one before, and on one long before
        both = columns[i - 1] + columns[i // 2] + y if i else y
        columns.append(np.where(rng.random(2000) < 0.7, both % 4, rng.integers(0, 4, 2000)))
    rows = {f"c{i}": np.char.mod("v%d", codes) for i, codes in enumerate(columns)}
    pq.write_table(pa.table(rows | {"class": np.char.mod("k%d", y)}), tmp_path / "wide.parquet")
    command = ["train", tmp_path / "wide.parquet", "--target", "class", "--name", "wide", "--holdout", "0"]
    fewpass(*command, "--learner", "kdb", "--set", "k=5", **here)
    asked = ["query", "wide", "conditional", "--of", "class", "--given", "c0=v1"]
    assert "Ask for samples" in fewpass(*asked, code=1, **here).stderr
    told = json.loads(fewpass(*asked, "--sample", "--set", "error=.01", "--json", **here).stdout)
    assert told["sampled"]["is_reached"] and told["sampled"]["largest_error"] <= 0.01
    shown = fewpass(*asked, "--sample", "--set", "error=.02", **here).stdout
    assert "sampled, not exact" in shown and "standard error" in shown
    wrong = fewpass("query", "wide", "map", "--sample", code=1, **here).stderr
    assert "samples answer marginal, conditional" in wrong
    exact = ["query", "small", "conditional", "--sample", "--json"]
    assert "sampled" not in json.loads(fewpass(*exact, **here).stdout)
    assert "error" in fewpass(*asked, "--sample", "--set", "error=0", code=1, **here).stderr


def test_networks_that_cannot_be_imported_leave_nothing(workspace, tmp_path):
    path, here = tmp_path / "bad.bif", {"workspace": workspace}
    path.write_text(NETWORK.replace("0.01, 0.99", "0.5, 0.99"))
    assert "name the model" in fewpass("models", "import", path, code=2, **here).stderr
    wrong = fewpass("models", "import", path, "--name", "bad", code=1, **here).stderr
    assert "Variable 'lawn' of the network has probabilities for ('yes',) that sum to 1.49" in wrong
    path.write_text(NETWORK.replace("variable lawn", "variabel lawn"))
    assert "line 4" in fewpass("models", "import", path, "--name", "bad", code=1, **here).stderr
    assert "bad" not in fewpass("models", "list", **here).stdout


def test_a_trained_network_is_written(workspace, tmp_path):
    fewpass("models", "network", "small", "--out", tmp_path / "small.bif", workspace=workspace)
    network = parse_bif((tmp_path / "small.bif").read_text())
    assert network.edges == ("class->x",) and network.values["class"] == ("u", "v")


def test_a_network_goes_to_other_programs_and_back(workspace, tmp_path):
    here = {"workspace": workspace}
    for ending in ("xdsl", "bifxml"):
        fewpass("models", "network", "small", "--out", tmp_path / f"small.{ending}", **here)
        fewpass("models", "import", tmp_path / f"small.{ending}", "--name", f"of-{ending}", **here)
    asked = ["conditional", "--of", "class", "--given", "x=a", "--json"]
    told = [json.loads(fewpass("query", name, *asked, **here).stdout) for name in ("small", "of-xdsl", "of-bifxml")]
    for other in told[1:]:
        assert other["distributions"]["class"] == pytest.approx(told[0]["distributions"]["class"], abs=1e-6)
    assert (
        fewpass("models", "network", "small", "--format", "xdsl", **here).stdout
        == (tmp_path / "small.xdsl").read_text()
    )
    wrong = fewpass("models", "network", "small", "--out", tmp_path / "small.net", code=1, **here).stderr
    assert "names of network files end in one of .bif" in wrong and not (tmp_path / "small.net").exists()
    (tmp_path / "noisy.xdsl").write_text((tmp_path / "small.xdsl").read_text().replace("cpt", "noisymax"))
    wrong = fewpass("models", "import", tmp_path / "noisy.xdsl", "--name", "noisy", code=1, **here).stderr
    assert "noisy.xdsl, line 4: node 'class' is of kind 'noisymax'" in wrong


def test_a_trained_network_answers_in_a_database(workspace, tmp_path):
    here = {"workspace": workspace}
    command = ["models", "sql", "small@1", "--table", "new", "--key", "id", "--out", tmp_path / "small.sql"]
    assert "small@1 -> " in fewpass(*command, **here).stdout
    rows = pa.table({"id": [3, 2, 1], "x": ["b", None, "never seen"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    scored = tmp_path / "scored.parquet"
    fewpass("predict", "small@1", tmp_path / "rows.parquet", "--out", scored, "--keep", "id", **here)
    with duckdb.connect() as database:
        database.register("new", rows)
        database.execute((tmp_path / "small.sql").read_text())
        found = database.sql("FROM small ORDER BY id").to_arrow_table().to_pydict()
    expected = pq.read_table(scored).sort_by("id").to_pydict()
    assert list(found) == list(expected) and found.pop("prediction") == expected.pop("prediction")
    assert all(found[name] == pytest.approx(expected[name], abs=1e-9) for name in expected)
    assert "exists already" in fewpass(*command, code=1, **here).stderr
    shown = fewpass(
        "models", "sql", "small", "--table", "new", "--view", "odds", "--dialect", "postgres", **here
    ).stdout
    assert shown.startswith('CREATE TABLE "odds_values"') and 'CREATE VIEW "odds" AS' in shown
    assert "oracle" in fewpass("models", "sql", "small", "--table", "new", "--dialect", "oracle", code=2, **here).stderr
    wrong = fewpass("models", "sql", "small", "--table", "new", "--absent", "y", code=1, **here).stderr
    assert "Column 'y' is not in the table" in wrong
