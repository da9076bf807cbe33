"""The examples of CONTRIBUTING.md are a statistic, a learner, a file format and a kind of model as all others."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from fewpass.estimators import _CLASSES
from learners import Source, drive, encode
from learners.passes.sources import file_formats
from learners.registry import recipes
from tests import laws, strategies

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
STATISTIC, LEARNER, ENTRY, STUB, FORMAT, KIND = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@given(drawn=strategies.chunk_lists())
@settings(max_examples=20)
def test_the_statistic_obeys_the_laws(drawn):
    schema, parts = drawn
    names = {}
    exec(compile(STATISTIC, "CONTRIBUTING.md", "exec"), names)
    empty = names["ClassCounts"](schema)
    laws.merging_commutes_and_associates(empty, parts)
    laws.the_empty_statistic_is_neutral(empty, parts)
    laws.merging_leaves_the_other_as_it_was(empty, parts)
    laws.what_was_added_can_be_subtracted(empty, parts)
    laws.it_says_what_it_can(empty, parts)


def test_the_learner_trains_by_its_name(monkeypatch):
    monkeypatch.setattr(recipes, "LEARNERS", dict(recipes.LEARNERS))
    names = vars(recipes).copy()
    exec(compile(LEARNER + ENTRY, "CONTRIBUTING.md", "exec"), names)
    table = pa.table({"noise": ["a", "b"] * 40, "sign": ["x", "x", "y", "y"] * 20, "class": ["n", "n", "p", "p"] * 20})
    model = drive(recipes.learner("best-attribute", {}, "class"), Source.of_table(table))
    assert [model.schema.attributes[i].name for i in model.network.order] == ["sign"]
    assert (model.predict_proba(encode(table, model.schema)).argmax(axis=1) == [0, 0, 1, 1] * 20).all()


def test_the_kind_of_model_is_the_one_that_every_verb_is_tried_on():
    text = (Path(__file__).parent / "registry" / "gaussian_naive_bayes.py").read_text()
    assert KIND.startswith("GAUSSIAN_NAIVE_BAYES = Kind(") and KIND in text


def test_the_learner_has_an_estimator_without_another_line():
    """In a process of its own, since the classes are made when they are imported."""
    lines = f"""
from learners.registry import recipes
exec(compile({LEARNER + ENTRY!r}, "CONTRIBUTING.md", "exec"), vars(recipes))
import pickle
import fewpass
model = fewpass.BestAttribute(target="class").fit({{"sign": ["x", "y"] * 40, "class": ["n", "p"] * 40}})
assert model.predict({{"sign": ["x", "y"]}}).tolist() == ["n", "p"]
again = pickle.loads(pickle.dumps(model))
assert type(again) is fewpass.BestAttribute and again.predict({{"sign": ["y"]}}).tolist() == ["p"]
"""
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("example", [STATISTIC, LEARNER], ids=["statistic", "learner"])
@pytest.mark.parametrize("command", ["check", "format --check"])
def test_the_examples_pass_the_checks_of_a_file(example, command):
    words = [sys.executable, "-m", "ruff", *command.split(), "--stdin-filename", "learners/classifiers/example.py", "-"]
    done = subprocess.run(words, input=example, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_class_of_estimators_has_the_line_in_the_stub():
    assert "`_CLASSES`" in TEXT
    lines = (ROOT / "fewpass" / "__init__.pyi").read_text().splitlines()
    assert not [cls.__name__ for cls in _CLASSES if STUB.strip().replace("BestAttribute", cls.__name__) not in lines]


def test_the_file_format_is_read_by_its_line(tmp_path, monkeypatch):
    names = vars(file_formats).copy()
    exec(compile(f"added = {FORMAT}", "CONTRIBUTING.md", "exec"), names)
    monkeypatch.setitem(file_formats.FORMATS, names["added"].name, names["added"])
    table = pa.table({"size": [1.0, 2.0]})
    path = tmp_path / "rows.batches"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert Source.open([path]).n_rows == 2
