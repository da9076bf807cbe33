"""Training a circuit that the user gives as a file."""

import json

import numpy as np
import pyarrow as pa
import pytest

from learners import encode
from learners.circuits.errors import CircuitFormatError
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.from_file import read_circuit
from learners.circuits.structures.text import parse_text, to_json, to_text
from learners.errors import InvalidParameter, SchemaError, SourceError
from learners.schema import Chunk
from tests.circuits.answer_circuits import learned

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


def table(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 2, n_rows)
    b = np.where(rng.random(n_rows) < 0.7, np.array(["x", "y"])[a], "z")
    return pa.table({"a": pa.array(a, pa.int8()), "b": b, "c": np.where(rng.random(n_rows) < 0.8, a, 1 - a) > 0})


def trained(path, data=None, target=None, columns=None, **parameters):
    data = table() if data is None else data
    return learned(data, target, columns, structure="file", circuit=str(path), **parameters)


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
    model, fresh = trained(file, target="c"), table(seed=1)
    assert (model.predict_proba(encode(fresh, model.schema)).argmax(1) == fresh["c"].to_numpy()).mean() > 0.7


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
        (["a", "b", "c"], NUMERIC, "Variable 0 of .* is numeric, but column 'a' is nominal"),
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


def test_a_constant_column_stays_if_its_values_are_given_and_a_class_of_another_size_is_refused(file):
    data = table().set_column(0, "a", pa.array(np.zeros(400, np.int8)))
    with pytest.raises(SchemaError, match=r"Columns left out: 'a' \(one value only\); to keep one, give its values"):
        trained(file, data)
    assert trained(file, data, columns={"a": {"order": [0, 1]}}).circuit.n_variables == 3
    data = table().set_column(2, "c", pa.array(["p", "q", "r", "s"] * 100))
    with pytest.raises(SchemaError, match="The last variable of the circuit has 2 values, the class 'c' 4"):
        trained(file, data, target="c")


def test_what_is_no_circuit_is_refused(tmp_path):
    for content, words in (
        (b"\xff\xfe", "neither text nor JSON"), (b"{}", "not a circuit"), (b"hello", "line 1"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
        (TEXT.replace("7 prod 1 3 5", "7 prod 1 3").encode(), "file: Node 8 .*not complete"),
    ):  # fmt: skip
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(CircuitFormatError, match=words):
            read_circuit(str(tmp_path / "file"))
    for path, words in ((tmp_path / "none", "no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(SourceError, match=words):
            read_circuit(str(path))


SMALL = "vars 2 0\n0 cat 0 0.4 0.6\n1 gauss 1 0 1\n2 gauss 1 5 1\n3 sum 1:1 2:3\n4 prod 0 3\n"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("4 prod 0 3", "4 prod 0 4", "line 6: node 4 is not defined yet"),
        ("2 gauss", "1 gauss", "line 4: .*node 1 is defined twice"),
        ("4 prod", "vars 2 0\n4 prod", "line 6: .*`vars` occurs twice"),
        ("1:1 2:3", "1:nan 2:3", "line 5: .*weights must be finite, zero or more, and not all zero"),
        ("1:1 2:3", "1:-1 2:3", "line 5: .*weights must be finite, zero or more, and not all zero"),
        ("1:1 2:3", "1:1e308 2:1e308", "line 5: cannot read"),
        ("1:1 2:3", "1 2", "line 5: .*the children of a sum are written CHILD:WEIGHT"),
        ("4 prod 0 3", "4 prod 0 3\nroot", "line 7: .*`root` takes one number"),
        ("4 prod 0 3", "4", "line 6: .*a node needs a number, a kind and the arguments of that kind"),
        ("0 cat 0 0.4 0.6", "0 cat 0", "line 2: .*a leaf needs a variable and parameters"),
        ("0 cat 0", f"0 cat {2**70}", "line 2: .*its number is too large"),
        ("vars 2 0", f"vars {2**70} 0", "line 1: .*its number is too large"),
        ("vars 2 0", "vars 2 " + "9" * 5000, "line 1: cannot read 'vars 2 9{93}…': Exceeds the limit"),
        ("gauss 1 5 1", "gauss 1 1e200 1", "Node 2 has a parameter above 1e.140"),
        ("gauss 1 5 1", "gauss 1 5 1e-320", "Node 2 has .*a scale below 1e-140"),
        ("gauss 1 5 1", "gauss 1 5 0", "Node 2 has a standard deviation that is not positive"),
        ("4 prod 0 3", "4 prod 0 3 3", "Node 4 is a product whose children share a variable"),
    ],
)
def test_what_is_wrong_in_a_text_is_named(tmp_path, old, new, words):
    assert SMALL.count(old) == 1
    (tmp_path / "file").write_text(SMALL.replace(old, new))
    with pytest.raises(CircuitFormatError, match=words) as raised:
        read_circuit(str(tmp_path / "file"))
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("children", [1, 2.5, 0, 3], "'children' must contain only whole numbers"),
        ("children", [1, "2", 0, 3], "'children' must contain only whole numbers"),
        ("children", [True, 2, 0, 3], "'children' must contain only whole numbers"),
        ("children", [1, 2**70, 0, 3], "'children' contains a number that is too large"),
        ("children", [1, 2, 0, 4], "Node 4 has the child 4"),
        ("kind", [259, 4, 4, 0, 1], "a whole number of more than 8 bits"),
        ("log_weight", [None, "0", 0, 0], "'log_weight' must contain only numbers"),
        ("log_weight", [float("nan"), 0, 0, 0], "Node 3 has weights that add up to nan"),
    ],
)
def test_what_is_wrong_in_json_is_named(tmp_path, name, values, words):
    document = json.loads(to_json(parse_text(SMALL.splitlines())))
    assert len(document[name]) == len(values)
    (tmp_path / "file").write_text(json.dumps(document | {name: values}))
    with pytest.raises(CircuitFormatError, match=words):
        read_circuit(str(tmp_path / "file"))


