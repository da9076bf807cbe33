"""Networks as files on the command line: out as BIF or SQL, in as a model that answers."""

from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.orders.formats.bif import parse_bif
from tests.support import cli
from tests.support.cli import NETWORK, as_json, fewpass


@pytest.fixture
def said(workspace):
    """What commands say; errors where an exit code is expected."""
    return partial(cli.said, workspace=workspace)


@pytest.fixture
def answer(workspace):
    """What commands say with --json."""
    return partial(as_json, workspace=workspace)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """With a small classifier, and a network that was imported."""
    folder = tmp_path_factory.mktemp("networks")
    here = {"workspace": folder / "workspace"}
    rows = {"x": ["a", "b", "b", "a"] * 30, "class": ["u", "v", "v", "v"] * 30}
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    fewpass("train", folder / "rows.parquet", "--target", "class", "--name", "small", "--learner", "nb", **here)
    (folder / "weather.BIF").write_text(NETWORK)
    imported = fewpass("models", "import", folder / "weather.BIF", "--name", "garden", **here)
    assert "imported as garden@1" in imported.stdout
    return folder / "workspace"


def test_an_imported_network_answers(said, answer):
    shown = answer("models", "show", "garden")
    assert shown["tags"] == {"imported_from": "weather.BIF"} and shown["learner"] == "network"
    wet = answer("query", "garden", "conditional", "--given", "lawn=wet")
    assert wet["distributions"]["rain"]["yes"] == pytest.approx(0.198 / 0.278)
    soft = answer("query", "garden", "conditional", "--of", "rain", "--likely", "lawn: wet=.9,dry=.1")
    # 0.8 · (0.9 · 0.1 + 0.1 · 0.9) without rain, 0.2 · (0.01 · 0.1 + 0.99 · 0.9) with it.
    assert soft["distributions"]["rain"]["yes"] == pytest.approx(0.1784 / (0.144 + 0.1784))
    said("models", "structure", "garden")
    said("models", "lineage", "garden")


def test_interventions(said, answer):
    of_rain = ["query", "garden", "conditional", "--of", "rain", "--do", "lawn=wet"]
    # A lawn that is watered tells nothing of rain.
    assert answer(*of_rain)["distributions"]["rain"]["yes"] == pytest.approx(0.2)
    shown = said(*of_rain)
    assert "cut: rain->lawn" in shown and "is a cause" in shown
    assert "Column 'lawn' is both set by do and given as evidence: keep one of the two" in said(
        *of_rain, "--given", "lawn=dry", code=1
    )
    # A classifier's arcs go from the class to its columns.
    of_class = ["query", "small", "conditional", "--of", "class"]
    plain = answer(*of_class)["distributions"]["class"]
    assert answer(*of_class, "--do", "x=a")["distributions"] == {"class": pytest.approx(plain)}


def test_interventions_by_a_posterior(workspace, said, answer):
    said("train", workspace.parent / "rows.parquet", "--learner", "orders", "--name", "arcs", "--holdout", "0")
    of_class = ["query", "arcs", "conditional", "--of", "class", "--do", "x=a"]
    given = answer(*of_class, "--edge", "x->class")
    assert given["graph"] == "given" and given["intervention"]["back_door"][0]["is_cause"]
    average = answer(*of_class, "--average", "--set", "n=40", "--set", "level=.8")
    assert average["level"] == 0.8 and average["n"] == 40
    (pair,) = average["intervention"]["back_door"]
    low, high = average["intervals"]["class"]["u"]
    assert 0 < pair["probability"] < 1 and low < average["distributions"]["class"]["u"] < high
    known = answer(*of_class, "--average", "--present", "x->class", "--set", "n=5")
    assert known["distributions"] == {"class": pytest.approx(given["distributions"]["class"])}
    assert "average over 40 draws" in said(*of_class, "--average", "--set", "n=40")
    assert "only marginal, conditional" in said("query", "arcs", "map", "--average", code=1)
    assert "Only a posterior over structures" in said("query", "small", "marginal", "--average", code=1)


