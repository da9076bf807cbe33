"""What is said of columns where a model reads rows: `--columns`, classes with a missing mark, classes that are new."""

import json
import random

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import fewpass
from learners.errors import InvalidParameter, SchemaError, Surface, messages_for
from service.cli import app


def run(*arguments, code=0):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())  # a terminal of any width wraps lines


def refusal(*arguments):
    return str(CliRunner().invoke(app, list(map(str, arguments))).exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A workspace with a model `m` of a file of which some classes are a mark of missing values; rows in another form."""
    folder = tmp_path_factory.mktemp("columns")
    draw = random.Random(0)
    lines, other = ["a,b,y"], ["a;b;y"]
    for k in range(600):
        a, b = draw.choice("uv"), draw.random()
        y = "?" if k % 20 == 0 else "p" if (a == "u") == (draw.random() < 0.8) else "q"
        lines.append(f"{a},{b:.3f},{y}")
        other.append(f"{a};{b:.3f}".replace(".", ",") + f";{'z' if k % 10 == 0 else y.replace('?', 'p')}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "other.csv").write_text("\n".join(other) + "\n")
    said = json.dumps({"y": {"missing": ["?"], "null_class": "drop"}})
    run("train", folder / "t.csv", "-t", "y", "-n", "m", "-l", "nb", "--columns", said, "-w", folder / "w")
    return folder


OTHER = json.dumps({"*": {"delimiter": ";"}, "b": {"decimal": ","}})


def test_what_is_no_json_is_refused_with_an_example(folder):
    for text in ("{a: decimal}", "{"):
        assert "is not JSON: " in run("schema", folder / "t.csv", "--columns", text, code=2)
    assert """Example: --columns '{"age": {"kind": "numeric"}, "row_id": "drop"}'""" in run(
        "schema", folder / "t.csv", "--columns", "{b: 1}", code=2
    )
    said = json.dumps({"a": {"kind": "nominal"}, "b": "drop"})  # the form of the example
    assert "b: " in run("schema", folder / "t.csv", "--columns", said)


def test_the_training_file_of_a_class_with_a_missing_mark_is_evaluated_reported_and_tested(folder):
    where = ("-w", folder / "w")
    assert json.loads(run("evaluate", "m", folder / "t.csv", "--json", *where))["n_test_rows"] == 570
    run("report", "m", folder / "t.csv", "--html", folder / "r.html", *where)
    said = json.dumps({"y": {"missing": ["?"], "null_class": "drop"}})
    tested = ("train", folder / "t.csv", "-t", "y", "-n", "tested", "-l", "nb", "--columns", said)
    assert "570 rows of test data" in run(*tested, "--test", folder / "t.csv", *where)


def test_columns_say_how_rows_are_written_wherever_a_model_reads_them(folder):
    file, where = folder / "other.csv", ("--columns", OTHER, "-w", folder / "w")
    found = json.loads(run("evaluate", "m", file, "--json", *where))
    assert found["n_test_rows"] == 600
    for command in ("predict", "score"):
        run(command, "m", file, "--out", folder / f"{command}.parquet", *where)
        assert pq.read_table(folder / f"{command}.parquet").num_rows == 600
    assert "information in each column" in run("report", "m", file, "--html", folder / "o.html", *where)
    drift = json.loads(run("drift", "m", file, "--json", *where))
    causes = [(one["kind"], one["columns"]) for one in drift["causes"]]
    assert drift["rows"]["counted"] == 600 and causes == [("unseen", ["y"])], "z is a new class"
    assert "--columns" in run("evaluate", "m", file, "--columns", "[1]", "-w", folder / "w", code=2)


def test_a_class_that_training_did_not_see_counts_as_wrong(folder):
    file, where = folder / "other.csv", ("--columns", OTHER, "-w", folder / "w")
    found = json.loads(run("evaluate", "m", file, "--json", *where))
    assert found["n_unknown_class_rows"] == 60 and found["zero_one_loss"] >= 0.1
    printed = run("evaluate", "m", file, *where)
    assert "60 of them of classes not seen in training" in printed
    both = json.loads(run("evaluate", "m@1", "m", file, "--json", *where))
    assert [each["n_unknown_class_rows"] for each in both["models"]] == [60, 60]


def test_training_tells_the_share_of_the_largest_class(folder):
    (folder / "rare.csv").write_text("a,y\n" + "".join(f"{'uv'[k % 2]},{'q' if k % 10 else 'p'}\n" for k in range(500)))
    printed = run("train", folder / "rare.csv", "-t", "y", "-n", "rare", "-l", "nb", "-w", folder / "w")
    assert "(largest class 9" in printed or "(largest class 8" in printed


def test_a_target_of_many_whole_numbers_looks_like_regression(folder):
    draw = random.Random(1)
    rows = "".join(f"{draw.choice('uv')},{draw.randrange(90)}\n" for _ in range(900))
    (folder / "numbers.csv").write_text("a,y\n" + rows)
    printed = run("train", folder / "numbers.csv", "-t", "y", "-n", "numbers", "-l", "nb", "-w", folder / "w")
    assert "'y' holds 90 different whole numbers, which looks like regression" in " ".join(printed.split())


def test_a_target_of_few_whole_numbers_looks_like_regression_if_its_neighbours_are_alike(folder):
    draw = random.Random(1)
    rings = "".join(f"{draw.choice('uv')},{round(draw.gauss(10, 3))}\n" for _ in range(900))
    kinds = "".join(
        f"{draw.choice('uv')},{draw.choice([1, 3, 3, 3, 3, 4, 5, 8, 8, 8, 8, 9, 11, 13, 15, 15, 15, 15, 17])}\n"
        for _ in range(900)
    )
    for name, rows, is_named in (("rings", rings, True), ("kinds", kinds, False)):
        (folder / f"{name}.csv").write_text("a,y\n" + rows)
        shown = run("train", folder / f"{name}.csv", "-t", "y", "-n", name, "-l", "nb", "-w", folder / "w")
        assert ("which looks like regression" in " ".join(shown.split())) is is_named


def test_few_rows_are_too_few_to_drift_in_words_json_and_exit_code(folder):
    (folder / "two.csv").write_text("a,b,y\nw,99,p\nw,98,q\n")
    asked = ("drift", "m", folder / "two.csv", "--check", "-w", folder / "w")
    printed = run(*asked)
    assert "2 rows are too few: a test needs 20" in printed and "no drift" not in printed
    assert json.loads(run(*asked, "--json"))["is_drifting"] is None


def test_compare_takes_a_glob_as_one_table_csv_and_columns(folder):
    tables = folder / "tables"
    tables.mkdir()
    lines = (folder / "other.csv").read_text().splitlines()
    for part in (0, 1):
        (tables / f"part{part}.csv").write_text("\n".join([lines[0], *lines[1 + part :: 2]]) + "\n")
    asked = ("-t", "y", "-l", "nb", "-r", "1", "--columns", OTHER)
    printed = run("compare", tables / "*.csv", *asked)
    assert "means over 1 data set" in printed and "trials" not in printed and "sign test" not in printed
    of_two = run("compare", tables, *asked, "-l", "kdb")
    assert "means over 2 data sets" in of_two and "sign test" in of_two and "--target names" not in of_two
    assert "--columns" in run("compare", tables, *asked[:-1], "[]", code=2)


def test_outputs_follow_the_umask(folder):
    out = folder / "umask.parquet"
    run("predict", "m", folder / "t.csv", "--out", out, "-w", folder / "w")
    plain = folder / "made"
    plain.touch()
    assert out.stat().st_mode == plain.stat().st_mode


def test_keys_that_a_server_on_loopback_does_not_ask_for_are_told_when_they_are_made(folder):
    printed = run("keys", "create", "ana", "--role", "predict", "-w", folder / "w")
    assert "does not require keys" in printed and "FEWPASS_REQUIRE_KEYS=true" in printed


def test_a_large_model_goes_to_sql_with_its_table_in_parquet_beside_the_script(folder, monkeypatch):
    from learners.registry.sql import script

    file, out = folder / "t.csv", folder / "m.sql"
    monkeypatch.setattr(script, "MOST_CELLS", 1)
    asked = ("models", "sql", "m", "--table", "rows", "-w", folder / "w")
    refused = str(CliRunner().invoke(app, list(map(str, asked))).exception)
    assert "more than the 1 that SQL export allows. For DuckDB, write the script to a file (--out, path=)" in refused
    (folder / "m.parquet").write_text("rows of the user")
    for more in ([], ["--force"]):
        assert "m.sql.parquet" in run(*asked, "--out", out, *more).replace("\n", "")
    assert (folder / "m.parquet").read_text() == "rows of the user"
    assert (folder / "m.sql.parquet").exists() and "read_parquet" in out.read_text()
    run("predict", "m", file, "--out", folder / "sql.parquet", "-w", folder / "w")
    database = duckdb.connect()
    database.execute(f"CREATE TABLE rows AS SELECT * FROM read_csv('{file}')")
    database.execute(out.read_text())
    found = database.execute("SELECT probability_p FROM m").fetchnumpy()["probability_p"]
    expected = pq.read_table(folder / "sql.parquet")["probability_p"].to_numpy()
    assert np.allclose(np.sort(found), np.sort(expected), atol=1e-12)


def test_a_column_called_prediction_has_its_own_place_in_sql():
    frame = pd.DataFrame({"prediction": list("xy") * 40, "probability_p": list("uuvv") * 20, "y": list("pqpp") * 20})
    model = fewpass.NB(m=1.0).fit(frame, "y")
    database = duckdb.connect()
    database.register("rows", frame)
    database.execute("CREATE TABLE copied AS SELECT * FROM rows")
    database.execute(model.to_sql("copied"))
    found = database.execute("SELECT * FROM fewpass").fetchdf()
    assert found.columns.tolist() == [
        "prediction", "probability_p", "prediction_of_model", "probability_p_of_model", "probability_q"
    ]  # fmt: skip
    assert np.allclose(np.sort(found["probability_q"]), np.sort(model.predict_proba(frame)[:, 1]))


def test_missing_classes_are_told_where_rows_are_scored():
    frame = pd.DataFrame({"a": list("xy") * 40, "b": range(80)})
    y = pd.Series([0, 1] * 40, dtype="Int64")
    model = fewpass.NB().fit(frame, y)
    y[3] = pd.NA
    with pytest.raises(InvalidParameter, match="1 classes are missing: leave these rows out"):
        model.score(frame, y)
    with pytest.raises(SchemaError, match="The target 'class' is null in at least 1 row"):
        fewpass.NB().fit(frame, np.array(y, dtype=object))


def test_half_a_character_in_a_frame_is_told():
    with pytest.raises(SchemaError, match="Column 'a' holds an unpaired surrogate"):
        fewpass.NB().fit({"a": ["\ud800", "x", "y"], "b": [1, 2, 3]}, ["p", "q", "p"])


def test_a_missing_mark_of_all_columns_is_kept_for_the_class(folder):
    """Said of `*`, it was forgotten: such rows counted as rows of an unknown class."""
    said = json.dumps({"*": {"missing": ["?"]}, "y": {"null_class": "drop"}})
    place = ("-w", folder / "w")
    printed = run(
        "train",
        folder / "t.csv",
        "-t",
        "y",
        "-n",
        "marked",
        "-l",
        "nb",
        "--columns",
        said,
        "--test",
        folder / "t.csv",
        *place,
    )
    assert "570 rows of test data" in printed and "not seen" not in printed
    assert "570 rows measured" in run("evaluate", "marked", folder / "t.csv", *place)


def test_compare_measures_the_default_learner_beside_others(tmp_path):
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"x": rng.integers(0, 3, 60), "y": rng.choice(["no", "yes"], 60)}), tmp_path / "t.parquet")
    printed = run("compare", tmp_path / "t.parquet", "-r", 1)
    assert all(learner in printed for learner in ("auto", "kdb:k=2", "nb", "xgboost"))
    assert "t: predicting 'y'; --target names another column" in printed


def test_files_whose_numbers_differ_in_type_are_trained_and_compared(tmp_path):
    """By default, which compares rows at random with the last ones from a thousand rows on."""
    draw = np.random.default_rng(0)
    for name, kind in {"a": np.int16, "b": np.int64, "c": np.float64, "d": bool}.items():
        y = draw.integers(0, 2, 400)
        table = pa.table(
            {"x": draw.integers(0, 2, 400).astype(kind), "n": draw.normal(y), "y": np.array(["no", "yes"])[y]}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet")
    where = ("-t", "y", "-l", "nb")
    assert "log loss" in run("train", tmp_path / "?.parquet", *where, "-n", "m", "-w", tmp_path / "w")
    assert "nb" in run("compare", tmp_path / "?.parquet", *where, "-r", 1)
    pq.write_table(pa.table({"x": ["u"] * 9, "n": draw.normal(size=9), "y": ["no"] * 9}), tmp_path / "e.parquet")
    drop = ("--columns", '{"x": "drop"}')
    assert "log loss" in run("train", tmp_path / "?.parquet", *where, *drop, "-n", "m", "-w", tmp_path / "w")
    assert "nb" in run("compare", tmp_path / "?.parquet", *where, *drop, "-r", 1)


def test_schema_offers_all_options_of_an_odd_file_at_once_and_train_takes_them(tmp_path):
    """Decimal commas, days, marks of missing values and rows without a class: one look, one training."""
    draw = random.Random(0)
    lines = ["price;day;delay;late"]
    for k in range(300):
        price, delay = draw.choice(range(1, 50)), "?" if k % 9 == 0 else k % 60
        late = "" if k % 30 == 0 else "yes" if price > 25 else "no"
        lines.append(f"{price},5;{draw.randrange(13, 29)}.{draw.randrange(1, 13):02}.2024;{delay};{late}")
    file = tmp_path / "odd.csv"
    file.write_text("\n".join(lines) + "\n")
    refused = refusal("schema", file, "-t", "late")
    offered = refused.split("All at once: --columns '")[1].split("'")[0]
    assert json.loads(offered) == {
        "price": {"decimal": ","},
        "day": {"date_format": "%d.%m.%Y"},
        "delay": {"missing": ["?"]},
        "late": {"null_class": "drop"},
    }
    train = ("train", file, "-t", "late", "-n", "odd", "-l", "nb", "-w", tmp_path / "w")
    shown = run("schema", file)
    assert "All at once: --columns" in shown and "warning: All at once" not in shown, "advice is no warning"
    assert f"All at once: --columns '{offered}'" in refusal(*train), "train offers the same"
    with_class = json.dumps({"late": {"null_class": "drop"}})
    assert f"All at once: --columns '{offered}'" in run("schema", file, "-t", "late", "--columns", with_class)
    assert "All at once" not in run(*train, "--columns", offered)
    schema = json.loads(run("schema", file, "-t", "late", "--columns", offered, "--json"))
    assert {"price", "delay"} <= {own["name"] for own in schema["attributes"] if own["kind"] == "numeric"}


def test_messages_spell_options_as_the_user_sets_them(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a,y\n" + "1,p\n2,q\n3,\n" * 20)
    assert '--columns \'{"y": {"null_class": "drop"}}\'' in refusal("schema", file, "-t", "y")
    with pytest.raises(SchemaError, match=r"columns=\{'y': \{'null_class': 'drop'\}\} leaves them out"):
        fewpass.NB(target="y").fit(file)
    with (
        messages_for(Surface.JSON),
        pytest.raises(SchemaError, match=r'"columns": \{"y": \{"null_class": "drop"\}\} leaves'),
    ):
        fewpass.NB(target="y").fit(file)
    with pytest.raises(InvalidParameter, match="threads=0 must be one or more"):
        fewpass.NB(target="y", threads=0).fit(file)
