"""XMLBIF and XDSL, read and written; and network files of any format."""

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given

from learners.errors import InvalidParameter
from learners.models.query import Conditional
from learners.orders.formats.network_files import (
    choose_network_file_format,
    format_network,
    parse_network,
    read_network,
)
from learners.orders.formats.network_tables import InvalidNetwork, Network, NetworkFileError, replace_network_names
from learners.registry.discrete_networks import _table, network_model
from tests.support.orders import ASIA, some_networks, table_cells

PUBLISHED = Path(__file__).parent.parent.parent / "published" / "networks"
# Names and values that the formats have no words for, and a child of parents with two and three values.
FIXED = Network(
    {"size": ("(-inf, 5]", "(5, 7]", "(7, inf]"), "a word": ("u, v", 'say "w"'), "late": ("no", "yes")},
    {"size": (), "a word": ("size",), "late": ("a word", "size")},
    {
        "size": {(): (1 / 7, 2 / 7, 4 / 7)},
        "a word": {("(-inf, 5]",): (1e-7, 1 - 1e-7), ("(5, 7]",): (1 / 3, 2 / 3), ("(7, inf]",): (0.875, 0.125)},
        "late": {(): (1.0, 0.0, 0.9, 0.1, 0.8, 0.2, 0.3, 0.7, 0.45, 0.55, 0.65, 0.35)},
    },
)
XMLBIF = """<?xml version="1.0"?>
<!DOCTYPE BIF [ <!ELEMENT BIF ( NETWORK )*> <!ATTLIST BIF VERSION CDATA #REQUIRED> ]>
<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>
<VARIABLE TYPE="nature"><NAME> lung cancer </NAME><OUTCOME>none</OUTCOME><OUTCOME>some</OUTCOME></VARIABLE>
<VARIABLE><NAME>smoke</NAME><OUTCOME>a</OUTCOME><OUTCOME>b</OUTCOME><OUTCOME>c</OUTCOME></VARIABLE>
<DEFINITION><FOR>lung cancer</FOR><GIVEN>smoke</GIVEN>
<TABLE> .9 .1 <!-- b --> .8 .2
0.7 3e-1</TABLE></DEFINITION>
<DEFINITION><FOR>smoke</FOR><TABLE>0.5 0.25 0.25</TABLE></DEFINITION>
</NETWORK></BIF>
"""
XDSL = """<?xml version="1.0" encoding="ISO-8859-1"?>
<smile version="1.0" id="n"><nodes>
<cpt id="smoke"><state id="a" /><state id="b" /><probabilities>0.5 0.5</probabilities></cpt>
<deterministic id="both"><state id="no" /><state id="yes" /><parents>smoke tub</parents>
<resultingstates>yes no no no</resultingstates></deterministic>
<cpt id="tub"><state id="a" /><state id="b" /><probabilities>0.125 0.875</probabilities></cpt>
</nodes><extensions><genie version="1.0"><node id="smoke"><name>Rauchen für alle</name></node></genie></extensions></smile>
"""


def test_xmlbif_is_read():
    network = parse_network(XMLBIF.encode(), "it")
    assert network.values == {"lung cancer": ("none", "some"), "smoke": ("a", "b", "c")}
    assert network.edges == ("smoke->lung cancer",)
    assert network.probabilities("lung cancer") == [0.9, 0.1, 0.8, 0.2, 0.7, 0.3]
    assert parse_network(XMLBIF.replace('"1.0"?', '"1.0" encoding="UTF-16"?').encode("utf-16"), "it") == network