def test_samples_where_the_exact_way_is_too_large(tmp_path, said, answer, monkeypatch):
    rng = np.random.default_rng(0)
    y, columns = rng.integers(0, 2, 2000), []
    for i in range(24):  # each depends on the one before, and on one long before
        both = columns[i - 1] + columns[i // 2] + y if i else y
        columns.append(np.where(rng.random(2000) < 0.7, both % 8, rng.integers(0, 8, 2000)))
    rows = {f"c{i}": np.char.mod("v%d", codes) for i, codes in enumerate(columns)}
    pq.write_table(pa.table(rows | {"class": np.char.mod("k%d", y)}), tmp_path / "wide.parquet")
    command = ["train", tmp_path / "wide.parquet", "--target", "class", "--name", "wide", "--holdout", "0"]
    said(*command, "--learner", "kdb", "--set", "k=5")
    of_class = ["query", "wide", "conditional", "--of", "class", "--given", "c23=v1", "--given", "c20=v2"]
    monkeypatch.setenv("FEWPASS_MEMORY", "64MiB")
    assert "sampled" not in answer("query", "wide", "conditional", "--of", "class", "--given", "c0=v1")  # few take part
    assert answer(*of_class)["sampled"]["is_reached"]
    sampled = answer(*of_class, "--sample", "--set", "error=.01")["sampled"]
    assert sampled["is_reached"] and sampled["largest_error"] <= 0.01
    shown = said(*of_class, "--sample", "--set", "error=.02")
    assert "sampled, not exact" in shown and "standard error" in shown
    assert "and sampling supports only marginal, conditional (of single columns) and impute" in said(
        "query", "wide", "map", code=1
    )
    right = answer(*of_class, "--sample", "--set", "error=.005")
    monkeypatch.setattr("learners.registry.networks.model_networks.MOST_CELLS", 1)  # too many for any table
    answered = answer(*of_class, "--sample", "--set", "error=.005")
    for value, p in answered["distributions"]["class"].items():
        error = np.hypot(answered["standard_errors"]["class"][value], right["standard_errors"]["class"][value])
        assert abs(p - right["distributions"]["class"][value]) <= 4 * error, value
    assert "sampled, not exact" in said(*of_class)
    assert "sampled" not in answer("query", "small", "conditional", "--sample")
    assert "error" in said(*of_class, "--sample", "--set", "error=0", code=1)


def test_networks_that_cannot_be_imported_leave_nothing(said, tmp_path):
    path = tmp_path / "bad.bif"
    path.write_text(NETWORK.replace("0.01, 0.99", "0.5, 0.99"))
    assert "there is no file" in said("models", "import", "x" * 300, code=2)
    assert "name the model" in said("models", "import", path, code=2)
    wrong = said("models", "import", path, "--name", "bad", code=1)
    assert "Variable 'lawn' of the network has probabilities for ('yes',) that sum to 1.49" in wrong
    path.write_text(NETWORK.replace("variable lawn", "variabel lawn"))
    assert "line 4" in said("models", "import", path, "--name", "bad", code=1)
    assert "bad" not in said("models", "list")


def test_a_network_goes_to_other_programs_and_back(said, answer, tmp_path):
    for ending in ("bif", "xdsl", "bifxml"):
        said("models", "network", "small", "--out", tmp_path / f"small.{ending}")
    network = parse_bif((tmp_path / "small.bif").read_text())
    assert network.edges == ("class->x",) and network.values["class"] == ("u", "v")
    of_class = ["conditional", "--of", "class", "--given", "x=a"]
    expected = answer("query", "small", *of_class)["distributions"]["class"]
    for ending in ("xdsl", "bifxml"):
        said("models", "import", tmp_path / f"small.{ending}", "--name", f"of-{ending}")
        found = answer("query", f"of-{ending}", *of_class)["distributions"]["class"]
        assert found == pytest.approx(expected, abs=1e-6)
    text = (tmp_path / "small.xdsl").read_text()
    assert said("models", "network", "small", "--format", "xdsl") == text
    wrong = said("models", "network", "small", "--out", tmp_path / "small.net", code=1)
    assert "the name of a network file ends in one of .bif" in wrong and not (tmp_path / "small.net").exists()
    (tmp_path / "noisy.xdsl").write_text(text.replace("cpt", "noisymax"))
    wrong = said("models", "import", tmp_path / "noisy.xdsl", "--name", "noisy", code=1)
    assert "noisy.xdsl, line 4: node 'class' is of kind 'noisymax'" in wrong


def test_a_trained_network_answers_in_a_database(said, tmp_path):
    command = ["models", "sql", "small@1", "--table", "new", "--key", "id", "--out", tmp_path / "small.sql"]
    assert "small@1 -> " in said(*command)
    rows = pa.table({"id": [3, 2, 1], "x": ["b", None, "never seen"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    scored = tmp_path / "scored.parquet"
    said("predict", "small@1", tmp_path / "rows.parquet", "--out", scored, "--keep", "id")
    with duckdb.connect() as database:
        database.register("new", rows)
        database.execute((tmp_path / "small.sql").read_text())
        found = database.sql("FROM small ORDER BY id").to_arrow_table().to_pydict()
    expected = pq.read_table(scored).sort_by("id").to_pydict()
    assert list(found) == list(expected) and found.pop("prediction") == expected.pop("prediction")
    assert all(found[name] == pytest.approx(expected[name], abs=1e-9) for name in expected)
    assert "already exists" in said(*command, code=1)
    shown = said("models", "sql", "small", "--table", "new", "--view", "odds", "--dialect", "postgres")
    assert shown.startswith('CREATE TABLE "odds_values"') and 'CREATE VIEW "odds" AS' in shown
    assert "oracle" in said("models", "sql", "small", "--table", "new", "--dialect", "oracle", code=2)
    wrong = said("models", "sql", "small", "--table", "new", "--absent", "y", code=1)
    assert "Column 'y' is not in the table" in wrong
