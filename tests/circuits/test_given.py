"""Training a circuit that the user gives as a file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, drive, encode, learner
from learners.circuits.errors import CircuitFormatError
from learners.circuits.evaluate import log_values
from learners.circuits.structures.given import read_circuit
from learners.circuits.text import parse_text, to_json, to_text
from learners.errors import InvalidParameter, SchemaError, SourceError

TEXT = """vars 2 3 2
0 ind 0 0
1 ind 0 1
2 cat 1 0.2 0.3 0.5
3 cat 1 0.6 0.2 0.2
4 cat 2 0.1 0.9
5 cat 2 0.7 0.3
6 prod 0 2 4
7 prod 1 3 5
8 sum 6:0.4 7:0.6
"""
NUMERIC = "vars 0 2 0\n0 gauss 0 0 1\n1 cat 1 0.5 0.5\n2 pois 2 3\n3 prod 0 1 2\n"


def table(n_rows: int = 400, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n_rows)
    b = np.where(rng.random(n_rows) < 0.7, np.array(["x", "y"])[a], "z")
    return pa.table({"a": pa.array(a, pa.int8()), "b": b, "c": np.where(rng.random(n_rows) < 0.8, a, 1 - a) > 0})


def trained(path, data=None, target=None, columns=None, **parameters):
    asked = {"structure": "file", "circuit": str(path)} | parameters
    return drive(learner("spn", asked, target, overrides=columns), Source.of_table(table() if data is None else data))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "circuit.txt"
    path.write_text(TEXT)
    return path


def test_without_learning_it_is_the_circuit_of_the_file_in_either_format(file, tmp_path):
    (tmp_path / "circuit.json").write_text(to_json(parse_text(TEXT.splitlines())))
    for path in (file, tmp_path / "circuit.json"):
        model = trained(path, learning="none")
        assert to_text(model.circuit) == to_text(parse_text(TEXT.splitlines()))
        rows = table()
        codes = np.stack([rows["a"].to_numpy(), np.searchsorted(["x", "y", "z"], rows["b"]), rows["c"].to_numpy()])
        expected = log_values(model.circuit, codes.astype(np.float64))
        np.testing.assert_allclose(model.log_likelihood(encode(rows, model.schema)), expected)


@pytest.mark.parametrize("learning", ["em", "adf", "bmm"])
def test_learning_starts_at_its_weights_and_keeps_its_structure(file, learning):
    start, model = trained(file, learning="none"), trained(file, learning=learning)
    assert np.array_equal(model.circuit.children, start.circuit.children)
    rows = encode(table(), start.schema)
    assert model.log_likelihood(rows).mean() > start.log_likelihood(rows).mean() + 0.1


def test_the_class_is_the_last_variable(file):
    model = trained(file, target="c")
    accuracy = (
        model.predict_proba(encode(table(seed=1), model.schema)).argmax(1) == table(seed=1)["c"].to_numpy()
    ).mean()
    assert accuracy > 0.7


def test_numeric_columns_have_the_densities_of_its_leaves(tmp_path):
    path = tmp_path / "numeric.txt"
    path.write_text(NUMERIC)
    rng = np.random.default_rng(3)
    data = pa.table({"x": rng.normal(5, 2, 2000), "b": rng.random(2000) < 0.25, "n": rng.poisson(7, 2000)})
    model = trained(path, data, leaves="intervals")
    assert [attribute.distribution for attribute in model.schema.attributes] == ["gaussian", None, "poisson"]
    mean, std, rate = model.circuit.leaf_parameters[[0, 1, 4]]
    assert (mean, std, rate) == pytest.approx((data["x"].to_numpy().mean(), data["x"].to_numpy().std(), 7), rel=0.05)


@pytest.mark.parametrize(
    ("columns", "text", "words"),
    [
        (["a", "b"], TEXT, "has 3 variables, but the table 2 columns"),
        (["a", "a2", "b", "c"], TEXT, "has 3 variables, but the table 4 columns"),
        (["b", "a", "c"], TEXT, "Variable 0 of the circuit has 2 values, column 'b' 3"),
        (["a", "b", "c"], NUMERIC, "Variable 0 of .* is a number, but column 'a' is nominal"),
        (["a", "b", "c"], TEXT.replace("6 prod 0 2 4\n7 prod 1 3 5", "6 prod 0 2\n7 prod 1 3"), "no leaf for column 'c'"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_named(file, columns, text, words):
    lines = text.splitlines()
    if "no leaf" in words:
        lines = [line for line in lines if "cat 2" not in line]
    file.write_text("\n".join(lines))
    data = table().append_column("a2", table()["a"]).select(columns)
    with pytest.raises(SchemaError, match=words):
        trained(file, data)


def test_a_constant_column_stays_if_its_values_are_given(file):
    data = table().set_column(0, "a", pa.array(np.zeros(400, np.int8)))
    with pytest.raises(SchemaError, match=r"Left out are 'a' \(constant\); a column stays if you give its values"):
        trained(file, data)
    assert trained(file, data, columns={"a": {"order": [0, 1]}}).circuit.n_variables == 3


def test_a_class_of_another_size_is_refused(file):
    data = table().set_column(2, "c", pa.array(["p", "q", "r", "s"] * 100))
    with pytest.raises(SchemaError, match="The last variable of the circuit has 2 values, the class 'c' 4"):
        trained(file, data, target="c")


def test_what_is_no_circuit_is_refused(tmp_path):
    for content, words in ((b"\xff\xfe", "neither text nor JSON"), (b"{}", "not a circuit"), (b"hello", "line 1")):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(CircuitFormatError, match=words):
            read_circuit(str(tmp_path / "file"))
    (tmp_path / "file").write_text(TEXT.replace("7 prod 1 3 5", "7 prod 1 3"))
    with pytest.raises(CircuitFormatError, match=r"file: Node 8 .*not complete"):
        read_circuit(str(tmp_path / "file"))
    with pytest.raises(SourceError, match="no such file"):
        read_circuit(str(tmp_path / "none"))
    with pytest.raises(SourceError, match="cannot be read"):
        read_circuit(str(tmp_path))


@pytest.mark.parametrize("parameters", [{"structure": "file"}, {"circuit": "x.txt"}])
def test_a_file_belongs_to_structure_file(parameters):
    with pytest.raises(InvalidParameter, match="name a file, and only with structure 'file'"):
        learner("spn", parameters, None)