def test_xdsl_is_read():
    network = parse_network(XDSL.encode("latin-1"), "it")
    assert list(network.values) == ["smoke", "both", "tub"]
    assert network.parents["both"] == ("smoke", "tub")
    assert network.probabilities("both") == [0, 1, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("form", ["bif", "bifxml", "xdsl"])
def test_what_we_write_is_what_others_have_read(form):
    """`read-by-others.csv` holds what pgmpy and pyAgrum made of these files."""
    text = (PUBLISHED / f"ours.{form}").read_text()
    assert format_network("plant", FIXED, choose_network_file_format(f"a.{form}", None)) == text
    assert parse_network(text.encode(), "it").parents == FIXED.parents
    told = network_model(FIXED).answer([Conditional(("size", "a word"), {"late": "yes"})])[0]["distributions"]
    expected = [p for distribution in told.values() for p in distribution.values()]
    with (PUBLISHED / "read-by-others.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["format"] == form]
    programs = {row["program"] for row in rows}
    assert programs == {"pgmpy 1.1.2"} | ({"pyagrum 3.3.1"} if form != "xdsl" else set())
    for program in programs:
        found = [float(row["probability"]) for row in rows if row["program"] == program]
        # pyAgrum's reader of BIF has numbers of 32 bits.
        assert found == pytest.approx(expected, abs=1e-7 if (program, form) == ("pyagrum 3.3.1", "bif") else 1e-12)


@pytest.mark.parametrize(
    "file", ["of-pgmpy.bif", "of-pgmpy.bifxml", "of-pgmpy.xdsl", "of-pyagrum.bif", "of-pyagrum.bifxml"]
)
def test_what_others_write_is_read(file):
    network, (plain, _) = read_network(PUBLISHED / file), replace_network_names(FIXED)
    assert network.values == plain.values
    for name in network.values:
        # pyAgrum writes six digits.
        assert table_cells(network, name) == pytest.approx(table_cells(plain, name), abs=1e-6)


def test_xdsl_of_pyagrum_with_its_other_order_is_refused():
    with pytest.raises(
        NetworkFileError, match=r"xdsl, line \d+: pyAgrum orders the probabilities .* save the network as \.bifxml"
    ):
        read_network(PUBLISHED / "of-pyagrum.xdsl")


@given(some_networks())
def test_every_format_keeps_names_values_and_numbers(network):
    for form in ("bif", "xmlbif", "xdsl"):
        again = parse_network(format_network("any name", network, form).encode(), "it")
        assert again.values == network.values and again.parents == network.parents
        for name in network.values:
            assert again.probabilities(name) == network.probabilities(name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<BIF><NETWORK>\n</NETWORK>", "line 2: it is not XML (no element found"),
        ("<BIF>\n<NETWORK></NETWORK></BIF>", "line 2: it has no variables"),
        ("<html></html>", "line 1: <html> is neither XMLBIF (<BIF>) nor XDSL (<smile>)"),
        ("<smile/>", "line 1: it has no nodes"),
        ('<!DOCTYPE BIF [\n<!ENTITY a "aaaa">]><BIF>&a;</BIF>', "line 2: it declares entities, which are not supported: write their text instead"),
        ("<BIF>" + "<a>\n" * 40, "line 32: elements are nested more than 32 deep"),
        ('<?xml version="1.0" encoding="no-such"?><BIF/>', "line 1: "),
        (XMLBIF.replace("<FOR>smoke", "<FOR>smoking"), "line 9: 'smoking' is not a variable"),
        (XMLBIF.replace("<FOR>smoke", "<FOR>lung cancer"), "line 9: the definition of 'lung cancer' is defined twice"),
        (XMLBIF.replace("<NAME>smoke", "<NAME>lung cancer"), "line 5: variable 'lung cancer' is defined twice"),
        (XMLBIF.replace("0.25 0.25", "0.25 x"), "line 9: expected probabilities, not '0.5', '0.25', 'x'"),
        (XMLBIF.replace('"nature"', '"decision"'), "line 4: variable 'lung cancer' is of type 'decision', not 'nature'"),
        (XMLBIF.replace("<FOR>smoke</FOR>", ""), "line 9: DEFINITION has 0 elements FOR instead of one"),
        (XDSL.replace("deterministic", "noisymax"), "line 4: node 'both' is of kind 'noisymax': change it to a table"),
        (XDSL.replace("yes no no no", "yes no no maybe"), "line 5: 'maybe' is not a state of the node"),
        (XDSL.replace("smoke tub", "smoke tube"), "line 4: 'tube' is not a node"),
        (XDSL.replace('"tub"', '"smoke"'), "line 6: node 'smoke' is defined twice"),
        (XDSL.replace('<state id="a" />', "<state/>"), "line 3: state has no id"),
        (XDSL.replace("probabilities", "table"), "line 3: cpt has 0 elements probabilities instead of one"),
        (XMLBIF.replace("</VARIABLE>", "<PROPERTY>fewpass = [1</PROPERTY></VARIABLE>"), "line 4: its JSON must hold a name and its values"),
    ],
)  # fmt: skip
def test_what_is_no_network_is_named_with_its_line(text, message):
    with pytest.raises(NetworkFileError, match=re.escape(f"it, {message}")):
        parse_network(text.encode("latin-1"), "it")


def test_files_beyond_the_bound_or_unreadable_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("learners.orders.formats.network_files.MOST_BYTES", 1 << 20)
    (tmp_path / "big.bif").write_bytes(ASIA.encode() + b" " * (1 << 20))
    with pytest.raises(NetworkFileError, match="it has more than 1 MB"):
        read_network(tmp_path / "big.bif")
    monkeypatch.setattr("learners.orders.formats.xml.MOST_ELEMENTS", 5)
    with pytest.raises(NetworkFileError, match="line 4: it has more than 5 elements"):
        parse_network(XMLBIF.encode(), "it")
    (tmp_path / "bytes.bif").write_bytes(b"network a {\n}\n\xff")
    with pytest.raises(NetworkFileError, match=r"bytes\.bif, line 3: it is not text in UTF-8"):
        read_network(tmp_path / "bytes.bif")
    with pytest.raises(NetworkFileError, match=re.escape(f"{tmp_path / 'no.bif'}, line 1: it cannot be read")):
        read_network(tmp_path / "no.bif")


def test_a_table_that_is_much_longer_than_its_text_is_refused(monkeypatch):
    monkeypatch.setattr("learners.orders.formats.xml.MOST_PROBABILITIES", 5)
    with pytest.raises(NetworkFileError, match="line 5: its table has more than 5 probabilities"):
        parse_network(XDSL.encode(), "it")
    n = 20_000
    values = {f"p{i}": ("a", "b") for i in range(n)}
    network = Network(
        values | {"x": ("a", "b")}, dict.fromkeys(values, ()) | {"x": tuple(values)}, {"x": {(): (0.5, 0.5)}}
    )
    with pytest.raises(InvalidNetwork, match="Variable 'x' of the network has a table of more than 1,048,576 prob"):
        _table(network, "x")


def test_formats_are_chosen_by_name_or_ending():
    for path, form in (
        (None, "bif"),
        ("a.BIF", "bif"),
        ("a.xml", "xmlbif"),
        ("a.bifxml", "xmlbif"),
        ("a.xdsl", "xdsl"),
    ):
        assert choose_network_file_format(path, None) == form
    assert choose_network_file_format("a.txt", "xdsl") == "xdsl"
    with pytest.raises(InvalidParameter, match=r"the name of a network file ends in one of \.bif, \.xmlbif"):
        choose_network_file_format("a.txt", None)
    with pytest.raises(InvalidParameter, match="must be one of bif, xmlbif, xdsl"):
        choose_network_file_format("a.bif", "net")
