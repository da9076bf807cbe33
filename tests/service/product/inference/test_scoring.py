"""Files of scored rows: in order on any number of threads, without reading what nobody asks for."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFile

from learners import Source, drive, encode
from learners.errors import SourceError
from learners.passes.sources.file_opening import uri_filesystem
from learners.registry import recipes
from service.product.inference.density_rows import Filling, write_density_scores, write_imputed_rows
from service.product.inference.scoring import SLOW_ROWS, measure_model, score_files, scored_batches
from service.product.outputs import output_destination
from service.requests.problems import InvalidRequest

N_ROWS = 1200


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, N_ROWS)
    town = np.array(["bern", "kiel", "rome"])[(rng.integers(0, 2, N_ROWS) + y) % 3]
    price = np.round(rng.normal(y, 1.0), 1)
    table = pa.table({"row": np.arange(N_ROWS), "price": price, "town": town, "class": np.array(["no", "yes"])[y]})
    found = tmp_path_factory.mktemp("scoring") / "rows.parquet"
    pq.write_table(table, found, row_group_size=100)
    return found


@pytest.fixture(scope="module")
def model(path):
    return drive(recipes.learner("nb", {}, "class", None, {"row": {"drop": True}}), Source.open(path), threads=1)


@pytest.mark.parametrize("threads", [1, 3])
def test_rows_come_in_their_order(threads, path, model, tmp_path):
    """Copied numbers have dictionaries, and answers have none."""
    assert score_files(model, Source.open(path), tmp_path / "out.parquet", keep=["row"], threads=threads) == N_ROWS
    written = pq.read_table(tmp_path / "out.parquet")
    assert written["row"].to_pylist() == list(range(N_ROWS))
    expected = model.predict_proba(encode(pq.read_table(path), model.schema, with_class=False))
    assert np.array_equal(written["probability_yes"].to_numpy(), expected[:, 1])
    group = pq.read_metadata(tmp_path / "out.parquet").row_group(0)
    has = {group.column(i).path_in_schema: group.column(i).has_dictionary_page for i in range(group.num_columns)}
    assert has == {"row": True, "prediction": True, "probability_no": False, "probability_yes": False}


@pytest.mark.parametrize("how", [{}, {"interval": 0.9}, {"is_explained": True}])
def test_slow_answers_report_their_rows_more_often(how, path, model, tmp_path):
    reported = []
    score_files(model, Source.open(path), tmp_path / "out.parquet", threads=2, report=reported.append, **how)
    done = [each["rows_done"] for each in reported]
    assert done == sorted(set(done)) and done[-1] == N_ROWS
    assert not how or max(np.diff([0, *done])) <= SLOW_ROWS


def test_only_columns_of_the_model_and_kept_ones_are_read(path, model, monkeypatch):
    asked = []
    read = Source.batches
    monkeypatch.setattr(Source, "batches", lambda self, columns=None: asked.append(columns) or read(self, columns))
    assert sum(batch.num_rows for batch in scored_batches(model, Source.open(path), ["row"])) == N_ROWS
    assert asked == [["row", "price", "town"]]


@pytest.mark.parametrize("name", ["prediction", "probability_no", "low_yes", "row"])
def test_a_kept_column_that_would_be_written_twice_is_refused_before_rows_are_scored(name, path, model, tmp_path):
    table = pq.read_table(path)
    table = table if name == "row" else table.append_column(name, table["row"])
    pq.write_table(table, tmp_path / "in.parquet")
    keep = [name, name] if name == "row" else [name]
    source, told = Source.open(tmp_path / "in.parquet"), []
    with pytest.raises(InvalidRequest, match=f"'{name}' would be written twice: remove it from --keep"):
        score_files(model, source, tmp_path / "out.parquet", keep=keep, interval=0.9, report=told.append)
    assert not told and not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("how", [{}, {"is_explained": True}, {"top_k": 2}, {"interval": 0.9}])
def test_files_without_rows_give_an_output_without_rows(how, path, model, tmp_path):
    pq.write_table(pq.read_table(path).slice(0, 0), tmp_path / "empty.parquet")
    for name, source in {"some": path, "none": tmp_path / "empty.parquet"}.items():
        score_files(model, Source.open(source), tmp_path / f"{name}.parquet", keep=["town"], **how)
    none, some = pq.read_table(tmp_path / "none.parquet"), pq.read_schema(tmp_path / "some.parquet")
    assert none.num_rows == 0 and none.column_names == some.names
    assert none.schema.types[1:] == some.types[1:], "a column that is kept may be a dictionary of its text"


def test_files_without_rows_are_scored_and_filled_into_outputs_without_rows(path, tmp_path):
    circuit = drive(recipes.learner("spn", {"passes": 2, "states": 2}, None), Source.open(path))
    pq.write_table(pq.read_table(path).slice(0, 0), tmp_path / "empty.parquet")
    for name, place in {"some": path, "none": tmp_path / "empty.parquet"}.items():
        source, to = Source.open(place), tmp_path / name
        told = write_density_scores(circuit, source, to.with_name(f"{name}-scored.parquet"), keep=["town"])
        filled = write_imputed_rows(circuit, source, to.with_name(f"{name}-filled.parquet"), Filling())
    assert told["n_rows"] == filled["n_rows"] == 0
    for what in ("scored", "filled"):
        none = pq.read_table(tmp_path / f"none-{what}.parquet")
        assert none.num_rows == 0 and none.column_names == pq.read_schema(tmp_path / f"some-{what}.parquet").names
    with pytest.raises(InvalidRequest, match="'town' would be written twice: remove it from --keep"):
        write_density_scores(circuit, Source.open(path), tmp_path / "twice.parquet", keep=["town", "town"])


def test_an_address_is_no_file_to_write(path, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for output, why in {
        Path(
            "s3://bucket/out.parquet"
        ): "begins with 's3:' and is not a local path. Use a path, or, for a single file, pass the address as text",
        "https://shop.example/out.parquet": "is on a web server, which is read-only. Use a local path, or a store such as s",
        "duckdb://shop.db?table=out": "is a database, but rows can only be written to files. Name a file",
    }.items():
        with pytest.raises(InvalidRequest, match=why):
            score_files(model, Source.open(path), output)
    with pytest.raises(SourceError, match="is not a usable URI"):
        score_files(model, Source.open(path), "delta://bucket/out.parquet")
    assert not list(tmp_path.iterdir()), "no folder s3: is left"


def test_a_file_of_a_store_appears_when_it_is_whole(path, model, monkeypatch):
    """Of one that does not write files as a whole: under another name first, of which nothing stays."""
    output = "memory://shop/out.parquet"
    n_rows = score_files(model, Source.open(path), output)
    assert Source.open(output).n_rows == n_rows
    with pytest.raises(InvalidRequest, match=r"memory://shop/out.parquet already exists. Choose another name"):
        score_files(model, Source.open(path), output)
    assert score_files(model, Source.open(path), output, replace=True) == n_rows
    store, folder = uri_filesystem("memory://shop")
    assert len(store.get_file_info(pafs.FileSelector(folder))) == 1
    place = output_destination("memory://shop/b.parquet")
    monkeypatch.setattr(MemoryFile, "write", Mock(side_effect=OSError("the store is gone")))
    with pytest.raises(SourceError, match=r"memory://shop/b.parquet cannot be written \(the store is gone\)"):
        place.put(path)
    assert len(store.get_file_info(pafs.FileSelector(folder))) == 1


@pytest.mark.parametrize(("target", "name"), [("class", "log_loss"), (None, "log_likelihood")])
def test_a_measured_mean_has_the_standard_error_of_its_rows(target, name, path, model):
    circuit = None if target else drive(recipes.learner("spn", {"passes": 2, "states": 2}, None), Source.open(path))
    table = pq.read_table(path).slice(0, 60)
    of_rows = [measure_model(circuit or model, Source.of_table(table.slice(i, 1))).metrics for i in range(60)]
    assert of_rows[0][f"{name}_error"] is None, "one row has no standard error"
    losses = np.array([one[name] for one in of_rows])
    found = measure_model(circuit or model, Source.of_table(table)).metrics
    assert found[name] == pytest.approx(losses.mean())
    assert found[f"{name}_error"] == pytest.approx(losses.std(ddof=1) / np.sqrt(60))