def test_files_of_other_systems_are_read(tmp_path):
    """With a byte order mark, and with their ends of lines; a chain may be as long as it likes."""
    circuit = parse_text(SMALL.splitlines())
    for number, content in enumerate(("\ufeff" + SMALL, SMALL.replace("\n", "\r\n"), "\ufeff" + to_json(circuit))):
        (tmp_path / str(number)).write_bytes(content.encode())
        assert read_circuit(str(tmp_path / str(number)))[0] == circuit
    (tmp_path / "chain").write_text("vars 2\n0 cat 0 1 3\n" + "".join(f"{i} prod {i - 1}\n" for i in range(1, 20_000)))
    data = table().select(["a"])
    logs = trained(tmp_path / "chain", data, learning="none").log_likelihood(Chunk(np.array([[0, 1]], np.uint8), None))
    assert logs == pytest.approx(np.log([0.25, 0.75]))


def test_a_mixture_of_several_kinds_takes_the_numbers_of_the_widest(tmp_path):
    rng = np.random.default_rng(0)
    for kinds, x in (("pois 0 3|gauss 0 0 1", rng.normal(size=200)), ("expo 0 1|pois 0 3", rng.exponential(size=200))):
        one, other = kinds.split("|")
        (tmp_path / "file").write_text(f"vars 0\n0 {one}\n1 {other}\n2 sum 0:1 1:1\n")
        model = trained(tmp_path / "file", pa.table({"x": x}))
        assert model.schema.attributes[0].distribution == ("gaussian" if "gauss" in kinds else "exponential")


@pytest.mark.parametrize("parameters", [{"structure": "file"}, {"circuit": "x.txt"}])
def test_a_file_belongs_to_structure_file(parameters):
    with pytest.raises(InvalidParameter, match="it names a file and belongs to structure='file'"):
        learned(table(), **parameters)


@pytest.mark.parametrize("form", [to_text, to_json])
def test_what_is_written_of_a_model_trains_back_with_its_cut_points(form, tmp_path):
    rng = np.random.default_rng(0)
    number = rng.normal(size=300)
    data = pa.table(
        {
            'a "name" [1]': pa.array(number, mask=rng.random(300) < 0.1),
            "b": np.where(number > 0, "x", "y"),
            "c": pa.array(rng.integers(0, 9000, 300), pa.duration("s")),
        }
    )
    model = learned(data, structure="hclt", states=2, passes=1, n_bins=3)
    path = tmp_path / "written"
    path.write_text(form(model.circuit, model.schema))
    again = trained(path, data, learning="none")
    assert again.schema == model.schema
    rows = encode(data, model.schema)
    np.testing.assert_allclose(again.log_likelihood(rows), model.log_likelihood(rows))
    turned = trained(path, data.select(["c", "b", 'a "name" [1]']), learning="none")
    np.testing.assert_allclose(turned.log_likelihood(rows), model.log_likelihood(rows))
    other = data.rename_columns(["d", "b", "c"])
    with pytest.raises(SchemaError, match="'d'"):
        trained(path, other, learning="none")
