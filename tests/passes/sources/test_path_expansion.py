"""Files of folders and globs come by name, with the numbers in names by size."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source
from learners.passes.learner import drive
from learners.passes.sources.path_expansion import by_name_and_number
from learners.passes.sources.row_filter import select_newest_rows
from learners.registry import recipes

NAMES = ["b.parquet", "part-10.parquet", "part-2.parquet", "part-1.parquet", "a/part-3.parquet"]
ORDERED = ["a/part-3.parquet", "b.parquet", "part-1.parquet", "part-2.parquet", "part-10.parquet"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for number, name in enumerate(NAMES):
        pq.write_table(pa.table({"x": [str(number % 2)] * 5, "y": ["u", "v", "u", "u", "v"]}), tmp_path / name)
    return tmp_path


def names_of(source, folder):
    return [file.path.removeprefix(f"{folder}/") for file in source.files]


@pytest.mark.parametrize(("end", "names"), [("", ORDERED), ("/*.parquet", ORDERED[1:])])
def test_files_come_by_name_and_number(folder, end, names):
    assert names_of(Source.open(f"{folder}{end}"), folder) == names


def test_named_files_come_as_given(folder):
    own = ["part-10.parquet", "b.parquet", "part-2.parquet"]
    assert names_of(Source.open([folder / name for name in own]), folder) == own


def test_the_last_files_are_those_with_the_largest_numbers(folder):
    source = Source.open([folder / name for name in NAMES])
    assert [NAMES[index] for index in select_newest_rows(source, "2f", None).wanted] == [
        "part-10.parquet",
        "part-2.parquet",
    ]


def test_equal_numbers_are_told_apart():
    assert sorted(["x1", "x01", "x001y", "x1a", "x"], key=by_name_and_number) == ["x", "x01", "x1", "x1a", "x001y"]


def test_a_stream_keeps_the_order_of_its_files(folder):
    own = ["part-10.parquet", "part-2.parquet"]
    for paths, names in ((folder, ORDERED), ([folder / name for name in own], own)):
        learner = recipes.learner("spn", {"structure": "chow-liu", "learning": "adf"}, None)
        facts = drive(learner, Source.open(paths), threads=1).facts
        assert facts["n_files"] == len(names)
        assert facts["files_in_order"] == [name.rpartition("/")[2] for name in names]
