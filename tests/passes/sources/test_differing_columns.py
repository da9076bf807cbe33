"""Files of one table whose columns differ: refused by name, or read by a rule."""

import pickle

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from learners import encode, infer_schema
from learners.errors import InvalidParameter, SourceError
from learners.estimators import NB
from learners.passes.sources.csv.types import declared_types
from learners.passes.sources.source import Source, file_identity
from learners.schema import Schema

OLD = pa.table({"x": ["u", "v", "u", "v"], "y": ["a", "b", "a", "b"], "gone": [1, 2, 3, 4]})
NEW = pa.table({"y": ["a", "b"], "z": [0.5, None], "x": ["v", "u"]})
RULES = {"union": ["x", "y", "gone", "z"], "intersection": ["x", "y"], "first": ["x", "y", "gone"]}


def by_parquet(table, path):
    pq.write_table(table.set_column(table.column_names.index("x"), "x", table["x"].dictionary_encode()), path)


WRITERS = {
    "parquet": by_parquet,
    "csv": lambda table, path: table.to_pandas().to_csv(path, index=False),
    "jsonl": lambda table, path: table.to_pandas().to_json(path, orient="records", lines=True),
    "feather": pyarrow.feather.write_feather,
}


@pytest.fixture(params=WRITERS)
def files(request, tmp_path):
    for name, table in (("1", OLD), ("2", NEW)):
        WRITERS[request.param](table, tmp_path / f"{name}.{request.param}")
    return tmp_path / f"*.{request.param}"


def opened(files, columns=None, schema=None):
    return Source.open(files, types=declared_types(schema, columns))


def rows(source):
    return [row for batch in source.batches() for row in batch.to_pylist()]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_says_which_columns_count(rule, files):
    source = opened(files, {"*": {"columns_of": rule}})
    assert source.arrow_schema.names == RULES[rule]
    expected = [{name: row.get(name) for name in RULES[rule]} for row in OLD.to_pylist() + NEW.to_pylist()]
    assert rows(source) == expected
    assert [row for batch in source.batches(["x"]) for row in batch["x"].to_pylist()] == [row["x"] for row in expected]
    last = RULES[rule][-1]
    assert [value for batch in source.batches([last]) for value in batch[last].to_pylist()] == [
        r[last] for r in expected
    ]
    assert rows(pickle.loads(pickle.dumps(source.carved([1])))) == expected[4:]


def test_without_a_rule_the_error_names_files_and_options(files):
    with pytest.raises(SourceError) as refused:
        opened(files)
    for word in ("2.", "has no column 'gone', which", "1.", '{"*": {"columns_of": "union"}}', '{"gone": "drop"}'):
        assert word in str(refused.value)
    with pytest.raises(InvalidParameter, match=r"columns\['\*'\].columns_of"):
        opened(files, {"*": {"columns_of": "all"}})


def test_what_is_dropped_does_not_count(files):
    columns = {"z": "drop", "gone": {"drop": True}}
    schema = infer_schema(opened(files, columns), "y", columns)
    assert [attribute.name for attribute in schema.attributes] == ["x"]
    assert len(rows(opened(files, schema=schema))) == 6, "the model remembers what it dropped"
    with pytest.raises(SourceError, match="has no column 'gone'"):
        opened(files, {"z": "drop"})


@pytest.mark.parametrize("rule", RULES)
def test_a_file_of_which_other_columns_count_is_another_for_stored_statistics(rule, files):
    paths = [str(files).replace("*", name) for name in "12"]
    both = opened(paths, {"*": {"columns_of": rule}})
    for file, path in zip(both.files, paths, strict=True):
        alone = opened([path]).files[0]
        is_same = set(RULES[rule]) == set(opened([path]).arrow_schema.names)
        assert (file_identity(file) == file_identity(alone)) == is_same
        assert file.footer_sha256 == alone.footer_sha256, "rules of forgotten rows know it again"


def test_a_model_of_the_union_is_that_of_one_table_with_nulls(files):
    columns = {"*": {"columns_of": "union"}, "gone": {"cuts": [2.5]}, "z": {"cuts": [0.25]}}
    whole = pa.concat_tables([OLD, NEW], promote_options="default")
    model = NB(target="y", columns=columns).fit(str(files))
    expected = NB(target="y", columns=columns).fit(whole)
    assert model.predict_proba(whole).tolist() == expected.predict_proba(whole).tolist()
    assert model.predict_proba(str(files)).tolist() == expected.predict_proba(whole).tolist()
    assert Schema.from_json(model.model_.schema.to_json()).dialect.columns_of == "union"


def test_times_with_and_without_a_zone_are_of_one_clock(tmp_path):
    moments = pa.array([0, 90, 86_400], pa.timestamp("ms"))
    for name, times in (("1", moments), ("2", moments.cast(pa.int64()).cast(pa.timestamp("ms", "Europe/Berlin")))):
        pq.write_table(pa.table({"x": times, "y": ["a", "b", "b"]}), tmp_path / f"{name}.parquet")
    for said in ("nominal", {"cuts": [0.05, 80.0]}):
        schema = infer_schema(opened(tmp_path), "y", {"x": said})
        codes = [encode(batch, schema).x[0].tolist() for batch in opened(tmp_path).batches()]
        assert codes[0] == codes[1] and len(set(codes[0])) > 1
