"""The Bayesian Interchange Format, read and written."""

import re

import pytest
from hypothesis import given

from learners.orders.formats.bif import format_bif, parse_bif
from learners.orders.formats.network_tables import Network, NetworkFileError
from tests.support.orders import ASIA, some_networks


def test_a_network_is_read():
    """A default row is for all values without one."""
    network, default = parse_bif(ASIA), (0.2, 0.3, 0.5)
    cancer = {
        ("yes", "yes"): (0.1, 0.2, 0.7),
        ("yes", "no"): default,
        ("no", "yes"): (1.0, 0.0, 0.0),
        ("no", "no"): default,
    }
    assert network == Network(
        {"smoke": ("yes", "no"), "lung cancer": ("none", "some (or more)", "much"), "tub": ("yes", "no")},
        {"smoke": (), "lung cancer": ("smoke", "tub"), "tub": ()},
        {"smoke": {(): (0.5, 0.5)}, "lung cancer": cancer},
    )
    assert network.edges == ("smoke->lung cancer", "tub->lung cancer")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: it has no variables"),
        (
            "network x {\n}\nvariables y { }",
            "line 3: expected 'network', 'variable' or 'probability', not 'variables'",
        ),
        ("variable a {\n type discrete [2] { u, v };\n", "line 2: the file ends in the middle of a block"),
        ("variable a { }\nvariable a { }", "line 2: variable 'a' is defined twice"),
        ("variable a { }\nprobability ( a | b ) { }", "line 2: 'b' is not a variable"),
        ("variable a { }\nprobability ( a ) { table x; }", "line 2: expected probabilities, not 'x'"),
        ("variable a { }\nprobability ( a ) { tables 1; }", "line 2: expected 'table' or values of the parents, not"),
        ("variable a { }\nprobability a { }", r"line 2: expected '\(', not 'a'"),
    ],
)
def test_what_is_no_network_is_named_with_its_line(text, message):
    with pytest.raises(NetworkFileError, match=f"the text, {message}"):
        parse_bif(text)


# The grammar of version 0.15 with names as its strictest readers have them: words of ASCII, nothing in quotes.
WORD, NUMBER = r"[A-Za-z_][A-Za-z0-9_]*", r"-?\d+(\.\d+)?(e[+-]?\d+)?"
NUMBERS, LIST = rf"{NUMBER}(, {NUMBER})*", rf"{WORD}(, {WORD})*"
STRICT = re.compile(
    rf"network {WORD} {{\s*}}\s*"
    rf"(variable {WORD} {{\s*type discrete \[ \d+ \] {{ {LIST} }};\s*}}\s*)+"
    rf"(probability \( {WORD}( \| {LIST})? \) {{\s*"
    rf'(property \w+ "[^"]*";\s*)*((table|\({LIST}\)) {NUMBERS};\s*)+}}\s*)+'
)


@given(some_networks())
def test_what_is_written_is_read_again(network):
    first, *others = network.values
    values = network.values[first]
    text = format_bif("any name", network)
    assert parse_bif(text) == network
    bare = re.sub(r"//[^\n]*\n", "", text)
    assert STRICT.fullmatch(bare)
    other = parse_bif(bare)
    assert [len(set(own)) for own in other.values.values()] == [len(values)] * (len(others) + 1)
    assert [len(own) for own in other.parents.values()] == [len(others), *[0] * len(others)]


def test_words_that_the_format_lacks_are_told_in_comments():
    network = Network({"age": ("(-inf, 5]", 'say "x"', "say 'x'"), "table": ("yes", "no")}, {"age": (), "table": ()})
    text = format_bif("my net", network)
    assert "network my_net {" in text
    assert "type discrete [ 3 ] { inf_5, say_x, say_x_2 };" in text
    assert '// means vtable: ["table", {}]' in text
    assert "property" not in text
    with pytest.raises(NetworkFileError, match="line 2: its JSON must hold a name and its values"):
        parse_bif('network x { }\n// means a: [1"]\nvariable a { }')


def test_a_whole_table_has_the_values_of_its_variable_slowest():
    """As in the example of the format's authors, and as pgmpy and pyAgrum read it."""
    text = (
        'variable "light-on" { type discrete[2] { "true" "false" }; }\n'
        'variable "family-out" { type discrete[3] { "all" "some" "none" }; }\n'
        'probability ( "light-on" "family-out" ) { table 0.6 0.05 0.3 0.4 0.95 0.7; }'
    )
    assert parse_bif(text).probabilities("light-on") == [0.6, 0.4, 0.05, 0.95, 0.3, 0.7]


def test_hostile_texts_are_refused_at_once():
    """In time that grows with the text: quadratic, each of them would take minutes."""
    small = "variable x { type discrete [ 2 ] { a, b }; }\n"
    with pytest.raises(NetworkFileError, match="it, line 2: the comment does not end"):
        parse_bif(small + "/* " * 300_000, "it")
    with pytest.raises(NetworkFileError, match="it, line 199999: its JSON must hold a name"):
        parse_bif("\n" + "// means y: []\n" * 199_998 + "// means x: []\n" + small, "it")
    parents = " ".join(f"p{i}" for i in range(20_000))
    every = "".join(f"variable p{i} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for i in range(20_000))
    with pytest.raises(NetworkFileError, match="'default' stands for more than 1,048,576 rows"):
        parse_bif(f"{small}{every}probability ( x | {parents} ) {{ default 0.5, 0.5; }}", "it")


def test_a_large_table_is_read():
    rows = {(str(a), str(b)): (0.25,) * 4 for a in range(250) for b in range(250)}
    numbers = tuple(map(str, range(250)))
    values = {"x": numbers, "y": numbers, "z": tuple("abcd")}
    text = format_bif("large", Network(values, {"x": (), "y": (), "z": ("x", "y")}, {"z": rows}))
    assert len(text) > 2_000_000
    assert len(parse_bif(text).tables["z"]) == 62_500
